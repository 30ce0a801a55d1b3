from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from nnpipe.measuring.run import Run
from nnpipe.measuring.series import Series
from nnpipe.report.document import Paragraph, Table
from nnpipe.report.inputs.candidate import Candidate
from nnpipe.report.sections.performance import build_load_blocks

LOAD = {
    "scenario": "server",
    "rate": 100.0,
    "samples_per_query": 1,
    "busy_ns": 10**10,
    "ended": "seconds",
    "unanswered": 3,
    "max_latency": "5ms@p90",
}


def a_run(load: Any = LOAD, **given: Any) -> Run:
    due = np.arange(1000, dtype=np.int64) * 10_000_000
    late = np.where(np.arange(1000) % 10 == 0, 200_000, 1000)
    columns = {
        "start_ns": due + late,
        "latency_ns": late + 1_000_000,
        "samples": np.ones(1000, np.int64),
        "scheduled_ns": due,
        "target_ns": np.full(1000, 900_000),
    }
    series = {
        "inference": Series({name: column.astype(np.int64) for name, column in columns.items()})
    }
    timing = {} if load is None else {"load": load}
    return Run("one", (), {}, {}, {}, timing, series, **given)


def told(run: Run) -> dict[str, str]:
    table = next(
        block for block in build_load_blocks(Candidate.from_run(run)) if isinstance(block, Table)
    )
    return {str(row[0]): row[1].text for row in table.rows}  # type: ignore[union-attr]


def test_the_load_and_how_its_schedule_was_kept_are_told() -> None:
    found = told(a_run())
    assert found["scenario"] == "server"
    assert found["queries a second asked for"] == "100.0"
    assert found["queries a second answered"] == "100.0"
    assert found["due and not sent when it ended"] == "3"
    assert found["sent more than 100\u00a0µs late"] == "100 (10.0\u00a0%)"
    assert found["had to wait for others"] == "0.0\u00a0%"
    assert found["p90 <= 5 ms"].startswith("kept")


def test_a_latency_under_load_counts_from_the_schedule_on_a_target_too() -> None:
    candidate = Candidate.from_run(a_run())
    assert candidate.latency is not None
    assert candidate.latency.median == 1_001_000
    assert candidate.throughput == 100


@pytest.mark.parametrize(
    "load",
    [
        None,
        7,
        [],
        {
            "scenario": 3,
            "rate": "x",
            "busy_ns": 0,
            "search": 5,
            "max_latency": 7,
            "unanswered": 1e300,
        },
        {
            "max_latency": "never",
            "rate": float(10**30),
            "search": {"reason": ["\x00"]},
            "busy_ns": None,
        },
    ],
)
def test_whatever_a_file_says_of_a_load_makes_a_report(load: Any) -> None:
    build_load_blocks(Candidate.from_run(a_run(load)))


def test_audits_are_told_and_failed_ones_warn() -> None:
    audits = {
        "caching": {"verdict": "failed", "reason": "answers are remembered"},
        "outputs": {"verdict": "passed", "reason": "all are the same"},
        "other": 5,
    }
    found = [
        b
        for b in build_load_blocks(Candidate.from_run(replace(a_run(None), audits=audits)))
        if isinstance(b, Paragraph)
    ]
    assert [(block.text, block.tone) for block in found] == [
        ("Audit of caching: failed. answers are remembered.", "warning"),
        ("Audit of outputs: passed. all are the same.", "note"),
    ]
