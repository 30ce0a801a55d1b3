"""The errors of a network's layers as columns and sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from nnpipe.analysis.channel_errors import COARSE, TensorError, find_outliers
from nnpipe.analysis.layer_times import LayerTimes
from nnpipe.analysis.operation_costs import GraphCost
from nnpipe.report.charts import BoxGraph, GraphBox
from nnpipe.report.document import Table
from nnpipe.report.formatting import NOTHING, clean, format_share, shorten
from nnpipe.workflows.explanation.layer_errors import LayerErrors

_MOST = 3
_NAME = 60
_FEW_LARGE = 10.0  # decibels by which all values together have less noise than half of the channels


def with_errors(table: Table, errors: LayerErrors, covered: Sequence[Sequence[str]]) -> Table:
    """Return a table with the errors of the operations that each row covers."""
    worst = find_worst_errors(errors, covered)
    rows = tuple(
        (
            *row,
            NOTHING if each is None else f"{each.median:.1f}",
            NOTHING if each is None else f"{each.lowest:.1f}",
        )
        for row, each in zip(table.rows, worst, strict=True)
    )
    return replace(table, header=(*table.header, "error (dB)", "worst channel"), rows=rows)


def build_error_columns(
    errors: LayerErrors, covered: Sequence[Sequence[str]]
) -> list[dict[str, Any]]:
    """Return the errors of the operations that each row covers, for a table of plain numbers."""
    return [
        {
            "error_median_db": None if each is None else each.median,
            "error_lowest_db": None if each is None else each.lowest,
            "error_whole_db": None if each is None else each.whole,
            "worst_channels": "" if each is None else " ".join(map(str, each.worst_channels)),
        }
        for each in find_worst_errors(errors, covered)
    ]


def describe_faults(errors: LayerErrors) -> tuple[str, ...]:
    """Return what loses accuracy and why, the worst first; nothing of a sound model.

    Tensors of which half the channels are lost come first: rounding allows that loss, but few
    networks bear it.
    """
    lost = find_outliers(errors.errors)
    suspects = {each.level.operation: each.told for each in reversed(errors.suspects)}
    told = [
        f"{_describe_tensor(each)}: {_format_loss(each, suspects.get(each.source, ''))}"
        for each in lost
    ]
    known = {each.source for each in lost}
    told += [
        f"{shorten(clean(each.name), _NAME)}: {each.told}"
        for each in errors.suspects
        if each.level.operation not in known
    ]
    return tuple(told[:_MOST])


def format_error_sentence(errors: LayerErrors) -> str:
    """Return the usual error and the number of samples."""
    usual = float(np.median([each.median for each in errors.errors]))
    return (
        f"errors: signal to noise of each layer alone on {errors.samples} samples, as the median "
        f"over its channels; usually {usual:.1f} dB, of {len(errors.errors)} tensors that the "
        f"source has as well"
    )


def _describe_tensor(each: TensorError) -> str:
    names = dict.fromkeys((*each.within, each.source))
    source = ", ".join(shorten(clean(name), _NAME) for name in names)
    return f"{shorten(clean(each.operation), _NAME)} ({source} of the source)"


def _format_loss(each: TensorError, cause: str) -> str:
    if each.median >= COARSE:
        worst = f"channel {each.worst_channels[0]} has only {each.lowest:.1f} dB"
        return f"{worst}, half of the others {each.median:.1f} or more"
    if each.whole > each.median + _FEW_LARGE:
        cause = "few large channels take all its range"
    return f"half of its channels have {each.median:.1f} dB or less{f'; {cause}' if cause else ''}"


def find_worst_errors(
    errors: LayerErrors, covered: Sequence[Sequence[str]]
) -> list[TensorError | None]:
    """Return the worst error of each group of operations; ``None`` where the source has none of
    their tensors.
    """
    by_operation: dict[str, TensorError] = {}
    for each in errors.errors:
        before = by_operation.get(each.operation)
        if before is None or each.median < before.median:
            by_operation[each.operation] = each
    found = []
    for names in covered:
        there = [by_operation[name] for name in names if name in by_operation]
        found.append(min(there, key=lambda each: each.median, default=None))
    return found


MOST_BOXES = 600
"""The greatest number of boxes of a picture; one of more could not be read."""

# decibels of an error that is not shaded, and of one in the darkest shade
_CLEAN, _LOST = 60.0, 10.0


def build_time_graph(cost: GraphCost, times: LayerTimes) -> BoxGraph | None:
    """Return the graph with the operations that a runtime fuses in one box, shaded by time; None
    if it is too large.
    """
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
        detail = f"{format_share(row.share, 1)}, {row.kind}" if row else "no step of its own"
        tip = ", ".join(cost.operations[place].name for place in members)
        tip += f": {row.time_ns / 1e3:.3g} µs, {row.kernel} {row.precision}".rstrip() if row else ""
        boxes.append(GraphBox(label, detail, row.share / most if row else 0.0, tip))
    return _build_graph(
        cost, places, boxes, f"share of the time of a run, up to {format_share(most, 1)}"
    )


def build_error_graph(cost: GraphCost, errors: LayerErrors) -> BoxGraph | None:
    """Return the graph with each operation shaded by the error that it adds; ``None`` if it is
    too large.
    """
    places = [[place] for place in range(len(cost.operations))]
    boxes = []
    for each, worst in zip(
        cost.operations,
        find_worst_errors(errors, [(o.name,) for o in cost.operations]),
        strict=True,
    ):
        if worst is None:
            boxes.append(
                GraphBox(
                    each.name, each.primitive, 0.0, f"{each.name}: the source has no such tensor"
                )
            )
            continue
        shade = min(1.0, max(0.0, (_CLEAN - worst.lowest) / (_CLEAN - _LOST)))
        detail = f"{worst.median:.0f} dB, worst {worst.lowest:.0f}"
        boxes.append(
            GraphBox(each.name, detail, shade, f"{each.name}: as {worst.source} of the source")
        )
    label = (
        f"error of the worst channel: {_CLEAN:g} dB signal to noise is white, {_LOST:g} dB darkest"
    )
    return _build_graph(cost, places, boxes, label)


def _build_graph(
    cost: GraphCost, places: list[list[int]], boxes: list[GraphBox], label: str
) -> BoxGraph | None:
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
    order = _sort_boxes(len(boxes), list(arrows))
    at = {number: place for place, number in enumerate(order)}
    return BoxGraph(
        tuple(boxes[number] for number in order), tuple((at[a], at[b]) for a, b in arrows), label
    )


def _sort_boxes(count: int, arrows: list[tuple[int, int]]) -> list[int]:
    """Return the boxes in an order in which each comes after those before it; arrows of a circle
    are left out.
    """
    waiting = {number: {one for one, other in arrows if other == number} for number in range(count)}
    order: list[int] = []
    while waiting:
        ready = [number for number, before in waiting.items() if not before & waiting.keys()]
        for number in ready or [min(waiting)]:
            order.append(number)
            del waiting[number]
    return order
