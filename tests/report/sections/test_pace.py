from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from nnpipe.measuring.run import Run
from nnpipe.measuring.series import Series
from nnpipe.report.document import Paragraph, Table
from nnpipe.report.inputs.candidate import Candidate
from nnpipe.report.sections.pace import PaceFigures, build_pace_blocks

from ..conftest import made_up_run

MS = 1_000_000


def a_run(
    asleep_ns: int = 100_000,
    awake_ns: int = 55_000,
    calls: int = 200,
    pace: Any = None,
    **columns: Any,
) -> Run:
    slept = np.arange(calls) % 4 != 0
    noise = np.random.default_rng(0).integers(0, 2000, calls)
    series = {
        "start_ns": np.arange(calls) * 33 * MS,
        "scheduled_ns": np.arange(calls) * 33 * MS,
        "latency_ns": np.where(slept, asleep_ns, awake_ns) + noise,
        "asleep": slept.astype(np.int64),
        **columns,
    }
    found = made_up_run(median_ns=40_000)
    timing = {**found.timing, "pace": {"period_ns": 33 * MS, "missed": 0} if pace is None else pace}
    return replace(found, timing=timing, series={**found.series, "paced": Series(series)})


def told(run: Run) -> tuple[Table, Paragraph]:
    table, text = build_pace_blocks(Candidate.from_run(run))
    assert isinstance(table, Table)
    assert isinstance(text, Paragraph)
    return table, text


def test_tight_and_paced_stand_side_by_side_and_the_difference_is_explained() -> None:
    table, text = told(a_run())
    assert [row[0] for row in table.rows] == [
        "tight loop",
        "one call in 33.0\u00a0ms, asleep between",
        "one call in 33.0\u00a0ms, awake between",
    ]
    assert "times as long as in the tight loop" in text.text
    assert "come from sleeping between calls" in text.text
    assert "even if the process stays awake" in text.text
    assert text.tone == "note"


def test_where_sleep_makes_no_difference_that_is_said() -> None:
    _, text = told(a_run(asleep_ns=55_000, awake_ns=55_000))
    assert "no difference whether the process sleeps" in text.text


def test_a_pace_that_makes_no_difference_is_not_explained() -> None:
    run = a_run()
    tight = run.series["inference"]["latency_ns"][:200]
    same = {
        **run.series["paced"].columns,
        "latency_ns": np.random.default_rng(1).permutation(tight),
    }
    _, text = told(replace(run, series={**run.series, "paced": Series(same)}))
    assert "cannot be told from that of the tight loop" in text.text


def test_a_pace_that_was_not_kept_is_a_warning() -> None:
    _, text = told(a_run(pace={"period_ns": 33 * MS, "missed": 150}))
    assert text.tone == "warning"
    assert "150 turns passed" in text.text


def test_of_a_target_its_own_times_count() -> None:
    calls = 200
    parts = {
        name: np.full(calls, value)
        for name, value in (("host_ns", 1), ("wire_ns", 2), ("target_ns", 70_000))
    }
    run = a_run(**parts)
    figures = PaceFigures.from_candidate(Candidate.from_run(run))
    assert figures is not None
    assert figures.asleep.median == 70_000


@pytest.mark.parametrize(
    "pace", [7, [], {}, {"period_ns": "x"}, {"period_ns": 0}, {"period_ns": 10**30, "missed": "y"}]
)
def test_whatever_a_file_says_of_a_pace_makes_a_report(pace: Any) -> None:
    assert build_pace_blocks(Candidate.from_run(a_run(pace=pace))) == []


def test_too_few_calls_are_not_judged() -> None:
    _, text = told(a_run(calls=5))
    assert "too few calls" in text.text
