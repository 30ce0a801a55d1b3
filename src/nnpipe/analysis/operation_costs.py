"""What each operation of a graph costs: arithmetic, memory traffic, parameters and live memory.

Everything follows from the graph alone, so one network has the same figures in every framework.  What has no rule, or
an axis of unknown length, has no figures (``None``); it is never taken as 0.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from nnpipe.analysis.graph_constants import GraphConstants, constants_of
from nnpipe.analysis.live_memory import live_memory
from nnpipe.analysis.operation_arithmetic import Arithmetic, arithmetic_of
from nnpipe.analysis.stored_values import StoredValues, stored_values
from nnpipe.core.graph import Graph, Operation
from nnpipe.core.primitive_shapes import product
from nnpipe.core.primitives import Length, Primitive
from nnpipe.core.tensors import TensorSpec

# Kinds whose constants are indices, shapes and paddings, not parameters.
_WITHOUT_PARAMETERS = {"movement", "view", "resize", "reduction", "pooling", "softmax"}
UNKNOWN_KIND = "no rule"
"""The kind of operations that are not known here."""


@dataclass(frozen=True)
class OperationCost:
    """What one operation costs for one batch.

    Parameters
    ----------
    name, kind, layer
        Those of the operation; ``kind`` is the framework's.
    primitive
        The kind of what it mainly computes, in common words; :data:`UNKNOWN_KIND` if that is not known.
    inputs, outputs
        The tensors that it reads, without constants, and those that it writes.
    arithmetic
        Multiply-accumulates and other operations.
    bytes_read, bytes_written
        The memory traffic if every value is read and written once: values, weights and results, in the types in which
        they are in memory.
    parameters
        The numbers that are stored with the model and that it uses.
    live_bytes
        All values that exist while it runs, see :func:`~nnpipe.analysis.live_memory.live_memory`.
    computes
        The primitives: what it mainly computes, and what is fused to it; empty if that is not known.
    """

    name: str
    kind: str
    layer: str
    primitive: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    arithmetic: Arithmetic | None
    bytes_read: int | None
    bytes_written: int | None
    parameters: int
    live_bytes: int | None
    computes: tuple[Primitive, ...] = ()

    @property
    def details(self) -> str:
        """Return the window, strides, groups or sizes of what it mainly computes; empty if that is not known."""
        return self.computes[0].details if self.computes else ""

    @property
    def traffic(self) -> int | None:
        """Return the bytes that are read and written."""
        known = self.bytes_read is not None and self.bytes_written is not None
        return (self.bytes_read or 0) + (self.bytes_written or 0) if known else None

    @property
    def intensity(self) -> float | None:
        """Return the operations for each byte of traffic (arithmetic intensity); ``None`` without traffic."""
        return self.arithmetic.operations / self.traffic if self.arithmetic and self.traffic else None


@dataclass(frozen=True)
class GraphCost:
    """The costs of a graph.

    Attributes
    ----------
    operations
        The cost of each operation, in the order of the graph, without those that are folded.
    folded
        Names of operations on constants, which are computed when a model is loaded.
    parameters
        All numbers that are stored with the model and used, each tensor once.
    stored
        The values as they are in memory.
    """

    operations: tuple[OperationCost, ...]
    folded: tuple[str, ...]
    parameters: int
    stored: StoredValues = field(repr=False)

    @property
    def arithmetic(self) -> Arithmetic:
        """Return the sum over all operations that have a rule."""
        return sum((each.arithmetic for each in self.operations if each.arithmetic is not None), Arithmetic())

    @property
    def unknown(self) -> tuple[OperationCost, ...]:
        """Return the operations that have no rule, or tensors of unknown size: totals do not include them."""
        return tuple(each for each in self.operations if each.arithmetic is None)

    @property
    def live_bytes(self) -> tuple[int, ...]:
        """Return the live memory while each operation runs; empty if a size is not known."""
        known = tuple(each.live_bytes for each in self.operations if each.live_bytes is not None)
        return known if len(known) == len(self.operations) else ()

    @property
    def peak(self) -> OperationCost | None:
        """Return the operation with the most live memory; ``None`` if a size is not known, or there is none."""
        return max(self.operations, key=lambda each: each.live_bytes or 0) if self.live_bytes else None


def graph_cost(graph: Graph, apart: Collection[str] = ()) -> GraphCost:
    """Return the costs of a graph whose lengths are known (:meth:`~nnpipe.LiveModel.get_sized_graph`).

    Parameters
    ----------
    graph
        The graph.
    apart
        Names of conversions to and from 8 bits that a runtime does not fuse with other operations; by default it fuses
        all that it can (:mod:`nnpipe.analysis.stored_values`).
    """
    constants = constants_of(graph)
    stored = stored_values(graph, constants, apart)
    live = live_memory(graph, constants, stored)
    counts = {name: product(spec.shape) for name, spec in graph.tensors.items()}
    found, used = [], set()
    for operation in graph.operations:
        if operation.name in constants.folded:
            continue
        parameters = _parameters(operation, graph, constants)
        used |= parameters
        own = sum(counts[name] or 0 for name in parameters)
        found.append(_cost(operation, graph, constants, stored, counts, own, live[operation.name]))
    folded = tuple(operation.name for operation in graph.operations if operation.name in constants.folded)
    return GraphCost(tuple(found), folded, sum(counts[name] or 0 for name in used), stored)


def _cost(
    operation: Operation,
    graph: Graph,
    constants: GraphConstants,
    stored: StoredValues,
    counts: Mapping[str, Length],
    parameters: int,
    live: int | None,
) -> OperationCost:
    values = [name for name in operation.inputs if name not in constants.stored]
    read: int | None = 0
    written: int | None = 0
    if operation.name not in stored.passing:
        moved = [stored.sizes[name] for name in values] + _stored_sizes(operation, stored, constants)
        read = None if None in moved else sum(filter(None, moved))
        written = _sum(stored.sizes[name] for name in operation.outputs)
    bytes_read, bytes_written = _traffic(operation, read, written)
    return OperationCost(
        operation.name,
        operation.kind,
        operation.layer,
        operation.primitives[0].kind if operation.primitives else UNKNOWN_KIND,
        tuple(graph.tensors[name] for name in values),
        tuple(graph.tensors[name] for name in operation.outputs),
        _arithmetic(operation, constants, counts),
        bytes_read,
        bytes_written,
        parameters,
        live,
        operation.primitives,
    )


def _arithmetic(operation: Operation, constants: GraphConstants, counts: Mapping[str, Length]) -> Arithmetic | None:
    """Return the sum over the operation's primitives; ``None`` if one has no rule."""
    # A constant may be larger than what is computed from it, but a rule starts from the values.
    ordered = sorted(operation.inputs, key=constants.stored.__contains__)
    if len(operation.primitives) > 1:  # what is fused to an operation works on its result alone
        ordered = ordered[:1]
    inputs = tuple([counts[name] for name in ordered])
    outputs = tuple([counts[name] for name in operation.outputs])
    found = [arithmetic_of(primitive, inputs, outputs) for primitive in operation.primitives]
    known = [each for each in found if each is not None]
    return sum(known, Arithmetic()) if found and len(known) == len(found) else None


