"""The section on candidates that took turns says and draws what the comparison found."""

from __future__ import annotations

from nnpipe.measuring.diagnosis import diagnose
from nnpipe.report.document import Paragraph, Plot, Table
from nnpipe.report.drawing.pictures import Pictures
from nnpipe.report.render import render
from nnpipe.report.result_files import read_report_subject
from nnpipe.report.sections.comparison import build_comparison_section


def test_the_verdict_is_told_and_drawn(comparison):
    section = build_comparison_section(comparison)
    texts = [(block.tone, block.text) for block in section.blocks if isinstance(block, Paragraph)]
    assert any(
        "is faster than slow: slow takes 1.99" in text or "slow takes 2.0" in text
        for _, text in texts
    )
    assert ("warning", "gone fell out: it crashed") in texts
    (figure,) = [block for block in section.blocks if isinstance(block, Plot)]
    rows = {row.label: row for row in figure.chart.rows}
    assert len(rows) == 2
    assert rows["slow"].clear
    low, high = rows["slow"].interval
    assert 1.9 < low < rows["slow"].value < high < 2.1
    assert figure.chart.margin == 0.2
    (other,) = rows.keys() - {"slow"}
    assert not rows[other].clear
    assert "<fast>" in "".join(
        Pictures().render_svg(figure).replace("&lt;", "<").replace("&gt;", ">")
    )
    assert any(isinstance(block, Table) for block in section.blocks)


def test_the_report_of_a_comparison_holds_its_runs(comparison, tmp_path):
    comparison.write(tmp_path / "comparison.json")
    found = read_report_subject([tmp_path / "comparison.json"])
    assert [run.title for run in found.runs] == ["slow", "fast", "as <fast>"]
    assert [failure.title for failure in found.failures] == ["gone"]
    assert [section.title for section in found.sections] == ["Side by side"]
    assert len(render(found.runs, "T", sources=found.sources).sections) == 4


def test_candidates_do_not_suspect_each_other(comparison):
    assert [diagnose(run) for run in comparison.runs] == [(), (), ()]
