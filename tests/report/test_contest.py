"""The section on candidates that took turns says and draws what the comparison found."""

from __future__ import annotations

import numpy as np
import pytest

from nnpipe.measure.comparison import Comparison, with_turns
from nnpipe.measure.diagnosis import diagnose
from nnpipe.measure.interleaving import Block, Record, Turn
from nnpipe.measure.pairing import Plan
from nnpipe.report.contest import contest
from nnpipe.report.document import Figure, Paragraph, Table
from nnpipe.report.plots import Pictures
from nnpipe.report.render import render
from nnpipe.report.subject import subject


@pytest.fixture(scope="module")
def comparison(make_run):
    """A slow one, a fast one, and one that cannot be told from the fast one; all under another load."""
    random = np.random.default_rng(0)
    turns = []
    for start in range(14):
        for round_ in range(4):
            for place, (candidate, ns) in enumerate(((0, 80_000), (1, 40_000), (2, 40_000))):
                begin = ((start * 4 + round_) * 3 + place) * 10_000_000
                latency = (ns * random.normal(1, 0.01, 30)).astype(np.int64)
                starts = np.cumsum(latency) - latency
                block = Block(start_ns=starts, latency_ns=latency, idle_ns=1_000_000, idle_cpu_ns=0)
                turns.append(Turn(start, round_, place, candidate, begin, block))
    runs = [make_run(title, seed=seed, calls=50) for seed, title in enumerate(("slow", "fast", "as <fast>"))]
    plan = Plan(margin=0.2)
    whole = tuple(with_turns(run, Record(turns), place) for place, run in enumerate(runs))
    return Comparison("three", plan, whole, {"gone": "it crashed"}, seconds=24.0)


def test_the_verdict_is_told_and_drawn(comparison):
    section = contest(comparison)
    texts = [(block.tone, block.text) for block in section.blocks if isinstance(block, Paragraph)]
    assert any("is faster than slow: slow takes 1.99" in text or "slow takes 2.0" in text for _, text in texts)
    assert ("warning", "gone fell out: it crashed") in texts
    (figure,) = [block for block in section.blocks if isinstance(block, Figure)]
    rows = {row.label: row for row in figure.chart.rows}
    assert len(rows) == 2
    assert rows["slow"].clear
    low, high = rows["slow"].interval
    assert 1.9 < low < rows["slow"].value < high < 2.1
    assert figure.chart.margin == 0.2
    (other,) = rows.keys() - {"slow"}
    assert not rows[other].clear
    assert "<fast>" in "".join(Pictures().svg(figure).replace("&lt;", "<").replace("&gt;", ">"))
    assert any(isinstance(block, Table) for block in section.blocks)


def test_the_report_of_a_comparison_holds_its_runs(comparison, tmp_path):
    comparison.write(tmp_path / "comparison.json")
    found = subject([tmp_path / "comparison.json"])
    assert [run.title for run in found.runs] == ["slow", "fast", "as <fast>"]
    assert [failure.title for failure in found.failures] == ["gone"]
    assert [section.title for section in found.sections] == ["Side by side"]
    assert len(render(found.runs, "T", sources=found.sources).sections) == 4


def test_candidates_do_not_suspect_each_other(comparison):
    assert [diagnose(run) for run in comparison.runs] == [(), (), ()]
