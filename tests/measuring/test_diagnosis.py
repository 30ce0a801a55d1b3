"""What spoilt a run is named, and a sound run is left in peace."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from property_examples import examples

from nnpipe.measuring.diagnosis import ValidityWarning, diagnose
from nnpipe.measuring.run import Run
from nnpipe.measuring.series import Series

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def spoiled_runs() -> Iterator[Any]:
    sys.path.insert(0, str(BENCHMARKS))
    try:
        import spoiled_runs

        yield spoiled_runs
    finally:
        sys.path.remove(str(BENCHMARKS))


def a_run(
    times: np.ndarray | None = None,
    *,
    calls: int = 2000,
    cores: int = 4,
    mhz: Any = None,
    **changes: Any,
) -> Run:
    """A sound run, 0.2 s and more, and what is to be different."""
    random = np.random.default_rng(7)
    times = 1e5 * np.exp(0.03 * random.standard_normal(calls)) if times is None else times
    latency = np.asarray(times, np.int64)
    starts = np.cumsum(latency + 2000) - latency
    ticks = np.linspace(0, starts[-1], 30).astype(np.int64)
    resources = {
        "time_ns": ticks,
        "cpu_percent": np.full(30, 100.0),
        "machine_cpu_percent": np.full(30, 100.0 / cores),
        "wall_ns": ticks,
        "steal_percent": np.zeros(30),
        "involuntary_switches": np.zeros(30, np.int64),
    }
    if mhz is not None:
        resources["cpu_mhz"] = np.asarray(mhz, np.float64)
    before = {
        "clock_ns": 0,
        "wall_ns": 10**18,
        "ruler_ns": 100_000,
        "cpu_waiting_ns": 0,
        "quota_throttled_ns": 0,
    }
    before["thermal_throttles"] = 0
    after = {**before, "clock_ns": 10**9, "wall_ns": 10**18 + 10**9}
    after |= changes.pop("after", {})
    inference = {
        "start_ns": starts,
        "latency_ns": latency,
        "samples": np.ones(len(latency), np.int64),
    }
    inference |= changes.pop("inference", {})
    resources |= changes.pop("resources", {})
    host = {
        "cpu": {"logical_cores": cores},
        "before": {"counters": before},
        "after": {"counters": after},
    }
    timing = changes.pop("timing", {})
    assert not changes
    return Run(
        "",
        (),
        {},
        {},
        host,
        timing,
        {"inference": Series(inference), "resources": Series(resources)},
    )


def kinds(run: Run) -> list[str]:
    return [doubt.kind for doubt in diagnose(run)]


def level(shape: Callable[[np.ndarray], np.ndarray], calls: int = 2000) -> np.ndarray:
    noise = np.exp(0.03 * np.random.default_rng(3).standard_normal(calls))
    return 1e5 * noise * shape(np.linspace(0, 1, calls))


@pytest.mark.slow
def test_of_fifty_spoilt_runs_at_least_48_are_found_and_of_fifty_sound_ones_at_most_one_suspected(
    spoiled_runs,
):
    found = suspected = 0
    for kind, _, run in spoiled_runs.spoilt_runs(4242):
        found += bool(set(kinds(run)) & spoiled_runs.SPOILT[kind][1])
    for run in spoiled_runs.sound_runs(4242):
        suspected += bool(diagnose(run))
    assert found >= 48
    assert suspected <= 1


def test_a_sound_run_raises_no_doubt():
    assert diagnose(a_run()) == ()


SPOILT = {
    "too few": [a_run(calls=63), a_run(times=np.full(400, 40_000))],
    "warming up": [a_run(level(lambda part: 1 + 1.5 * (part < 0.08)))],
    "drifting": [
        a_run(level(lambda part: 1 + 0.3 * part)),
        a_run(level(lambda part: 1.4 - 0.4 * part)),
    ],
    "unstable": [
        a_run(level(lambda part: 1 + 0.3 * ((4 * part).astype(int) % 2))),
        a_run(level(lambda part: np.where(np.arange(len(part)) % 100 == 99, 80.0, 1.0))),
    ],
    "dependent": [a_run(level(lambda part: 1 + 0.04 * np.sin(2 * np.pi * 4 * part)))],
    "throttled": [
        a_run(mhz=np.linspace(3000, 2400, 30)),
        a_run(after={"thermal_throttles": 5}),
        a_run(after={"quota_throttled_ns": 20_000_000}),
        a_run(level(lambda part: 1 + 0.2 * (part > 0.5)), after={"ruler_ns": 120_000}),
    ],
    "loaded": [
        a_run(resources={"machine_cpu_percent": np.full(30, 50.0)}),
        a_run(resources={"machine_cpu_percent": np.repeat([50.0, 25.0], [4, 26])}),
        a_run(resources={"steal_percent": np.full(30, 5.0)}),
    ],
    "preempted": [
        a_run(resources={"involuntary_switches": np.full(30, 4)}),
        a_run(after={"cpu_waiting_ns": 400_000_000}),
    ],
    "clock": [
        a_run(after={"wall_ns": 10**18 + 10**9 + 80_000_000}),
        a_run(resources={"wall_ns": np.linspace(0, 1e9, 30).astype(np.int64)}),
        a_run(np.round(level(lambda part: 1 + 0 * part) / 10_000) * 10_000),
        a_run(np.where(np.random.default_rng(0).random(2000) < 0.3, 1e6, 0)),
        a_run(inference={"start_ns": np.append(np.arange(1999) * 200_000, 5)}),
        a_run(np.append(np.full(1999, 1e5), -1e5)),
    ],
}


@pytest.mark.parametrize(
    ("kind", "run"), [(kind, run) for kind, runs in SPOILT.items() for run in runs]
)
def test_each_kind_of_trouble_is_named_with_figures(kind, run):
    named = {doubt.kind: doubt.reason for doubt in diagnose(run)}
    assert kind in named
    assert any(letter.isdigit() for letter in named[kind])
    assert not named[kind].endswith(".")


def test_what_was_not_recorded_raises_no_doubt():
    run = a_run()
    for series in ({}, {"inference": run.series["inference"]}):
        assert diagnose(dataclasses.replace(run, series=series, host={})) == ()
    assert (
        diagnose(
            dataclasses.replace(run, host={"before": 3, "after": {"counters": [1]}, "cpu": "x"})
        )
        == ()
    )


@pytest.mark.parametrize("value", ["x", None, True, float("nan"), 10**400, -1, [3]])
def test_nonsense_in_a_result_file_does_no_harm(value):
    names = (
        "clock_ns",
        "wall_ns",
        "ruler_ns",
        "cpu_waiting_ns",
        "quota_throttled_ns",
        "thermal_throttles",
    )
    diagnose(a_run(after=dict.fromkeys(names, value)))
    run = a_run()
    diagnose(dataclasses.replace(run, host={**run.host, "cpu": {"logical_cores": value}}))


FLOATS = st.floats(width=64)
WHOLE = st.integers(-(2**62), 2**62)


@settings(max_examples=examples(60))
@given(
    st.lists(WHOLE, min_size=1, max_size=120),
    st.dictionaries(
        st.sampled_from(
            [
                "cpu_percent",
                "machine_cpu_percent",
                "cpu_mhz",
                "steal_percent",
                "involuntary_switches",
            ]
        ),
        st.lists(FLOATS, min_size=12, max_size=12),
    ),
    st.dictionaries(
        st.sampled_from(["time_ns", "wall_ns"]), st.lists(WHOLE, min_size=12, max_size=12)
    ),
)
def test_whatever_a_file_holds_is_judged_without_an_error(latency, floats, whole):
    columns = {name: np.array(values) for name, values in (*floats.items(), *whole.items())}
    run = a_run()
    series = {"inference": Series({"latency_ns": np.array(latency)}), "resources": Series(columns)}
    diagnose(dataclasses.replace(run, series=series))


def test_on_a_target_its_own_times_count_and_not_this_sides_machine():
    latency = np.asarray(level(lambda part: 1 + 0.3 * part), np.int64)
    busy = {"machine_cpu_percent": np.full(30, 90.0)}
    assert "loaded" in kinds(a_run(latency, resources=busy))
    steady = np.asarray(level(lambda part: 1 + 0 * part) / 2, np.int64)
    assert kinds(a_run(latency, resources=busy, inference={"target_ns": steady})) == []


def test_calls_that_overlap_on_a_schedule_are_no_clock_trouble():
    starts = np.arange(2000) * 50_000
    assert "clock" in kinds(a_run(inference={"start_ns": starts}))
    assert kinds(a_run(inference={"start_ns": starts, "scheduled_ns": starts})) == []
    assert (
        kinds(a_run(inference={"start_ns": starts}, timing={"load": {"scenario": "multi_stream"}}))
        == []
    )


def test_a_doubt_has_a_known_kind():
    with pytest.raises(ValueError, match="no kind of doubt"):
        ValidityWarning("haunted", "it moved by itself")


def test_a_framework_set_up_otherwise_is_told() -> None:
    run = a_run(timing={"settings": ["TVM without tuning"]})
    assert ValidityWarning(
        "settings", "not as its makers would run it: TVM without tuning"
    ) in diagnose(run)
    assert (
        kinds(a_run(timing={"settings": []}))
        == kinds(a_run(timing={"settings": "x"}))
        == kinds(a_run())
    )
