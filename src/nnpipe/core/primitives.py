"""What operations compute, in words and numbers that are the same for every framework.

A framework's operation computes one primitive (``Conv``), several (a separable
convolution, a layer with an activation), or something that is not known here.
The primitives hold what counting and predicting costs needs and what the names
and shapes of tensors do not tell: strides, groups, the lengths that a product
sums over.  :mod:`nnpipe.analysis.operation_costs` has the rules.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, cast

from nnpipe.core.errors import SpecMismatch

Length = int | None
"""The length of an axis; ``None`` if it is free or not known."""

LARGEST = 1 << 48
"""Primitives with greater lengths are refused: they come from damaged files."""
_RANK_LIMIT = 32

PlainKind = Literal[
    "elementwise",
    "reduction",
    "normalisation",
    "softmax",
    "resize",
    "quantisation",
    "gather",
    "movement",
    "view",
]
"""Kinds of primitives that a function and the sizes of tensors describe.

``gather`` reads only the rows that are asked for.  ``movement`` copies values and computes nothing
(transpose, concatenation, padding), and ``view`` does not even copy (reshape).
"""


@dataclass(frozen=True)
class Primitive:
    """One elementary computation of an operation; the subclasses say which."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if isinstance(value, tuple) and len(value) > _RANK_LIMIT:
                raise SpecMismatch(f"{type(self).__name__}: {name} has {len(value)} axes")
            for length in value if isinstance(value, tuple) else (value,):
                if isinstance(length, int) and not 0 <= length <= LARGEST:
                    raise SpecMismatch(f"{type(self).__name__}: {name} cannot be {length}")

    @property
    def kind(self) -> str:
        """Return the word for tables and groups, such as ``"depthwise convolution"``."""
        raise NotImplementedError

    @property
    def details(self) -> str:
        """Return what the kind does not tell, such as ``"3 x 3, stride 2, 32 groups"``."""
        raise NotImplementedError

    def to_json(self) -> dict[str, Any]:
        """Return the kind and all fields in JSON form."""
        return {
            "kind": self.kind,
            **{each.name: _to_json(getattr(self, each.name)) for each in fields(self)},
        }


@dataclass(frozen=True)
class ConvolutionPrimitive(Primitive):
    """A convolution over any number of axes.

    Parameters
    ----------
    positions
        How often the kernel is applied: samples times positions in the output (in the input if
        ``transposed``).
    kernel
        The length of each axis of the kernel.
    in_channels, out_channels
        The numbers of channels of the whole input and output.
    groups
        The number of groups, of which each reads its share of the channels only.
    strides, dilations
        One number for each axis of the kernel.
    transposed
        Whether each input value adds to several outputs.

    Examples
    --------
    >>> found = ConvolutionPrimitive(112 * 112, (3, 3), 32, 32, groups=32, strides=(2, 2))
    >>> found.kind, found.details
    ('depthwise convolution', '3 x 3, stride 2, 32 groups')
    """

    positions: Length
    kernel: tuple[int, ...]
    in_channels: int
    out_channels: int
    groups: int = 1
    strides: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()
    transposed: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.groups < 1 or self.in_channels % self.groups or self.out_channels % self.groups:
            raise SpecMismatch(
                f"a convolution of {self.in_channels} to {self.out_channels} channels cannot have "
                f"{self.groups} groups"
            )

    @property
    def kind(self) -> str:
        """Return which convolution it is."""
        if self.transposed:
            return "transposed convolution"
        if self.groups == self.in_channels > 1:
            return "depthwise convolution"
        return (
            "pointwise convolution" if all(length == 1 for length in self.kernel) else "convolution"
        )

    @property
    def details(self) -> str:
        """Return the window, and the groups if there are several."""
        window = _format_window(self.kernel, self.strides, self.dilations)
        return f"{window}, {self.groups} groups" if self.groups > 1 else window


@dataclass(frozen=True)
class MatrixProduct(Primitive):
    """Products of matrices of ``rows`` by ``depth`` and ``depth`` by ``columns`` values,
    ``batch`` times.
    """

    batch: Length
    rows: Length
    depth: Length
    columns: Length

    @property
    def kind(self) -> str:
        """Return ``"matrix product"``."""
        return "matrix product"

    @property
    def details(self) -> str:
        """Return the sizes: rows, the length that is summed over, columns."""
        sizes = _format_lengths((self.rows, self.depth, self.columns))
        return sizes if self.batch == 1 else f"{_format_length(self.batch)} of {sizes}"


