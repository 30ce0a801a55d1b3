"""The kernels of a network: what a runtime computes in one step, in numbers that tell how long that takes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nnpipe.analysis.fused_costs import fused_cost, importance
from nnpipe.analysis.fused_operations import word_of
from nnpipe.analysis.operation_costs import GraphCost
from nnpipe.core.graph import Graph, Operation
from nnpipe.core.primitives import (
    AttentionPrimitive,
    ConvolutionPrimitive,
    MatrixProduct,
    PoolingPrimitive,
    Primitive,
    RecurrentPrimitive,
)

SIZES = (
    "macs", "others", "read", "written", "parameters", "values", "positions", "inside", "outside", "window", "stride",
    "groups", "dilation", "fused", "even inside", "even each", "even outside",
    "around",
)  # fmt: skip
"""The numbers that describe a kernel, see :class:`FusedKernel`."""
_EVEN = 64


@dataclass(frozen=True)
class FusedKernel:
    """What is computed in one step.

    Parameters
    ----------
    kind
        What it mainly computes, as a word; ``""`` if it is not known.
    fused
        The words of what is computed with it.
    sizes
        By :data:`SIZES`: multiply-accumulates and other operations; bytes read and written; parameters; values that it
        computes; of convolutions and products also the positions (rows), the channels that each reads (depth) and
        computes (columns), the area of the window, the product of the strides, the groups (batch), and the greatest
        dilation; the number of operations; the greatest powers of two, 64 at most, that divide the channels that each
        group reads and computes, and those of all groups, on which layouts depend; and the bytes that all operations of
        the network read, which decide what is still in the caches.  Zeros where a number does not apply.
    operations
        Names of its operations, the one that matters most first.
    """

    kind: str
    fused: tuple[str, ...]
    sizes: tuple[float, ...]
    operations: tuple[str, ...] = ()

    @property
    def macs(self) -> float:
        """Return the multiply-accumulates."""
        return self.sizes[0]

    @property
    def traffic(self) -> float:
        """Return the bytes that it reads and writes."""
        return self.sizes[2] + self.sizes[3]

    def to_json(self) -> list[Any]:
        """Return what is computed, without names, in its JSON form."""
        return [self.kind, list(self.fused), list(self.sizes)]

    @classmethod
    def from_json(cls, data: Sequence[Any]) -> FusedKernel:
        """Make the object from the output of :meth:`to_json`.

        Raises
        ------
        ValueError
            If it has another form.
        """
        kind, fused, sizes = data
        numbers = tuple(float(value) for value in sizes)
        if len(numbers) != len(SIZES) or not all(0 <= value < math.inf for value in numbers):
            raise ValueError("the sizes of a kernel are other numbers")
        return cls(str(kind), tuple(map(str, fused)), numbers)


def kernels_of(graph: Graph, cost: GraphCost, steps: Sequence[Sequence[str]]) -> tuple[FusedKernel, ...]:
    """Return the kernels of a graph.

    Parameters
    ----------
    graph, cost
        The graph with known lengths, and the cost of its operations.
    steps
        The names of the operations of each step (:func:`~nnpipe.analysis.fused_operations.grouped`).
    """
    costs = {each.name: each for each in cost.operations}
    operations = {each.name: each for each in graph.operations}
    around = sum(each.bytes_read or 0 for each in cost.operations)
    found = []
    for names in steps:
        members = sorted((costs[name] for name in names), key=importance, reverse=True)
        main, figures = operations[members[0].name], fused_cost(members, cost.stored)
        known = None not in (figures.macs, figures.others, figures.bytes_read, figures.bytes_written)
        shape = _shape(main)
        words = tuple(filter(None, (word_of(operations[each.name]) for each in members[1:])))
        sizes = (
            figures.macs or 0, figures.others or 0, figures.bytes_read or 0, figures.bytes_written or 0,
            figures.parameters, figures.values or 0, *shape, len(members), *_even(shape), around,
        )  # fmt: skip
        kind = kind_of(main) if known else ""
        numbers = (0.0,) * len(sizes) if kind == "view" else tuple(map(float, sizes))  # views of any size are alike
        found.append(FusedKernel(kind, words, numbers, tuple([each.name for each in members])))
    return tuple(found)


def kind_of(operation: Operation) -> str:
    """Return the kind of a kernel by what it mainly computes; convolutions of one, several and all channels differ."""
    first = operation.primitives[0] if operation.primitives else None
    if isinstance(first, ConvolutionPrimitive):
        return f"{first.kind} 1d" if len(first.kernel) == 1 else first.kind
    return word_of(operation).partition(" + ")[0]


def _even(shape: Sequence[float]) -> tuple[float, ...]:
    _, inside, outside, _, _, groups, _ = (int(value) for value in shape)
    counts = (inside, outside // groups if groups and outside % groups == 0 else outside, outside)
    return tuple(math.gcd(each, _EVEN) if each else 0 for each in counts)


def _shape(operation: Operation) -> tuple[float, ...]:
    """Return positions, inside, outside, window, stride, groups and dilation."""
    first: Primitive | None = operation.primitives[0] if operation.primitives else None
    if isinstance(first, ConvolutionPrimitive):
        return (
            first.positions or 0, first.in_channels // first.groups, first.out_channels, math.prod(first.kernel),
            math.prod(first.strides), first.groups, max(first.dilations, default=1),
        )  # fmt: skip
    if isinstance(first, MatrixProduct):
        return first.rows or 0, first.depth or 0, first.columns or 0, 1, 1, first.batch or 0, 1
    if isinstance(first, AttentionPrimitive):
        return first.queries or 0, first.depth or 0, first.keys or 0, 1, 1, first.batch or 0, 1
    if isinstance(first, RecurrentPrimitive):
        return (first.batch or 0) * (first.steps or 0), first.inputs or 0, first.units or 0, 1, 1, first.directions, 1
    if isinstance(first, PoolingPrimitive):
        return 0, 0, 0, math.prod(first.kernel), math.prod(first.strides), 1, 1
    return 0, 0, 0, 1, 1, 1, 1
