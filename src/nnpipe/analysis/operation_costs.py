"""What each operation of a graph costs: arithmetic, memory traffic, parameters and live memory.

Everything follows from the graph alone, so one network has the same figures in every framework.
What has no rule, or an axis of unknown length, has no figures (``None``); it is never taken as 0.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from nnpipe.analysis.stored_values import (
    GraphConstants,
    StoredValues,
    build_stored_values,
    find_constants,
)
from nnpipe.core.graph import Graph, Operation
from nnpipe.core.primitives import (
    AttentionPrimitive,
    ConvolutionPrimitive,
    Length,
    MatrixProduct,
    PlainPrimitive,
    PoolingPrimitive,
    Primitive,
    RecurrentPrimitive,
    multiply_lengths,
)
from nnpipe.core.tensors import TensorSpec

# How much arithmetic a primitive is: multiply-accumulates and other operations on single numbers.
#
# A multiply-accumulate (MAC) counts where products are summed: in convolutions, matrix products,
# recurrent layers and attention.  Everything else is counted in operations, of which a MAC is two.
# A bias is the first summand of a sum and costs nothing; a function such as ``exp`` is one
# operation.

_GATES = {"lstm": 4, "gru": 3, "rnn": 1}
# Operations besides the products, for each unit and step: activations, products with gates, and
# sums.
_CELL_OPERATIONS = {"lstm": 9, "gru": 8, "rnn": 1}
_SOFTMAX = 4  # maximum, difference and exponential, sum, quotient
_NORMALISATION = {"batch": 2, "rms": 4, "l2": 3, "local response": 6}
_USUAL_NORMALISATION = 7  # mean, difference, square, its mean, quotient, scale, shift
# Operations for each value of the output, by the number of neighbours that each axis takes.
_NEIGHBOURS = {"linear": 2, "cubic": 4}


@dataclass(frozen=True)
class Arithmetic:
    """The arithmetic of one computation.

    Parameters
    ----------
    macs
        Multiply-accumulates.
    others
        Further operations on single numbers: additions, comparisons, exponentials.

    Examples
    --------
    >>> Arithmetic(1000, 10).operations
    2010
    """

    macs: int = 0
    others: int = 0

    @property
    def operations(self) -> int:
        """Return all operations, two for each multiply-accumulate (known as FLOPs)."""
        return 2 * self.macs + self.others

    def __add__(self, other: Arithmetic) -> Arithmetic:
        return Arithmetic(self.macs + other.macs, self.others + other.others)


def compute_arithmetic(
    primitive: Primitive, inputs: tuple[Length, ...], outputs: tuple[Length, ...]
) -> Arithmetic | None:
    """Return the arithmetic of a primitive; ``None`` if it has no rule, or a length is not known.

    Parameters
    ----------
    primitive
        What is computed.
    inputs, outputs
        The number of values in each tensor that the operation reads and writes.
    """
    macs: Length = 0
    others: Length = 0
    if isinstance(primitive, ConvolutionPrimitive):
        shared = primitive.in_channels // primitive.groups * primitive.out_channels
        macs = multiply_lengths((primitive.positions, shared, *primitive.kernel))
    elif isinstance(primitive, MatrixProduct):
        macs = multiply_lengths(
            (primitive.batch, primitive.rows, primitive.depth, primitive.columns)
        )
    elif isinstance(primitive, AttentionPrimitive):
        scores = multiply_lengths((primitive.batch, primitive.queries, primitive.keys))
        widths = (
            None
            if primitive.depth is None or primitive.value_depth is None
            else (primitive.depth + primitive.value_depth)
        )
        macs, others = multiply_lengths((scores, widths)), multiply_lengths((scores, _SOFTMAX + 1))
    elif isinstance(primitive, RecurrentPrimitive):
        cells = multiply_lengths(
            (primitive.batch, primitive.steps, primitive.directions, primitive.units)
        )
        width = (
            None
            if primitive.inputs is None or primitive.units is None
            else primitive.inputs + primitive.units
        )
        macs = multiply_lengths((cells, _GATES[primitive.cell], width))
        others = multiply_lengths((cells, _CELL_OPERATIONS[primitive.cell]))
    elif isinstance(primitive, PoolingPrimitive):
        others = multiply_lengths((outputs[0] if outputs else None, *primitive.kernel))
        if not primitive.kernel:
            others = inputs[0] if inputs else None
    elif isinstance(primitive, PlainPrimitive):
        others = _count_plain_operations(primitive, inputs, outputs)
    else:
        return None
    return None if macs is None or others is None else Arithmetic(macs, others)


def _count_plain_operations(
    primitive: PlainPrimitive, inputs: tuple[Length, ...], outputs: tuple[Length, ...]
) -> Length:
    written = outputs[0] if outputs else 0
    read = inputs[0] if inputs else 0
    if primitive.plain == "elementwise":
        return multiply_lengths((written, max(1, len(inputs) - 1)))
    if primitive.plain == "reduction":
        return read
    if primitive.plain == "softmax":
        return multiply_lengths((read, _SOFTMAX))
    if primitive.plain == "normalisation":
        return multiply_lengths(
            (read, _NORMALISATION.get(primitive.function, _USUAL_NORMALISATION))
        )
    if primitive.plain == "quantisation":
        return multiply_lengths((written, 2))
    if primitive.plain == "resize":
        neighbours = _NEIGHBOURS.get(primitive.function)
        # Without a known number of axes, pictures are resized along two.
        return (
            0
            if neighbours is None
            else multiply_lengths(
                (written, 2 * math.prod([neighbours] * (len(primitive.axes) or 2)))
            )
        )
    return 0  # gather, movement and view compute nothing


def compute_live_memory(
    graph: Graph, constants: GraphConstants, stored: StoredValues
) -> Mapping[str, int | None]:
    """Return the bytes of all inputs and computed values that exist while each operation runs, by
    its name.

    Operations run in the order of the graph.  A value exists from the operation that computes it
    (an input of the graph from the start) to the last one that reads it; outputs of the graph exist
    to the end.  Views share the memory of what they show.  Nothing is fused or computed in place,
    and weights are not included.

    Parameters
    ----------
    graph, constants
        The graph, with all lengths known, and its constants; an operation has ``None`` while a
        value of unknown size exists.
    stored
        Its values as they are in memory.
    """
    steps = [operation for operation in graph.operations if operation.name not in constants.folded]
    begin = {name: 0 for name in graph.inputs if name not in constants.stored}
    end = dict(begin)
    for step, operation in enumerate(steps):
        for name in map(stored.get_origin, operation.inputs):
            if name in begin:
                end[name] = step
        for name in map(stored.get_origin, operation.outputs):
            begin.setdefault(name, step)
            end[name] = max(step, end.get(name, step))
    for name in map(stored.get_origin, graph.outputs):
        if name in begin:
            end[name] = len(steps) - 1
    change, unknown = [0] * (len(steps) + 1), [0] * (len(steps) + 1)
    for name, first in begin.items():
        size = stored.sizes.get(name)
        counted, amount = (unknown, 1) if size is None else (change, size)
        counted[first] += amount
        counted[end[name] + 1] -= amount
    found: dict[str, int | None] = {}
    live = without = 0
    for step, operation in enumerate(steps):
        live, without = live + change[step], without + unknown[step]
        found[operation.name] = None if without else live
    return found


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
        The kind of what it mainly computes, in common words; :data:`UNKNOWN_KIND` if that is not
        known.
    inputs, outputs
        The tensors that it reads, without constants, and those that it writes.
    arithmetic
        Multiply-accumulates and other operations.
    bytes_read, bytes_written
        The memory traffic if every value is read and written once: values, weights and results, in
        the types in which they are in memory.
    parameters
        The numbers that are stored with the model and that it uses.
    live_bytes
        All values that exist while it runs, see
        :func:`~nnpipe.analysis.operation_costs.compute_live_memory`.
    computes
        The primitives: what it mainly computes, and what is fused to it; empty if that is not
        known.
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
        """Return the window, strides, groups or sizes of what it mainly computes; empty if that
        is not known.
        """
        return self.computes[0].details if self.computes else ""

    @property
    def traffic(self) -> int | None:
        """Return the bytes that are read and written."""
        known = self.bytes_read is not None and self.bytes_written is not None
        return (self.bytes_read or 0) + (self.bytes_written or 0) if known else None

    @property
    def intensity(self) -> float | None:
        """Return the operations for each byte of traffic (arithmetic intensity); ``None``
        without traffic.
        """
        return (
            self.arithmetic.operations / self.traffic if self.arithmetic and self.traffic else None
        )


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
        return sum(
            (each.arithmetic for each in self.operations if each.arithmetic is not None),
            Arithmetic(),
        )

    @property
    def unknown(self) -> tuple[OperationCost, ...]:
        """Return the operations that have no rule, or tensors of unknown size: totals do not
        include them.
        """
        return tuple(each for each in self.operations if each.arithmetic is None)

    @property
    def live_bytes(self) -> tuple[int, ...]:
        """Return the live memory while each operation runs; empty if a size is not known."""
        known = tuple(each.live_bytes for each in self.operations if each.live_bytes is not None)
        return known if len(known) == len(self.operations) else ()

    @property
    def peak(self) -> OperationCost | None:
        """Return the operation with the most live memory; ``None`` if a size is not known, or
        there is none.
        """
        return (
            max(self.operations, key=lambda each: each.live_bytes or 0) if self.live_bytes else None
        )


def compute_graph_cost(graph: Graph, apart: Collection[str] = ()) -> GraphCost:
    """Return the costs of a graph whose lengths are known
    (:meth:`~nnpipe.LiveModel.get_sized_graph`).

    Parameters
    ----------
    graph
        The graph.
    apart
        Names of conversions to and from 8 bits that a runtime does not fuse with other operations;
        by default it fuses all that it can (:mod:`nnpipe.analysis.stored_values`).
    """
    constants = find_constants(graph)
    stored = build_stored_values(graph, constants, apart)
    live = compute_live_memory(graph, constants, stored)
    counts = {name: multiply_lengths(spec.shape) for name, spec in graph.tensors.items()}
    found, used = [], set()
    for operation in graph.operations:
        if operation.name in constants.folded:
            continue
        parameters = _find_parameters(operation, graph, constants)
        used |= parameters
        own = sum(counts[name] or 0 for name in parameters)
        found.append(
            _compute_operation_cost(
                operation, graph, constants, stored, counts, own, live[operation.name]
            )
        )
    folded = tuple(
        operation.name for operation in graph.operations if operation.name in constants.folded
    )
    return GraphCost(tuple(found), folded, sum(counts[name] or 0 for name in used), stored)


def _compute_operation_cost(
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
        moved = [stored.sizes[name] for name in values] + _get_constant_sizes(
            operation, stored, constants
        )
        read = None if None in moved else sum(filter(None, moved))
        written = _sum_if_known(stored.sizes[name] for name in operation.outputs)
    bytes_read, bytes_written = _compute_traffic(operation, read, written)
    return OperationCost(
        operation.name,
        operation.kind,
        operation.layer,
        operation.primitives[0].kind if operation.primitives else UNKNOWN_KIND,
        tuple(graph.tensors[name] for name in values),
        tuple(graph.tensors[name] for name in operation.outputs),
        _compute_operation_arithmetic(operation, constants, counts),
        bytes_read,
        bytes_written,
        parameters,
        live,
        operation.primitives,
    )


def _compute_operation_arithmetic(
    operation: Operation, constants: GraphConstants, counts: Mapping[str, Length]
) -> Arithmetic | None:
    """Return the sum over the operation's primitives; ``None`` if one has no rule."""
    # A constant may be larger than what is computed from it, but a rule starts from the values.
    ordered = sorted(operation.inputs, key=constants.stored.__contains__)
    if len(operation.primitives) > 1:  # what is fused to an operation works on its result alone
        ordered = ordered[:1]
    inputs = tuple([counts[name] for name in ordered])
    outputs = tuple([counts[name] for name in operation.outputs])
    found = [compute_arithmetic(primitive, inputs, outputs) for primitive in operation.primitives]
    known = [each for each in found if each is not None]
    return sum(known, Arithmetic()) if found and len(known) == len(found) else None


