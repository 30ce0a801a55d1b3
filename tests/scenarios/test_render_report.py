"""``nnpipe render_report`` writes what it says where it says, or says in one line why not."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from nnpipe.core.evaluation import Evaluation
from nnpipe.measuring.run import Run
from nnpipe.measuring.series import Series
from nnpipe.scenarios.render_report import main


@pytest.fixture
def result(tmp_path):
    """Writes a small result file and gives its path."""

    def write(name="a.json", title="A candidate", evaluated=True, timed=True, wrong=0):
        random = np.random.default_rng(len(name))
        latency = random.integers(1000, 2000, 50)
        inference = Series(
            {
                "start_ns": np.cumsum(latency),
                "latency_ns": latency,
                "samples": np.ones(50, np.int64),
            }
        )
        truth = random.integers(0, 3, 50)
        predicted = np.where(np.arange(50) < wrong, (truth + 1) % 3, truth)
        evaluation = Evaluation(
            "classification", {"truth": truth, "predicted": predicted}, ("x", "y", "z")
        )
        path = tmp_path / name
        Run(
            title=title,
            command=("nnpipe",),
            components={},
            frameworks={},
            host={},
            timing={},
            series={"inference": inference} if timed else {},
            evaluation=evaluation if evaluated else None,
        ).write(path)
        return str(path)

    return write


@pytest.fixture
def drawing():
    pytest.importorskip("jinja2", reason="Jinja2 writes the page")


def test_one_result_becomes_rst_and_html(result, tmp_path, capsys, drawing):
    output = tmp_path / "docs" / "report.rst"
    arguments = ["--img-dir", str(tmp_path / "docs" / "img"), "--root-dir", str(tmp_path / "docs")]
    types = ["--report-types", "performance", "classification"]
    assert main([result(), "The title", str(output), *arguments, *types]) == 0
    assert output.read_text("utf-8").startswith("=========\nThe title\n")
    assert ".. figure:: img/report-inference-time.svg" in output.read_text("utf-8")
    assert (tmp_path / "docs" / "img" / "report-inference-time.svg").is_file()
    page = output.with_suffix(".html")
    assert "<h1>The title</h1>" in page.read_text("utf-8")
    assert str(page) in capsys.readouterr().out.splitlines()[-1]


def test_several_results_are_compared_in_their_order(result, tmp_path, drawing):
    output = tmp_path / "report.rst"
    assert (
        main(
            [
                result("a.json", "First"),
                result("b.json", "Second", wrong=9),
                "Both",
                str(output),
                "--image-format",
                "png",
            ]
        )
        == 0
    )
    text = output.read_text("utf-8")
    assert "Comparison\n==========" in text
    assert text.index("First") < text.index("Second")
    assert (
        (tmp_path / "img" / "report-accuracy-against-time.png").read_bytes().startswith(b"\x89PNG")
    )


def test_markdown_and_a_page_alone_can_be_asked_for(result, tmp_path, drawing):
    first, second = result("a.json", "First"), result("b.json", "Second")
    assert main([first, second, "Both", str(tmp_path / "docs" / "both.md")]) == 0
    text = (tmp_path / "docs" / "both.md").read_text("utf-8")
    assert text.startswith("# Both\n")
    assert "](<img/both-inference-times.svg>)" in text
    assert (tmp_path / "docs" / "img" / "both-inference-times.svg").is_file()
    assert (tmp_path / "docs" / "both.html").is_file()
    assert main([first, "Alone", str(tmp_path / "page" / "alone.html")]) == 0
    assert sorted(path.name for path in (tmp_path / "page").iterdir()) == [
        "alone.html",
        "alone.summary.json",
    ]


def test_the_summary_holds_figures_with_their_intervals(result, tmp_path, drawing):
    assert (
        main(
            [
                result("a.json", "First"),
                result("b.json", "Second"),
                "Both",
                str(tmp_path / "r.html"),
            ]
        )
        == 0
    )
    summary = json.loads((tmp_path / "r.summary.json").read_text("utf-8"))
    assert (summary["schema"], summary["kind"]) == (1, "nnpipe report summary")
    assert [each["name"] for each in summary["candidates"]] == ["First", "Second"]
    median = summary["candidates"][0]["figures"]["latency_median"]
    latency = Run.read(tmp_path / "a.json").series["inference"]["latency_ns"]
    assert median["value"] == pytest.approx(np.median(latency) / 1e9)
    assert median["interval"][0] <= median["value"] <= median["interval"][1]
    assert (median["unit"], median["count"]) == ("s", 50)


def test_sections_that_are_not_asked_for_are_left_out(result, tmp_path, drawing):
    output = tmp_path / "report.rst"
    assert main([result(), "T", str(output), "--report-types", "classification"]) == 0
    text = output.read_text("utf-8")
    assert "Classification\n====" in text
    assert "Performance\n====" not in text


def refused(capsys, *arguments):
    assert main([str(argument) for argument in arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    return line


def test_a_missing_result_is_named(tmp_path, capsys):
    assert "none.json: no such result file" in refused(
        capsys, tmp_path / "none.json", "T", tmp_path / "o.rst"
    )


@pytest.mark.parametrize("damage", ["cut", "flipped", "another", "impossible"])
def test_a_damaged_result_is_one_line_and_status_2(result, tmp_path, capsys, damage):
    path = tmp_path / "a.json"
    result(path.name)
    data = path.read_bytes()
    if damage == "cut":
        path.write_bytes(data[: len(data) // 2])
    elif damage == "flipped":
        path.write_bytes(data.replace(b'"data": "e', b'"data": "f', 1))
    elif damage == "another":
        path.write_text("[1, 2]")
    else:
        content = json.loads(data)
        content["timing"] = {"load_ns": "soon"}
        path.write_text(json.dumps(content))
    line = refused(capsys, result("good.json"), path, "T", tmp_path / "o.rst")
    assert "a.json: " in line
    assert not (tmp_path / "o.rst").exists()
    assert not (tmp_path / "img").exists()


def test_arguments_in_the_wrong_order_are_noticed(result, tmp_path, capsys):
    first, second = result("a.json"), result("b.json")
    assert "is no title" in refused(capsys, first, second, tmp_path / "o.rst")
    assert "must end in .rst" in refused(capsys, first, tmp_path / "o.rst", "Title")
    assert "required" in refused(capsys, first, tmp_path / "o.rst")
    assert "is no title" in refused(capsys, first, " ", tmp_path / "o.rst")


def test_a_section_that_no_result_allows_is_refused(result, tmp_path, capsys):
    unjudged = result(evaluated=False)
    line = refused(
        capsys, unjudged, "T", tmp_path / "o.rst", "--report-types", "performance", "classification"
    )
    assert "needs judged predictions of that task" in line


def test_a_place_that_cannot_be_written_is_one_line(result, tmp_path, capsys, drawing):
    (tmp_path / "file").write_text("not a folder")
    assert "cannot be written" in refused(capsys, result(), "T", tmp_path / "file" / "o.rst")


def test_without_what_draws_help_works_and_a_report_says_what_to_install(result, tmp_path):
    blocked = (
        "import sys\n"
        "sys.modules.update(dict.fromkeys(['matplotlib', 'jinja2', 'docutils']))\n"
        "from nnpipe.scenarios.render_report import main\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )

    def run(*arguments):
        return subprocess.run(
            [sys.executable, "-c", blocked, *arguments], capture_output=True, text=True, check=False
        )

    shown = run("-h")
    assert shown.returncode == 0
    assert "IN.json [IN.json ...] TITLE OUT" in shown.stdout
    failed = run(result(), "T", str(tmp_path / "o.rst"))
    assert failed.returncode == 2
    assert "pip install 'nnpipe[report]'" in failed.stderr
    assert len(failed.stderr.splitlines()) == 1


def test_a_title_may_be_longer_than_a_file_name(result, tmp_path, drawing):
    title = "Digits " * 60
    assert main([result(), title, str(tmp_path / "report.rst")]) == 0
    assert f"<h1>{title[:70]}" in (tmp_path / "report.html").read_text("utf-8")
