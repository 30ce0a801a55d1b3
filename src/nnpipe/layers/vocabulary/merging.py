"""Layers that make one tensor of several."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import reduce
from typing import Any, ClassVar

from nnpipe.layers.problems import Misfit
from nnpipe.layers.vocabulary.field_table import row
from nnpipe.layers.vocabulary.layer import Layer, Shape, TorchParts
from nnpipe.layers.vocabulary.value_kinds import FlagKind, IntegersKind


class _Merge(Layer):
    takes: ClassVar[tuple[int, int | None]] = (2, None)
    grouped: ClassVar[bool] = True


class _Elementwise(_Merge):
    pair: ClassVar[Callable[[Any, Any], Any]]

    def _shapes(self, *shapes: Shape) -> tuple[Shape, ...]:
        return (reduce(_broadcast, shapes),)

    def _torch(self, *shapes: Shape) -> TorchParts:
        pair = type(self).pair
        return TorchParts(lambda module, *xs: reduce(pair, _aligned(xs)))


class Add(_Elementwise):
    """The sum of several tensors, element by element."""

    keras: ClassVar[str] = "Add"
    pair: ClassVar[Callable[[Any, Any], Any]] = staticmethod(operator.add)


class Subtract(_Elementwise):
    """The difference of two tensors, element by element."""

    keras: ClassVar[str] = "Subtract"
    takes: ClassVar[tuple[int, int | None]] = (2, 2)
    pair: ClassVar[Callable[[Any, Any], Any]] = staticmethod(operator.sub)


class Multiply(_Elementwise):
    """The product of several tensors, element by element."""

    keras: ClassVar[str] = "Multiply"
    pair: ClassVar[Callable[[Any, Any], Any]] = staticmethod(operator.mul)


class Average(_Elementwise):
    """The mean of several tensors, element by element."""

    keras: ClassVar[str] = "Average"
    pair: ClassVar[Callable[[Any, Any], Any]] = staticmethod(operator.add)

    def _torch(self, *shapes: Shape) -> TorchParts:
        return TorchParts(lambda module, *xs: reduce(operator.add, _aligned(xs)) / len(xs))


class Maximum(_Elementwise):
    """The maximum of several tensors, element by element."""

    keras: ClassVar[str] = "Maximum"
    pair: ClassVar[Callable[[Any, Any], Any]] = staticmethod(lambda a, b: a.maximum(b))


class Minimum(_Elementwise):
    """The minimum of several tensors, element by element."""

    keras: ClassVar[str] = "Minimum"
    pair: ClassVar[Callable[[Any, Any], Any]] = staticmethod(lambda a, b: a.minimum(b))


class Concatenate(_Merge):
    """Joins tensors along an axis.

    Parameters
    ----------
    axis
        Axis along which the tensors are joined.
    """

    keras: ClassVar[str] = "Concatenate"
    takes: ClassVar[tuple[int, int | None]] = (1, None)
    axis: int = row(IntegersKind(single=True), default=-1)

    def _shapes(self, *shapes: Shape) -> tuple[Shape, ...]:
        axis, rank = self.axis, len(shapes[0])
        if isinstance(axis, tuple) or not -rank <= axis < rank:
            raise Misfit(f"has the axis {axis}, which {shapes[0]} lacks")
        axis %= rank
        for shape in shapes[1:]:
            alike = len(shape) == rank and all(
                a is None or b is None or a == b
                for i, (a, b) in enumerate(zip(shape, shapes[0], strict=True))
                if i != axis
            )
            if not alike:
                raise Misfit(f"cannot join {shape} to {shapes[0]} along axis {axis}")
        lengths = [shape[axis] for shape in shapes]
        total = None if None in lengths else sum(length or 0 for length in lengths)
        extents = [next((s[i] for s in shapes if s[i] is not None), None) for i in range(rank)]
        return (tuple(total if i == axis else extent for i, extent in enumerate(extents)),)

    def _torch(self, *shapes: Shape) -> TorchParts:
        import torch

        axis = self.axis
        return TorchParts(lambda module, *xs: torch.cat(xs, axis))


class Dot(_Merge):
    """The dot product of two tensors along one axis of each.

    Parameters
    ----------
    axes
        Axis of each tensor along which products are summed; one integer stands for both.
    normalize
        Whether vectors along the axes are scaled to length 1 first, which gives the cosine similarity.
    """

    keras: ClassVar[str] = "Dot"
    takes: ClassVar[tuple[int, int | None]] = (2, 2)
    axes: int | tuple[int, ...] = row(IntegersKind(single=True))
    normalize: bool = row(FlagKind(), default=False)

    def _pair(self, *shapes: Shape) -> tuple[int, int]:
        axes = self.axes if isinstance(self.axes, tuple) else (self.axes, self.axes)
        if len(axes) != 2:
            raise Misfit(f"has the axes {axes}; it takes one for each input")
        found = []
        for axis, shape in zip(axes, shapes, strict=True):
            if not -len(shape) < axis < len(shape) or axis % len(shape) == 0:
                raise Misfit(f"has the axis {axis}, which {shape} lacks")
            found.append(axis % len(shape))
        return found[0], found[1]

    def _shapes(self, *shapes: Shape) -> tuple[Shape, ...]:
        a, b = shapes
        i, j = self._pair(a, b)
        if a[i] is not None and b[j] is not None and a[i] != b[j]:
            raise Misfit(f"cannot multiply axis {i} of {a} with axis {j} of {b}")
        rest = (*a[1:i], *a[i + 1 :], *b[1:j], *b[j + 1 :])
        return ((a[0], *(rest or (1,))),)

    def _torch(self, *shapes: Shape) -> TorchParts:
        i, j = self._pair(*shapes)
        normalize = self.normalize

        def call(module: Any, a: Any, b: Any) -> Any:
            if normalize:
                a, b = (x * x.square().sum(k, keepdim=True).clamp_min(1e-12).rsqrt() for x, k in ((a, i), (b, j)))
            left, right = a.movedim(i, -1), b.movedim(j, -1)
            inner = left.flatten(1, -2) if left.ndim > 2 else left.unsqueeze(1)
            outer = right.flatten(1, -2) if right.ndim > 2 else right.unsqueeze(1)
            extents = (*left.shape[1:-1], *right.shape[1:-1]) or (1,)
            return (inner @ outer.transpose(1, 2)).reshape(a.shape[0], *extents)

        return TorchParts(call)


def _broadcast(a: Shape, b: Shape) -> Shape:
    """Return the shape of two tensors merged element by element; the shorter shape gets axes after the batch axis."""
    if len(a) < len(b):
        a, b = b, a
    b = (b[0], *[1] * (len(a) - len(b)), *b[1:])
    found: list[int | None] = []
    for place, (x, y) in enumerate(zip(a, b, strict=True)):
        if x is not None and y is not None and x != y and (place == 0 or 1 not in (x, y)):
            raise Misfit(f"cannot merge {a} and {b}")
        if place == 0:
            found.append(x if x is not None else y)
        else:
            found.append(y if x == 1 else x if y == 1 else x if x is not None else y)
    return tuple(found)


def _aligned(xs: tuple[Any, ...]) -> list[Any]:
    rank = max(x.ndim for x in xs)
    return [x.reshape(x.shape[0], *[1] * (rank - x.ndim), *x.shape[1:]) if x.ndim < rank else x for x in xs]
