"""The table that a command ends with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from nnpipe.core.evaluation import Evaluation
from nnpipe.measuring.run import Run
from nnpipe.report.document import Paragraph, Table
from nnpipe.report.inputs.candidate import create_candidates
from nnpipe.report.render import render
from nnpipe.report.sections.verdict import (
    CandidateFailure,
    build_failure_warnings,
    build_outcome_table,
)

MakeRun = Callable[..., Run]


def verified(run: Run, *errors: Any, same: int = 63, verdict: str = "close") -> Run:
    tensors = [{"name": "scores", "max_relative": error} for error in errors]
    found = {
        "verdict": verdict,
        "reason": "r",
        "samples": 64,
        "same_class": same,
        "tensors": tensors,
    }
    return replace(run, verification=found)


def row(table: Table, number: int) -> dict[str, str]:
    names = [name.partition(",")[0] for name in table.header]
    return dict(zip(names, [cell.text for cell in list(table.cells())[number]], strict=True))


def test_a_row_holds_what_decides(make_run: MakeRun) -> None:
    run = verified(make_run("A", size=120_000, median_ns=40_000), 3e-7, 2e-6)
    table = build_outcome_table(create_candidates([run]))
    assert table.header[1] == "Size, kB"
    found = row(table, 0)
    assert found["Candidate"] == "A"
    assert found["Size"] == "120"
    assert float(found["Median"]) < float(found["p90"])
    assert found["Accuracy"].startswith("9")
    assert found["Same class"].startswith("98.44")
    assert (found["Error"], found["As its source"]) == ("2.0e-06", "close")


def test_the_metric_of_another_task_is_called_by_its_name(make_run: MakeRun) -> None:
    values = np.arange(12, dtype=np.float32)[:, None]
    numbers = replace(
        make_run("B"),
        evaluation=Evaluation("regression", {"truth": values, "predicted": values + 0.5}),
    )
    found = row(build_outcome_table(create_candidates([numbers])), 0)
    assert "Accuracy" not in found
    assert found["MAE"] == "0.5000"
    assert (
        row(build_outcome_table(create_candidates([make_run("A"), numbers])), 1)["Quality"]
        == "0.5000"
    )


def test_sizes_that_are_not_of_files_say_of_what_they_are(make_run: MakeRun) -> None:
    plain = make_run("A")
    of_c = replace(make_run("C"), artifact={**plain.artifact, "size": 64, "size_of": "as built"})
    notes = [cells[1].note for cells in build_outcome_table(create_candidates([plain, of_c])).rows]
    assert notes == ["", "as built"]
    table = next(
        block for block in render([plain, of_c], "T").sections[0].blocks if isinstance(block, Table)
    )
    place = next(n for n, name in enumerate(table.header) if name.startswith("Size"))
    assert [(cells[place].note, cells[place].best) for cells in table.rows] == [
        ("", False),
        ("as built", True),
    ]


def test_a_failure_stands_where_its_candidate_would(make_run: MakeRun) -> None:
    failures = [CandidateFailure(0, "first", "it burnt"), CandidateFailure(2, "third", "it sank")]
    table = build_outcome_table(
        create_candidates([make_run("second"), make_run("fourth")]), failures
    )
    rows = [row(table, number) for number in range(4)]
    assert [found["Candidate"] for found in rows] == ["first", "second", "third", "fourth"]
    assert [found["As its source"] for found in rows] == ["failed", "–", "failed", "–"]
    assert rows[0]["Median"] == "–"


def test_the_report_says_why_a_candidate_failed(make_run: MakeRun) -> None:
    (block,) = build_failure_warnings([CandidateFailure(0, "first", "it\nburnt")])
    assert isinstance(block, Paragraph)
    assert block.text == "first could not be measured: it burnt"
    document = render(
        [make_run("second")], "T", failures=[CandidateFailure(0, "first", "it burnt")]
    )
    assert document.sections[0].blocks[0] == block


def test_errors_of_any_kind_are_written(make_run: MakeRun) -> None:
    run = make_run("A")
    told = {
        "infinite": ("infinite", 1.0),
        "0": (0,),
        "0.25": (0.2, 0.25),
        "–": ("x", None, True, float("nan")),
    }
    for text, errors in told.items():
        assert (
            row(build_outcome_table(create_candidates([verified(run, *errors)])), 0)["Error"]
            == text
        )
    hostile = replace(run, verification={"tensors": [3, None], "samples": 0, "same_class": 0})
    assert row(build_outcome_table(create_candidates([hostile])), 0)["Same class"] == "–"