def _traffic(operation: Operation, read: int | None, written: int | None) -> tuple[int | None, int | None]:
    if operation.unlisted or not operation.primitives:
        return None, None
    kinds = {each.kind for each in operation.primitives}
    if kinds == {"view"}:
        return 0, 0
    if kinds <= {"gather", "movement"} and None not in (read, written):
        return min(read or 0, written or 0), written  # only what is copied is read
    return read, written


def _stored_sizes(operation: Operation, stored: StoredValues, constants: GraphConstants) -> list[int | None]:
    """Return the bytes of each constant of an operation, in the type in which the file stores it if that is smaller."""
    found: list[int | None] = []
    for name in operation.inputs:
        if name in constants.stored:
            own, roots = stored.sizes[name], constants.stored[name]
            origin = own if roots == (name,) else _sum(stored.sizes[root] for root in roots)
            found.append(own if origin is None or own is None else min(own, origin))
    return found


def _parameters(operation: Operation, graph: Graph, constants: GraphConstants) -> set[str]:
    """Return the stored tensors with the parameters of an operation."""
    kinds = {each.kind for each in operation.primitives}
    if kinds <= _WITHOUT_PARAMETERS:  # also those that are not known
        return set()
    read = operation.inputs[:1] if kinds == {"quantisation"} else operation.inputs
    roots = {root for name in read for root in constants.stored.get(name, ())}
    if not roots:
        return roots
    if kinds <= {"elementwise", "gather"}:
        roots = {root for root in roots if _is_weight(graph.tensors[root])}
    specs = [graph.tensors[root] for root in roots]
    if any(_is_byte(spec) and len(spec.shape) > 1 and spec.name in operation.inputs for spec in specs):
        # Beside weights that are taken as integers, real numbers are scales, and short lists of 8 bits zero points.
        specs = [spec for spec in specs if spec.dtype == "int32" or (_is_byte(spec) and len(spec.shape) > 1)]
    return {spec.name for spec in specs if spec.dtype not in ("int64", "bool", "string")}


def _is_byte(spec: TensorSpec) -> bool:
    return spec.dtype in ("int8", "uint8")


def _is_weight(spec: TensorSpec) -> bool:
    """Return whether a constant of arithmetic is a parameter: an array of real numbers, no single number or index."""
    real = spec.dtype.startswith(("float", "bfloat")) or spec.quantised or _is_byte(spec)
    return real and math.prod(length or 0 for length in spec.shape) > 1


def _sum(sizes: Iterable[int | None]) -> int | None:
    found = list(sizes)
    return None if None in found else sum(filter(None, found))
