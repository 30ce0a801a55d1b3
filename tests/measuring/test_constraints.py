import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnpipe.core.errors import ConfigError
from nnpipe.measuring.constraints import (
    Figure,
    MetricConstraint,
    check_consistent,
    get_metric_quantity,
)


@pytest.mark.parametrize(
    ("text", "metric", "at_most", "bound"),
    [
        ("latency_p90 <= 5 ms", "latency_p90", True, 0.005),
        ("latency_p99.9<=250us", "latency_p99.9", True, 250e-6),
        ("latency_median <= 3 µs", "latency_median", True, 3e-6),
        ("accuracy_loss <= 0.02", "accuracy_loss", True, 0.02),
        ("accuracy_loss <= -0.01", "accuracy_loss", True, -0.01),
        ("accuracy >= 97.5 %", "accuracy", False, 0.975),
        ("size <= 4 MB", "size", True, 4e6),
        ("size <= 4 MiB", "size", True, 4 * 2**20),
        ("memory <= 1.5e2 kB", "memory", True, 150e3),
        ("throughput >= 1000 /s", "throughput", False, 1000.0),
    ],
)
def test_constraints_are_read_with_their_units(text, metric, at_most, bound):
    found = MetricConstraint.parse(text)
    assert (found.metric.name, found.at_most) == (metric, at_most)
    assert found.bound == pytest.approx(bound)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fast", "is not a constraint"),
        ("latency_p90 <= 5", "say the unit"),
        ("latency_p90 <= 5 MB", "'MB' is no unit of it"),
        ("size <= 4 parsecs", "is no unit"),
        ("latency_p9O <= 5 ms", "unknown metric"),
        ("latency_p0 <= 5 ms", "unknown metric"),
        ("latency_p90 == 5 ms", "use <= or >="),
        ("latency_p90 < 5 ms", "use <= or >="),
        ("latency_p90 <= 0 ms", "can never hold"),
        ("size <= -1 MB", "can never hold"),
        ("accuracy >= 1.01", "can never hold"),
        ("accuracy >= 101 %", "can never hold"),
        ("accuracy_loss <= -1.5", "can never hold"),
        ("size <= 4..5 MB", "is no number"),
        ("size <= 1e999 MB", "is no number"),
        ("", "is not a constraint"),
    ],
)
def test_what_is_no_constraint_is_told_in_one_line(text, message):
    with pytest.raises(ConfigError, match=message) as caught:
        MetricConstraint.parse(text)
    assert "\n" not in str(caught.value)


def test_constraints_that_exclude_each_other_are_found():
    small, large = MetricConstraint.parse("size <= 4 MB"), MetricConstraint.parse("size >= 5 MB")
    check_consistent(
        [small, MetricConstraint.parse("size >= 4 MB"), MetricConstraint.parse("memory >= 5 MB")]
    )
    with pytest.raises(ConfigError, match="exclude each other"):
        check_consistent([small, large])


def test_a_percentile_knows_its_share():
    assert get_metric_quantity("latency_median").percentile == 0.5
    assert get_metric_quantity("latency_p99.9").percentile == pytest.approx(0.999)
    assert get_metric_quantity("size").percentile is None


def test_only_a_whole_interval_decides():
    most, least = MetricConstraint.parse("size <= 10 B"), MetricConstraint.parse("size >= 10 B")
    assert most.evaluate(Figure(9, 8, 10, 5)) is True
    assert most.evaluate(Figure(9, 8, 10.5, 5)) is None
    assert most.evaluate(Figure(12, 10, 13, 5)) is None
    assert most.evaluate(Figure(12, 10.5, 13, 5)) is False
    assert least.evaluate(Figure(12, 10, 13, 5)) is True
    assert least.evaluate(Figure(9, 8, 9.5, 5)) is False
    assert least.evaluate(Figure(9, 8, 10, 5)) is None
    assert most.evaluate(Figure.exactly(10)) is True
    assert most.evaluate(Figure.unknown("nobody looked")) is None


@given(st.text(max_size=40))
def test_any_text_is_a_constraint_or_a_clear_error(text):
    try:
        found = MetricConstraint.parse(text)
    except ConfigError:
        return
    assert math.isfinite(found.bound)
    assert MetricConstraint.parse(found.text) == found
