"""Nodes that copy values of an ONNX graph to another shape, chosen by the shapes alone."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from nnpipe.core.errors import NotSupported
from nnpipe.frameworks.onnx_builder import ONNXBuilder

Lengths = tuple[int, ...]

_MOST_AXES = 6  # more have too many orders to try


def reshaped(builder: ONNXBuilder, x: str, shape: Lengths, out: Lengths) -> str:
    """Return the same values with another shape, which costs nothing; one axis of ``out`` may be -1.

    Raises
    ------
    NotSupported
        If the shapes have different numbers of values.
    """
    if shape == out:
        return x
    if -1 not in out and math.prod(shape) != math.prod(out):
        raise NotSupported("shapes that contradict each other")
    return builder.add("Reshape", x, builder.constant(np.array(out, np.int64)))


def flipped(builder: ONNXBuilder, x: str, shape: Lengths) -> tuple[str, Lengths]:
    """Return the values with the last two axes exchanged, and their shape."""
    order = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
    return builder.add("Transpose", x, perm=order), tuple(shape[axis] for axis in order)


def copied(builder: ONNXBuilder, x: str, shape: Lengths, out: Lengths, turned: bool = True) -> str:
    """Return the values in another order of axes, a part of them, or more of them than there were.

    Parameters
    ----------
    builder
        Takes the nodes.
    x, shape
        The values.
    out
        The shape of the result.
    turned
        Whether it is an order of axes if there are as many values; otherwise they are moved in some other way.
    """
    size, wanted = math.prod(shape), math.prod(out)
    if size == wanted:
        order = _order(shape, out) if turned else None
        if order is not None:
            return builder.add("Transpose", x, perm=list(order))
        order = tuple(range(len(shape)))[::-1]
        return reshaped(builder, builder.add("Transpose", x, perm=list(order)), shape[::-1], out)
    if len(shape) == len(out):
        pairs = list(zip(shape, out, strict=True))
        if all(after <= before for before, after in pairs):
            return builder.add("Slice", x, *(builder.constant(np.array(each)) for each in ([0] * len(out), out)))
        if all(before in (1, after) for before, after in pairs):
            return builder.add("Expand", x, builder.constant(np.array(out, np.int64)))
        if all(after >= before for before, after in pairs):
            return builder.add("Pad", x, builder.constant(np.array(sides([b - a for a, b in pairs]), np.int64)))
    flat = reshaped(builder, x, shape, (size,))
    return reshaped(builder, copied(builder, flat, (size,), (wanted,)), (wanted,), out)


def sides(totals: Sequence[int]) -> list[int]:
    """Return the padding before all axes, and then that behind all."""
    before = [each // 2 for each in totals]
    return [*before, *(each - half for each, half in zip(totals, before, strict=True))]


def _order(shape: Lengths, out: Lengths) -> Lengths | None:
    """Return an order of axes that gives a shape, not the present one if there is another; ``None`` without any."""
    if len(shape) != len(out) or len(shape) > _MOST_AXES:
        return None
    orders = itertools.permutations(range(len(shape)))
    fitting = [order for order in orders if tuple(shape[axis] for axis in order) == out]
    others = [order for order in fitting if list(order) != sorted(order)]
    return next(iter(others or fitting), None)
