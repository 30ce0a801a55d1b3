"""Primitives from the shapes of tensors, shared by all readers of graphs.

An axis whose length is not known has the length ``None``, and what follows from it is ``None``, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import cast

from nnpipe.core.errors import SpecMismatch
from nnpipe.core.primitives import ConvolutionPrimitive, Length, MatrixProduct, PlainPrimitive, Primitive

Shape = tuple[Length, ...]
"""The length of each axis."""


def product(lengths: Iterable[Length]) -> Length:
    """Return the product of lengths; ``None`` if one is not known and none is 0."""
    found = list(lengths)
    if None in found:
        return 0 if 0 in found else None
    return math.prod(cast("list[int]", found))


def convolution(
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
    """Return a convolution; ``channels`` are those of the input and output, ``data`` and ``output`` their shapes.

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
        product(placed),
        tuple(int(length or 0) for length in kernel),
        int(channels[0] or 0),
        int(channels[1] or 0),
        groups,
        tuple(strides) or (1,) * len(kernel),
        tuple(dilations) or (1,) * len(kernel),
        transposed,
    )


def matrix_product(first: Shape, second: Shape, flipped: tuple[bool, bool] = (False, False)) -> MatrixProduct:
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
    batch = product(broadcast(left[:-2], right[:-2]))
    return MatrixProduct(batch, rows, inner if depth is None else depth, columns)


def linear(data: Shape, units: Length, depth: Length) -> MatrixProduct:
    """Return the product of a tensor with a matrix of ``depth`` x ``units`` values, along its last ``depth`` values."""
    count = product(data)
    rows = product(data[:-1]) if count is None or not depth else count // depth
    return MatrixProduct(1, rows, depth, units)


def einsum(equation: str, shapes: Sequence[Shape]) -> Primitive:
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
        product([*batch, *broadcast(*extra)]),
        product(lengths[letter] for letter in (first - second) & kept),
        product(lengths[letter] for letter in (first | second) - kept),
        product(lengths[letter] for letter in (second - first) & kept),
    )


def broadcast(first: Shape, second: Shape) -> list[Length]:
    """Return the shape of two tensors that are stretched to one shape; an unknown length against 1 is unknown."""
    size = max(len(first), len(second))
    pairs = zip((1,) * (size - len(first)) + first, (1,) * (size - len(second)) + second, strict=True)
    return [other if one == 1 else one if other == 1 or one is not None else other for one, other in pairs]