def _compute_traffic(
    operation: Operation, read: int | None, written: int | None
) -> tuple[int | None, int | None]:
    if operation.unlisted or not operation.primitives:
        return None, None
    kinds = {each.kind for each in operation.primitives}
    if kinds == {"view"}:
        return 0, 0
    if kinds <= {"gather", "movement"} and None not in (read, written):
        return min(read or 0, written or 0), written  # only what is copied is read
    return read, written


def _get_constant_sizes(
    operation: Operation, stored: StoredValues, constants: GraphConstants
) -> list[int | None]:
    """Return the bytes of each constant of an operation, in the type in which the file stores it
    if that is smaller.
    """
    found: list[int | None] = []
    for name in operation.inputs:
        if name in constants.stored:
            own, roots = stored.sizes[name], constants.stored[name]
            origin = (
                own if roots == (name,) else _sum_if_known(stored.sizes[root] for root in roots)
            )
            found.append(own if origin is None or own is None else min(own, origin))
    return found


def _find_parameters(operation: Operation, graph: Graph, constants: GraphConstants) -> set[str]:
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
    if any(
        _is_byte(spec) and len(spec.shape) > 1 and spec.name in operation.inputs for spec in specs
    ):
        # Beside weights that are taken as integers, real numbers are scales, and short lists of 8
        # bits zero points.
        specs = [
            spec
            for spec in specs
            if spec.dtype == "int32" or (_is_byte(spec) and len(spec.shape) > 1)
        ]
    return {spec.name for spec in specs if spec.dtype not in ("int64", "bool", "string")}


def _is_byte(spec: TensorSpec) -> bool:
    return spec.dtype in ("int8", "uint8")


def _is_weight(spec: TensorSpec) -> bool:
    """Return whether a constant of arithmetic is a parameter: an array of real numbers, no
    single number or index.
    """
    real = spec.dtype.startswith(("float", "bfloat")) or spec.quantised or _is_byte(spec)
    return real and math.prod(length or 0 for length in spec.shape) > 1


def _sum_if_known(sizes: Iterable[int | None]) -> int | None:
    found = list(sizes)
    return None if None in found else sum(filter(None, found))
