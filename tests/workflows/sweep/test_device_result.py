"""Which device is the cheapest that will do."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from nnpipe.measuring.constraints import Figure, get_metric_quantity
from nnpipe.workflows.devices.device import Device
from nnpipe.workflows.sweep.summary import DeviceResult, find_cheapest


def result(
    name: str, time: float | None, hour: float | None = None, piece: float | None = None
) -> DeviceResult:
    """Return the result of a device on which a candidate with such a time was confirmed;
    ``None`` for none.
    """
    figures = {"latency_median": Figure(time)}
    chosen = SimpleNamespace(chosen=None if time is None else object(), figures=figures)
    sweep = SimpleNamespace(choose=get_metric_quantity("latency_median"))
    device = Device(name, cost_per_hour=hour, cost_per_piece=piece)
    return DeviceResult(cast(Any, sweep), device, (), (), cast(Any, chosen))


@pytest.mark.parametrize(
    ("results", "name", "basis"),
    [
        ([result("a", 1, piece=80), result("b", 0.1, piece=250)], "a", "cost_per_piece"),
        ([result("a", None, piece=8), result("b", 0.1, piece=250)], "b", "cost_per_piece"),
        ([result("a", 1, piece=80), result("b", 0.1, piece=80)], "b", "cost_per_piece"),
        (
            [result("a", 1, hour=2), result("b", 2, hour=1), result("c", 3, piece=0)],
            "b",
            "cost_per_hour",
        ),
        ([result("a", 1, hour=2), result("b", 2, piece=1)], "b", "cost_per_piece"),
        ([result("a", 1, piece=80), result("b", 0.1)], "a", "cost_per_piece"),
        ([result("a", 1), result("b", 0.1)], "b", ""),
        ([result("a", 1, piece=0), result("b", 0.1, piece=1)], "a", "cost_per_piece"),
    ],
)
def test_the_cheapest_with_a_confirmed_candidate_is_taken(
    results: list[DeviceResult], name: str, basis: str
) -> None:
    found, by = find_cheapest(results)
    assert found is not None
    assert (found.device.name, by) == (name, basis)


def test_where_nothing_was_confirmed_there_is_none() -> None:
    assert find_cheapest([result("a", None, piece=8)]) == (None, "")
    assert find_cheapest([]) == (None, "")
