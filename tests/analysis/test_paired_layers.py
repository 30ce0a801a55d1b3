"""Two runs side by side have each operation once, and their times add up to both."""

from __future__ import annotations

import pytest

from nnpipe.analysis.layer_times import LayerTime, LayerTimes, match_layer_times
from nnpipe.core.errors import ConfigError
from nnpipe.report.layer_tables import build_side_by_side_table


def run_of(runtime: str, *steps: tuple[str, float, str]) -> LayerTimes:
    """Return a run of ``(operations, time, precision)``; a tenth belongs to no step."""
    layers = tuple(
        LayerTime(
            f"{runtime}{n}",
            "convolution",
            tuple(names.split()),
            "Conv",
            "",
            kind,
            ns,
            ns,
            ns,
            0.0,
            1,
        )
        for n, (names, ns, kind) in enumerate(steps)
    )
    whole = sum(each.time_ns for each in layers) / 0.9
    rest = LayerTime("not attributed", "not attributed", (), "", "", "", 0.1 * whole, 0.0, 0.0, 0.1)
    return LayerTimes(runtime, layers, rest, whole, None, 0.9, None, (), 3)


def test_steps_that_share_an_operation_are_put_together() -> None:
    first = run_of(
        "A", ("conv1 relu1", 10.0, "float32"), ("conv2", 20.0, "float32"), ("relu2", 5.0, "")
    )
    second = run_of(
        "B", ("conv1", 4.0, "int8"), ("relu1", 1.0, ""), ("conv2 relu2", 6.0, "int8"), ("", 3.0, "")
    )
    pairs = match_layer_times(first, second)
    assert [each.operations for each in pairs] == [("conv1", "relu1"), ("conv2", "relu2"), (), ()]
    assert [(each.first_ns, each.second_ns) for each in pairs[:3]] == [(10, 5), (25, 6), (0, 3)]
    assert (pairs[0].first_precision, pairs[0].second_precision) == ("float32", "int8")
    assert sum(each.first_ns for each in pairs) == pytest.approx(first.run_ns)
    assert sum(each.second_ns for each in pairs) == pytest.approx(second.run_ns)
    assert build_side_by_side_table(first, second).rows[-1][0] == "total"


def test_runs_of_other_networks_are_refused() -> None:
    with pytest.raises(ConfigError, match="no operation in common"):
        match_layer_times(run_of("A", ("conv1", 1.0, "")), run_of("B", ("other", 1.0, "")))