@dataclass(frozen=True)
class AttentionPrimitive(Primitive):
    """Scaled products of queries and keys, a softmax, and products with the values.

    Parameters
    ----------
    batch
        Samples times heads.
    queries, keys
        The lengths of the two sequences.
    depth, value_depth
        The numbers in a query and in a value, for each head.
    """

    batch: Length
    queries: Length
    keys: Length
    depth: Length
    value_depth: Length

    @property
    def kind(self) -> str:
        """Return ``"attention"``."""
        return "attention"

    @property
    def details(self) -> str:
        """Return the lengths of the sequences, and the depth."""
        sizes = f"{_format_length(self.queries)} queries, {_format_length(self.keys)} keys"
        return f"{_format_length(self.batch)} of {sizes}, {_format_length(self.depth)} deep"


@dataclass(frozen=True)
class RecurrentPrimitive(Primitive):
    """One layer of a recurrent network.

    Parameters
    ----------
    cell
        The kind of cell, with 4, 3 and 1 products for each unit and step.
    batch, steps
        The numbers of sequences and of their elements.
    inputs, units
        The numbers in an element and in the state.
    directions
        2 if the sequence is also read backwards.
    """

    cell: Literal["lstm", "gru", "rnn"]
    batch: Length
    steps: Length
    inputs: Length
    units: Length
    directions: int = 1

    @property
    def kind(self) -> str:
        """Return the kind of cell."""
        return self.cell

    @property
    def details(self) -> str:
        """Return the steps, the numbers of an element and of the state, and the directions if
        there are two.
        """
        sizes = (
            f"{_format_length(self.steps)} steps, {_format_length(self.inputs)} to "
            f"{_format_length(self.units)}"
        )
        return f"{sizes}, {self.directions} directions" if self.directions > 1 else sizes


@dataclass(frozen=True)
class PoolingPrimitive(Primitive):
    """A maximum or mean over windows of the lengths ``kernel``; the kernel has no axes if the
    whole input is one.
    """

    function: str
    kernel: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()

    @property
    def kind(self) -> str:
        """Return ``"pooling"``."""
        return "pooling"

    @property
    def details(self) -> str:
        """Return the function and the window."""
        return (
            f"{self.function} {_format_window(self.kernel, self.strides, self.dilations)}".rstrip()
        )


@dataclass(frozen=True)
class PlainPrimitive(Primitive):
    """A primitive of which a function and the sizes of its tensors say all.

    Parameters
    ----------
    plain
        What sort of computation it is.
    function
        The function in the framework's word: ``"relu"``, ``"concat"``.
    axes
        The axes that it works along; empty if they do not matter or are not known.
    epsilon
        What a normalisation adds to variances; ``None`` for others, or if it is not known.
    """

    plain: PlainKind
    function: str
    axes: tuple[int, ...] = ()
    epsilon: float | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        """Accept negative axes, which count from the last one."""
        if len(self.axes) > _RANK_LIMIT or any(
            not -_RANK_LIMIT <= axis < _RANK_LIMIT for axis in self.axes
        ):
            raise SpecMismatch(f"{self.function}: impossible axes {self.axes}")

    @property
    def kind(self) -> str:
        """Return the sort of computation."""
        return self.plain

    @property
    def details(self) -> str:
        """Return the function."""
        return self.function


