"""The graph of a network as a picture, shaded by the time or the error of its operations."""

from __future__ import annotations

from collections.abc import Mapping

from nnpipe.analysis.layer_times import LayerTimes
from nnpipe.analysis.operation_costs import GraphCost
from nnpipe.report.charts import BoxGraph, GraphBox
from nnpipe.report.formatting import share
from nnpipe.workflows.explanation.error_tables import worst_errors
from nnpipe.workflows.explanation.layer_errors import LayerErrors

MOST_BOXES = 600
"""The greatest number of boxes of a picture; one of more could not be read."""

_CLEAN, _LOST = 60.0, 10.0  # decibels of an error that is not shaded, and of one in the darkest shade


def time_graph(cost: GraphCost, times: LayerTimes) -> BoxGraph | None:
    """Return the graph with the operations that a runtime fuses in one box, shaded by time; None if it is too large."""
    row_of = {name: number for number, row in enumerate(times.rows) for name in row.operations}
    groups: dict[object, list[int]] = {}
    for place, each in enumerate(cost.operations):
        groups.setdefault(row_of.get(each.name, each.name), []).append(place)
    most = max((row.share for row in times.rows if row.operations), default=0.0) or 1.0
    boxes, places = [], list(groups.values())
    for key, members in groups.items():
        row = times.rows[key] if isinstance(key, int) else None
        first = cost.operations[members[0]]
        label = row.name if row else first.name
        detail = f"{share(row.share, 1)}, {row.kind}" if row else "no step of its own"
        tip = ", ".join(cost.operations[place].name for place in members)
        tip += f": {row.time_ns / 1e3:.3g} µs, {row.kernel} {row.precision}".rstrip() if row else ""
        boxes.append(GraphBox(label, detail, row.share / most if row else 0.0, tip))
    return _graph(cost, places, boxes, f"share of the time of a run, up to {share(most, 1)}")


def error_graph(cost: GraphCost, errors: LayerErrors) -> BoxGraph | None:
    """Return the graph with each operation shaded by the error that it adds; ``None`` if it is too large."""
    places = [[place] for place in range(len(cost.operations))]
    boxes = []
    for each, worst in zip(cost.operations, worst_errors(errors, [(o.name,) for o in cost.operations]), strict=True):
        if worst is None:
            boxes.append(GraphBox(each.name, each.primitive, 0.0, f"{each.name}: the source has no such tensor"))
            continue
        shade = min(1.0, max(0.0, (_CLEAN - worst.lowest) / (_CLEAN - _LOST)))
        detail = f"{worst.median:.0f} dB, worst {worst.lowest:.0f}"
        boxes.append(GraphBox(each.name, detail, shade, f"{each.name}: as {worst.source} of the source"))
    label = f"error of the worst channel: {_CLEAN:g} dB signal to noise is white, {_LOST:g} dB darkest"
    return _graph(cost, places, boxes, label)


def _graph(cost: GraphCost, places: list[list[int]], boxes: list[GraphBox], label: str) -> BoxGraph | None:
    if len(boxes) > MOST_BOXES:
        return None
    maker: Mapping[str, int] = {
        tensor.name: number
        for number, members in enumerate(places)
        for place in members
        for tensor in cost.operations[place].outputs
    }
    arrows = {
        (maker[tensor.name], number): None
        for number, members in enumerate(places)
        for place in members
        for tensor in cost.operations[place].inputs
        if tensor.name in maker and maker[tensor.name] != number
    }
    order = _ordered(len(boxes), list(arrows))
    at = {number: place for place, number in enumerate(order)}
    return BoxGraph(tuple(boxes[number] for number in order), tuple((at[a], at[b]) for a, b in arrows), label)


def _ordered(count: int, arrows: list[tuple[int, int]]) -> list[int]:
    """Return the boxes in an order in which each comes after those before it; arrows of a circle are left out."""
    waiting = {number: {one for one, other in arrows if other == number} for number in range(count)}
    order: list[int] = []
    while waiting:
        ready = [number for number, before in waiting.items() if not before & waiting.keys()]
        for number in ready or [min(waiting)]:
            order.append(number)
            del waiting[number]
    return order
