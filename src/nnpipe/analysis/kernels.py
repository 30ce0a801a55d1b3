"""The kernels of a network: what a runtime computes in one step, in numbers that tell how long
that takes.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nnpipe.analysis.operation_costs import GraphCost, OperationCost
from nnpipe.analysis.stored_values import StoredValues
from nnpipe.core.graph import Graph, Operation
from nnpipe.core.primitives import (
    AttentionPrimitive,
    ConvolutionPrimitive,
    MatrixProduct,
    PlainPrimitive,
    PoolingPrimitive,
    Primitive,
    RecurrentPrimitive,
    multiply_lengths,
)
from nnpipe.core.tensors import TensorSpec

_MOVING = ("quantisation", "movement", "view")


@dataclass(frozen=True)
class FusedCost:
    """The sums over operations that are computed in one step.

    Parameters
    ----------
    macs, others
        Multiply-accumulates and other operations on numbers; ``None`` if an operation has no rule.
    bytes_read, bytes_written
        The traffic from and to the step.
    parameters
        The parameters that it uses.
    live_bytes
        The most live memory of its operations.
    values
        The number of values that it computes.
    """

    macs: int | None = None
    others: int | None = None
    bytes_read: int | None = None
    bytes_written: int | None = None
    parameters: int = 0
    live_bytes: int | None = None
    values: int | None = None


def get_importance(cost: OperationCost) -> tuple[int, bool, int]:
    """Return what orders the operations of a step: the greatest says what the step mainly
    computes.
    """
    known = cost.arithmetic
    computes = cost.primitive not in _MOVING  # a sum with quantised inputs is a sum
    return (0 if known is None else known.macs, computes, 0 if known is None else known.others)


def compute_fused_cost(operations: Sequence[OperationCost], stored: StoredValues) -> FusedCost:
    """Return the sums over operations that are computed in one step.

    Parameters
    ----------
    operations
        Their costs.
    stored
        The values of the graph as they are in memory.
    """
    if not operations:
        return FusedCost()
    names = {each.name for each in operations}
    computing = [each for each in operations if each.name not in stored.passing]
    inner = {
        stored.get_origin(spec.name)
        for each in computing
        for spec in each.outputs
        if stored.users.get(stored.get_origin(spec.name), frozenset()) <= names
    }
    reads = sum(
        _count_inner_bytes(each.inputs, inner, stored) for each in operations if each.bytes_read
    )
    writes = sum(
        _count_inner_bytes(each.outputs, inner, stored) for each in operations if each.bytes_written
    )
    read = _sum_if_known([each.bytes_read for each in operations])
    written = _sum_if_known([each.bytes_written for each in operations])
    live = [each.live_bytes for each in operations if each.live_bytes is not None]
    results = [
        spec
        for each in computing or operations
        for spec in each.outputs
        if stored.get_origin(spec.name) not in inner
    ]
    return FusedCost(
        _sum_if_known(
            [None if each.arithmetic is None else each.arithmetic.macs for each in operations]
        ),
        _sum_if_known(
            [None if each.arithmetic is None else each.arithmetic.others for each in operations]
        ),
        None if read is None else max(read - reads, 0),
        None if written is None else max(written - writes, 0),
        sum(each.parameters for each in operations),
        max(live, default=None),
        sum(multiply_lengths(spec.shape) or 0 for spec in results),
    )


def _count_inner_bytes(
    specs: Sequence[TensorSpec], inner: Collection[str], stored: StoredValues
) -> int:
    """Return the bytes of the tensors that only pass between operations of the step."""
    return sum(
        stored.sizes[spec.name] or 0 for spec in specs if stored.get_origin(spec.name) in inner
    )


def _sum_if_known(values: Sequence[int | None]) -> int | None:
    return None if None in values else sum(value or 0 for value in values)


# Which operations of a graph a runtime computes in one step, by what it was seen to do with other
# graphs.
#
# A runtime fuses chains: a convolution with the normalisation, the addition and the activation
# behind it.  Where its steps were recorded, each chain is a pattern, and the same pattern in
# another graph is taken as fused there, too.

LONGEST = 16
"""Patterns of more operations are not kept: they are sequences of chains whose origin the
runtime did not tell.
"""
_SAME = {
    "relu6": "clip",
    "hardtanh": "clip",
    "relu_n1_to_1": "clip",
    "hard_swish": "hardswish",
    "silu": "swish",
    "logistic": "sigmoid",
    "leaky_relu": "leakyrelu",
    "hard_sigmoid": "hardsigmoid",
    "concatenation": "concat",
    "cat": "concat",
    "permute": "transpose",
    "addv2": "add",
    "sum": "add",
    "truediv": "div",
    "identity": "view",
}


@dataclass(frozen=True)
class FusionPattern:
    """A chain of operations that are computed in one step.

    Parameters
    ----------
    words
        What each operation computes, see :func:`get_operation_word`.
    reads
        For each operation the places of those in the pattern whose results it reads.

    Examples
    --------
    >>> FusionPattern(("convolution", "relu"), ((), (0,))).to_json()
    [['convolution', []], ['relu', [0]]]
    """

    words: tuple[str, ...]
    reads: tuple[tuple[int, ...], ...]

    def to_json(self) -> list[Any]:
        """Return the object in its JSON form."""
        return [[word, list(read)] for word, read in zip(self.words, self.reads, strict=True)]

    @classmethod
    def from_json(cls, data: Sequence[Any]) -> FusionPattern:
        """Make the object from the output of :meth:`to_json`."""
        return cls(
            tuple(str(word) for word, _ in data), tuple(tuple(map(int, read)) for _, read in data)
        )


def get_operation_word(operation: Operation) -> str:
    """Return what an operation computes, in a word that is alike for all frameworks; empty if it
    is not known.
    """
    found = []
    for each in operation.primitives:
        word = each.kind
        if isinstance(each, PlainPrimitive) and each.plain != "view":
            word = _SAME.get(each.function.lower(), each.function.lower()) or each.kind
        elif isinstance(each, PoolingPrimitive):
            word = f"{each.function} {'pooling' if each.kernel else 'over all'}"
        found.append(
            "convolution" if word in ("pointwise convolution", "depthwise convolution") else word
        )
    return " + ".join(found)


def split_into_steps(
    graph: Graph, patterns: Sequence[FusionPattern], folded: Iterable[str] = ()
) -> tuple[tuple[str, ...], ...]:
    """Return the names of the operations of each step, as far as the patterns tell; the others are
    steps alone.

    Parameters
    ----------
    graph
        The graph.
    patterns
        What the runtime fuses.  Where several match, the longest does.
    folded
        Operations that are computed when the model is loaded; they are left out.
    """
    view = _View(graph, folded)
    starting: dict[str, list[FusionPattern]] = {}
    for pattern in sorted(patterns, key=lambda each: -len(each.words)):
        starting.setdefault(pattern.words[0], []).append(pattern)
    taken: set[str] = set()
    found = []
    for operation in view.operations:
        if operation.name in taken:
            continue
        chain: Sequence[str] = (operation.name,)
        for pattern in starting.get(view.words[operation.name], ()):
            match = view.match(operation.name, pattern, taken)
            if match:
                chain = match
                break
        taken.update(chain)
        found.append(tuple(chain))
    return tuple(found)


def find_fusion_patterns(
    seen: Sequence[tuple[Graph, Sequence[Sequence[str]], Iterable[str]]],
) -> tuple[FusionPattern, ...]:
    """Return the patterns that a runtime fuses in most places where they occur.

    Parameters
    ----------
    seen
        Graphs, each with the names of the operations of every step that was recorded, and of folded
        operations.
    """
    views = [_View(graph, folded) for graph, _, folded in seen]
    chains = [
        [view.sort_chain(names) for names in steps]
        for view, (_, steps, _) in zip(views, seen, strict=True)
    ]
    patterns = {
        pattern
        for view, found in zip(views, chains, strict=True)
        for names in found
        if (pattern := view.find_pattern(names))
    }
    kept = []
    for pattern in patterns:
        places = fused = 0
        for view, found in zip(views, chains, strict=True):
            owner = {name: set(names) for names in found for name in names}
            # Either of two convolutions may be fused with their sum, so places are told apart by
            # their ends.
            ends: dict[str, bool] = {}
            inside: set[str] = set()
            for operation in view.operations:
                match = view.match(operation.name, pattern, set())
                steps = {frozenset(owner.get(name, ())) for name in match}
                if any(set(match) < each for each in steps):
                    inside.add(match[-1])  # a part of a longer chain tells nothing
                elif match:
                    ends[match[-1]] = ends.get(match[-1], False) or steps == {frozenset(match)}
            told = [fits for end, fits in ends.items() if end not in inside]
            places, fused = places + len(told), fused + sum(told)
        if 2 * fused > places:
            kept.append(pattern)
    return tuple(sorted(kept, key=lambda each: (-len(each.words), each.words)))


class _View:
    """A graph with what matching asks of it."""

    def __init__(self, graph: Graph, folded: Iterable[str]) -> None:
        left_out = set(folded)
        self.operations = [each for each in graph.operations if each.name not in left_out]
        self.words = {each.name: self._get_word(graph, each) for each in self.operations}
        self._by_name = {each.name: each for each in self.operations}
        maker = {tensor: each.name for each in self.operations for tensor in each.outputs}
        self._reads: Mapping[str, set[str]] = {
            each.name: {maker[tensor] for tensor in each.inputs if tensor in maker}
            for each in self.operations
        }
        self._users: dict[str, list[str]] = {each.name: [] for each in self.operations}
        for name, read in self._reads.items():
            for origin in read:
                self._users[origin].append(name)
        self._ends = {maker[tensor] for tensor in graph.outputs if tensor in maker}

    @staticmethod
    def _get_word(graph: Graph, operation: Operation) -> str:
        """Return the word of an operation; products of matrices with an axis of samples are
        fused with less.
        """
        word = get_operation_word(operation)
        flat = len(graph.tensors[operation.outputs[0]].shape) < 3 if operation.outputs else False
        return f"{word} of two axes" if word == "matrix product" and flat else word

    def sort_chain(self, names: Sequence[str]) -> list[str]:
        """Return the operations of a step in the order of the graph, without views if it
        computes anything.
        """
        inside = set(names)
        ordered = [each.name for each in self.operations if each.name in inside]
        return [name for name in ordered if self.words[name] != "view"] or ordered

    def find_pattern(self, names: Sequence[str]) -> FusionPattern | None:
        """Return the pattern of some operations; ``None`` unless they are one chain whose last
        result alone leaves.
        """
        inside, ordered = set(names), list(names)
        if not 1 < len(ordered) <= LONGEST or not all(self.words[name] for name in ordered):
            return None
        place = {name: number for number, name in enumerate(ordered)}
        reads = tuple(
            tuple(sorted(place[each] for each in self._reads[name] & inside)) for name in ordered
        )
        if not all(reads[1:]) or not self._is_closed(ordered):
            return None
        return FusionPattern(tuple(self.words[name] for name in ordered), reads)

    def match(self, start: str, pattern: FusionPattern, taken: set[str]) -> list[str]:
        """Return the operations that match a pattern from a first one on; none if they do not."""
        if self.words[start] != pattern.words[0]:
            return []
        chain = [start]
        for word, read in zip(pattern.words[1:], pattern.reads[1:], strict=True):
            needed = {chain[place] for place in read}
            fitting = (
                each
                for each in self._users[chain[read[0]]]
                if self.words[each] == word
                and each not in chain
                and each not in taken
                and self._reads[each] & set(chain) == needed
            )
            found = next(fitting, None)
            if found is None:
                return []
            chain.append(found)
        return chain if self._is_closed(chain) else []

    def _is_closed(self, chain: Sequence[str]) -> bool:
        """Return whether nothing but the last operation is read from outside."""
        inside = set(chain)
        return all(
            set(self._users[name]) <= inside and name not in self._ends for name in chain[:-1]
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
        By :data:`SIZES`: multiply-accumulates and other operations; bytes read and written;
        parameters; values that it computes; of convolutions and products also the positions (rows),
        the channels that each reads (depth) and computes (columns), the area of the window, the
        product of the strides, the groups (batch), and the greatest dilation; the number of
        operations; the greatest powers of two, 64 at most, that divide the channels that each group
        reads and computes, and those of all groups, on which layouts depend; and the bytes that all
        operations of the network read, which decide what is still in the caches.  Zeros where a
        number does not apply.
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


def build_kernels(
    graph: Graph, cost: GraphCost, steps: Sequence[Sequence[str]]
) -> tuple[FusedKernel, ...]:
    """Return the kernels of a graph.

    Parameters
    ----------
    graph, cost
        The graph with known lengths, and the cost of its operations.
    steps
        The names of the operations of each step
        (:func:`~nnpipe.analysis.kernels.split_into_steps`).
    """
    costs = {each.name: each for each in cost.operations}
    operations = {each.name: each for each in graph.operations}
    around = sum(each.bytes_read or 0 for each in cost.operations)
    found = []
    for names in steps:
        members = sorted((costs[name] for name in names), key=get_importance, reverse=True)
        main, figures = operations[members[0].name], compute_fused_cost(members, cost.stored)
        known = None not in (
            figures.macs,
            figures.others,
            figures.bytes_read,
            figures.bytes_written,
        )
        shape = _extract_dimensions(main)
        words = tuple(
            filter(None, (get_operation_word(operations[each.name]) for each in members[1:]))
        )
        sizes = (
            figures.macs or 0,
            figures.others or 0,
            figures.bytes_read or 0,
            figures.bytes_written or 0,
            figures.parameters,
            figures.values or 0,
            *shape,
            len(members),
            *_compute_alignment(shape),
            around,
        )
        kind = get_kernel_kind(main) if known else ""
        # views of any size are alike
        numbers = (0.0,) * len(sizes) if kind == "view" else tuple(map(float, sizes))
        found.append(FusedKernel(kind, words, numbers, tuple([each.name for each in members])))
    return tuple(found)


def get_kernel_kind(operation: Operation) -> str:
    """Return the kind of a kernel by what it mainly computes; convolutions of one, several and
    all channels differ.
    """
    first = operation.primitives[0] if operation.primitives else None
    if isinstance(first, ConvolutionPrimitive):
        return f"{first.kind} 1d" if len(first.kernel) == 1 else first.kind
    return get_operation_word(operation).partition(" + ")[0]


def _compute_alignment(shape: Sequence[float]) -> tuple[float, ...]:
    _, inside, outside, _, _, groups, _ = (int(value) for value in shape)
    counts = (inside, outside // groups if groups and outside % groups == 0 else outside, outside)
    return tuple(math.gcd(each, _EVEN) if each else 0 for each in counts)


def _extract_dimensions(operation: Operation) -> tuple[float, ...]:
    """Return positions, inside, outside, window, stride, groups and dilation."""
    first: Primitive | None = operation.primitives[0] if operation.primitives else None
    if isinstance(first, ConvolutionPrimitive):
        return (
            first.positions or 0,
            first.in_channels // first.groups,
            first.out_channels,
            math.prod(first.kernel),
            math.prod(first.strides),
            first.groups,
            max(first.dilations, default=1),
        )
    if isinstance(first, MatrixProduct):
        return first.rows or 0, first.depth or 0, first.columns or 0, 1, 1, first.batch or 0, 1
    if isinstance(first, AttentionPrimitive):
        return first.queries or 0, first.depth or 0, first.keys or 0, 1, 1, first.batch or 0, 1
    if isinstance(first, RecurrentPrimitive):
        return (
            (first.batch or 0) * (first.steps or 0),
            first.inputs or 0,
            first.units or 0,
            1,
            1,
            first.directions,
            1,
        )
    if isinstance(first, PoolingPrimitive):
        return 0, 0, 0, math.prod(first.kernel), math.prod(first.strides), 1, 1
    return 0, 0, 0, 1, 1, 1, 1