def _to_json(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _format_window(
    kernel: tuple[int, ...], strides: tuple[int, ...], dilations: tuple[int, ...]
) -> str:
    told = [_format_lengths(kernel)]
    for word, lengths in (("stride", strides), ("dilation", dilations)):
        if any(length != 1 for length in lengths):
            told.append(
                f"{word} {lengths[0] if len(set(lengths)) == 1 else _format_lengths(lengths)}"
            )
    return ", ".join(each for each in told if each)


def _format_lengths(lengths: tuple[Length, ...]) -> str:
    return " x ".join(map(_format_length, lengths))


def _format_length(length: Length) -> str:
    return "?" if length is None else str(length)


# Primitives from the shapes of tensors, shared by all readers of graphs.
#
# An axis whose length is not known has the length ``None``, and what follows from it is ``None``,
# too.

Shape = tuple[Length, ...]
"""The length of each axis."""


def multiply_lengths(lengths: Iterable[Length]) -> Length:
    """Return the product of lengths; ``None`` if one is not known and none is 0."""
    found = list(lengths)
    if None in found:
        return 0 if 0 in found else None
    return math.prod(cast("list[int]", found))


def build_convolution(
    data: Shape,
    kernel: Sequence[Length],
    channels: tuple[Length, Length],
    output: Shape,
    *,
    channel_axis: int,
    groups: int = 1,
    strides: Sequence[int] = (),
    dilations: Sequence[int] = (),
    transposed: bool = False,
) -> ConvolutionPrimitive:
    """Return a convolution; ``channels`` are those of the input and output, ``data`` and ``output``
    their shapes.

    Raises
    ------
    SpecMismatch
        If the kernel or the channels are not known, or contradict each other.
    """
    if None in kernel or None in channels:
        raise SpecMismatch("a convolution whose weights have no known shape")
    placed = list(data if transposed else output)
    if not placed:
        raise SpecMismatch("a convolution of a single number")
    del placed[channel_axis]
    return ConvolutionPrimitive(
        multiply_lengths(placed),
        tuple(int(length or 0) for length in kernel),
        int(channels[0] or 0),
        int(channels[1] or 0),
        groups,
        tuple(strides) or (1,) * len(kernel),
        tuple(dilations) or (1,) * len(kernel),
        transposed,
    )


def build_matrix_product(
    first: Shape, second: Shape, flipped: tuple[bool, bool] = (False, False)
) -> MatrixProduct:
    """Return the product of the last two axes of two tensors, as ``numpy.matmul`` computes it.

    ``flipped`` tells of each whether its last two axes change places.

    Raises
    ------
    SpecMismatch
        If one is a single number.
    """
    if not first or not second:
        raise SpecMismatch("a matrix product with a single number")
    left = (1, first[0]) if len(first) == 1 else first
    right = (second[0], 1) if len(second) == 1 else second
    rows, depth = (left[-1], left[-2]) if flipped[0] else (left[-2], left[-1])
    inner, columns = (right[-1], right[-2]) if flipped[1] else (right[-2], right[-1])
    batch = multiply_lengths(broadcast(left[:-2], right[:-2]))
    return MatrixProduct(batch, rows, inner if depth is None else depth, columns)


def build_linear(data: Shape, units: Length, depth: Length) -> MatrixProduct:
    """Return the product of a tensor with a matrix of ``depth`` x ``units`` values, along its
    last ``depth`` values.
    """
    count = multiply_lengths(data)
    rows = multiply_lengths(data[:-1]) if count is None or not depth else count // depth
    return MatrixProduct(1, rows, depth, units)


def build_einsum(equation: str, shapes: Sequence[Shape]) -> Primitive:
    """Return the primitive of an Einstein sum of one or two tensors.

    Raises
    ------
    SpecMismatch
        If it has more tensors, or cannot be read.
    """
    left, _, result = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(shapes) or len(terms) > 2:
        raise SpecMismatch(f"an Einstein sum of {len(shapes)} tensors: {equation[:80]}")
    lengths: dict[str, Length] = {}
    extra: list[Shape] = []
    for term, shape in zip(terms, shapes, strict=True):
        before, dots, after = term.partition("...")
        if len(before) + len(after) > len(shape) or (not dots and len(before) != len(shape)):
            raise SpecMismatch(f"an Einstein sum that does not fit its tensors: {equation[:80]}")
        lengths |= dict(zip(before, shape, strict=False)) | dict(
            zip(after, shape[len(shape) - len(after) :], strict=True)
        )
        extra.append(shape[len(before) : len(shape) - len(after)])
    if "->" not in equation:  # in alphabetical order, those that occur once
        result = "".join(sorted(letter for letter in lengths if left.count(letter) == 1))
    if len(terms) == 1:
        return PlainPrimitive("reduction" if len(result) < len(lengths) else "movement", "einsum")
    first, second = (set(term) - {"."} for term in terms)
    kept = set(result)
    batch = [lengths[letter] for letter in first & second & kept]
    return MatrixProduct(
        multiply_lengths([*batch, *broadcast(*extra)]),
        multiply_lengths(lengths[letter] for letter in (first - second) & kept),
        multiply_lengths(lengths[letter] for letter in (first | second) - kept),
        multiply_lengths(lengths[letter] for letter in (second - first) & kept),
    )


def broadcast(first: Shape, second: Shape) -> list[Length]:
    """Return the shape of two tensors that are stretched to one shape; an unknown length against
    1 is unknown.
    """
    size = max(len(first), len(second))
    pairs = zip(
        (1,) * (size - len(first)) + first, (1,) * (size - len(second)) + second, strict=True
    )
    return [
        other if one == 1 else one if other == 1 or one is not None else other
        for one, other in pairs
    ]
