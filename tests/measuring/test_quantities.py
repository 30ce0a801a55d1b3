"""One table says what each figure is: names are unique, and two ways to compute have two names."""

from __future__ import annotations

import inspect

import pytest

from nnpipe.core.errors import ConfigError
from nnpipe.core.quality_metric import QualityMetric
from nnpipe.core.registry import components
from nnpipe.core.task import Task
from nnpipe.measuring.constraints import get_metric_quantity, list_metrics
from nnpipe.measuring.quantities import (
    QUANTITIES,
    UNITS,
    Quantity,
    find_quantity,
)
from nnpipe.measuring.series import BETWEEN, LATENCY, ON_TARGET, RESPONSE, call_time


def test_names_titles_and_headings_are_unique():
    for texts in (
        [each.name for each in QUANTITIES.values()],
        [each.title for each in QUANTITIES.values()],
    ):
        assert len(set(texts)) == len(texts)
    headings = [each.heading for each in QUANTITIES.values()]
    assert len(set(headings)) == len(headings)


def test_each_says_its_unit_what_it_is_and_where_it_comes_from():
    for each in QUANTITIES.values():
        assert each.unit == UNITS[each.kind]
        assert each.meaning
        assert each.computed_from


def test_each_quantity_and_each_metric_of_a_task_says_its_unit_and_which_way_is_better():
    for kind in (Quantity, QualityMetric):
        asked = inspect.signature(kind).parameters
        assert asked["kind"].default is asked["less_is_better"].default is inspect.Parameter.empty
    metrics = [metric for task in components(Task) for metric in task().metrics]
    assert len(metrics) > 40
    for metric in metrics:
        own, loss = find_quantity(metric.name), find_quantity(f"loss({metric.name})")
        assert (own.kind, own.less_is_better) == (metric.kind, metric.less_is_better)
        assert (loss.kind, loss.less_is_better) == (metric.kind, True)
        assert own.unit == UNITS[metric.kind]
        assert not own.of_calls
    with pytest.raises(TypeError, match=r"kind.*less_is_better"):
        QualityMetric(
            "area",
            "Area",
            "Area",
            "mean area in square metres",
            values=lambda found: found.arrays["area"],
        )


def test_any_percentile_and_any_top_k_is_known():
    assert find_quantity("latency_p99.9").percentile == pytest.approx(0.999)
    assert find_quantity("round_trip_p75").heading == "Round trip p75"
    assert find_quantity("latency_median").percentile == 0.5
    assert find_quantity("top_3_accuracy").title == "Top-3 accuracy"
    assert find_quantity("size").percentile is None
    for name in ("latency_p0", "latency_p100", "speed", "top_accuracy"):
        with pytest.raises(KeyError):
            find_quantity(name)


def test_what_is_reported_but_not_judged_is_refused_as_a_constraint():
    with pytest.raises(ConfigError, match="no candidate is judged by it"):
        get_metric_quantity("round_trip_median")
    assert get_metric_quantity("latency_p75").judged
    known = list_metrics()
    assert {"size", "accuracy", "loss(accuracy)", "mae"} <= known.keys()
    assert all(find_quantity(name) == each for name, each in known.items())


def test_metrics_of_tasks_are_quantities_and_so_are_their_losses_and_differences():
    assert find_quantity("mae").less_is_better
    assert find_quantity("mae").metric == "mae"
    for loss in ("loss(accuracy)", "accuracy_loss"):
        assert find_quantity(loss).compared == "loss"
        assert find_quantity(loss).metric == "accuracy"
        assert find_quantity(loss).less_is_better
        assert find_quantity(loss).name == loss
    assert find_quantity("loss(mae)").meaning.startswith(
        "the candidate's less mean absolute error of the model as trained"
    )
    assert find_quantity("accuracy_difference").heading == "Δ accuracy"
    assert not find_quantity("accuracy_difference").judged
    for name in ("loss(speed)", "speed_loss", "loss(accuracy_loss)", "loss()", "size_loss"):
        with pytest.raises(KeyError):
            find_quantity(name)


def test_times_that_do_not_count_alike_have_different_names():
    own = {"start_ns", "latency_ns", "samples"}
    assert call_time(own, {}) is LATENCY
    assert call_time(own | {"target_ns"}, {}) is ON_TARGET
    assert call_time(own | {"scheduled_ns"}, {}) is RESPONSE
    assert call_time(own | {"scheduled_ns", "target_ns"}, {}) is RESPONSE
    assert call_time(own, {"load": {"scenario": "offline"}}) is BETWEEN
    assert len({LATENCY.name, RESPONSE.name, BETWEEN.name}) == 3
