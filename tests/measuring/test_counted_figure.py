"""What targets without a clock count instead of time is a figure of its own, and never a time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from nnpipe.core.errors import ConfigError
from nnpipe.measuring.constraints import MetricConstraint, get_metric_quantity
from nnpipe.measuring.diagnosis import diagnose
from nnpipe.measuring.run import Run
from nnpipe.measuring.run_figures import compute_count_figure, get_counter
from nnpipe.measuring.series import ROUND_TRIP, Series, call_time
from nnpipe.report.inputs.candidate import Candidate
from nnpipe.report.quantity_text import format_quantity
from nnpipe.report.writers.json_figures import collect_cost_figures
from nnpipe.workflows.sweep.estimates import Figures


def run(counts: list[int], counter: str = "instructions") -> Run:
    number = len(counts)
    columns = {
        "start_ns": np.arange(number) * 1000,
        "latency_ns": np.full(number, 900),
        "samples": np.ones(number, np.int64),
        "target_counts": np.array(counts),
    }
    timing = {"load_ns": 5, "session": {"counter": counter}}
    return Run("a", (), {"protocol": {}}, {}, {}, timing, {"inference": Series(columns)})


def test_counts_that_repeat_are_exact_and_others_have_an_interval() -> None:
    exact = compute_count_figure(run([18_400_000] * 50), "instructions")
    assert (exact.value, exact.low, exact.high, exact.count) == (
        18_400_000,
        18_400_000,
        18_400_000,
        50,
    )
    scattered = compute_count_figure(
        run(np.random.default_rng(0).integers(900, 1100, 200).tolist()), "instructions"
    )
    assert scattered.value is not None
    assert 900 <= scattered.low < scattered.value < scattered.high <= 1100
    assert compute_count_figure(run([5]), "instructions").value == 5


def test_instructions_are_never_cycles_and_neither_are_times() -> None:
    found = run([1000] * 50)
    assert get_counter(found) == "instructions"
    assert compute_count_figure(found, "cycles").value is None
    figures = Figures(found, None)
    assert figures.get_figure(get_metric_quantity("instructions"), 0.95).value == 1000
    for name in ("latency_median", "latency_p90", "throughput"):
        assert (
            figures.get_figure(get_metric_quantity(name), 0.95).reason
            == "the target counts instructions instead of time"
        )
    assert call_time(found.series["inference"].columns, found.timing) is ROUND_TRIP
    known = collect_cost_figures(Candidate.from_run(found))
    assert known["instructions"].value == 1000
    assert "latency_median" not in known
    assert "round_trip_median" in known


def test_a_run_with_a_clock_has_no_counts() -> None:
    assert get_counter(run([1], "wall")) == ""
    assert (
        "only targets tell it that count instructions"
        in compute_count_figure(run([1], "wall"), "instructions").reason
    )


@pytest.mark.parametrize(
    ("text", "bound"),
    [("instructions <= 20 M", 20e6), ("cycles <= 500k", 5e5), ("instructions <= 1000", 1000)],
)
def test_constraints_on_counts_take_multiples(text: str, bound: float) -> None:
    constraint = MetricConstraint.parse(text)
    assert constraint.bound == bound
    assert (
        constraint.evaluate(
            compute_count_figure(run([999] * 9, constraint.metric.name), constraint.metric.name)
        )
        is True
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [("instructions <= 20 MB", "'MB' is no unit of it"), ("cycles <= 0", "can never hold")],
)
def test_what_is_no_constraint_on_counts_is_told(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        MetricConstraint.parse(text)


def test_counts_are_written_with_their_multiple() -> None:
    metric = get_metric_quantity("instructions")
    assert [format_quantity(metric, value) for value in (999.0, 15_000.0, 18_400_000.0, 2e9)] == [
        "999",
        "15.0\u00a0k",
        "18.4\u00a0M",
        "2.00\u00a0G",
    ]


def test_what_is_counted_is_trusted_whatever_else_this_machine_does() -> None:
    resources = Series({"time_ns": np.arange(9) * 10**8, "machine_cpu_percent": np.full(9, 400.0)})
    found = run([18_400_000] * 200)
    loaded = replace(
        found, series={**found.series, "resources": resources}, host={"cpu": {"logical_cores": 4}}
    )
    assert diagnose(loaded) == diagnose(found) == ()
