"""Layers that rearrange or rescale values, and layers that make one tensor of several."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable
from functools import reduce
from typing import Any, ClassVar

from nnpipe.layers.problems import Misfit
from nnpipe.layers.vocabulary.field_table import row
from nnpipe.layers.vocabulary.layer import Layer, Shape, TorchParts, declare_data_format
from nnpipe.layers.vocabulary.regularisers import L1L2
from nnpipe.layers.vocabulary.value_kinds import (
    FlagKind,
    IntegerKind,
    IntegersKind,
    NumberKind,
    NumbersKind,
)
from nnpipe.layers.vocabulary.windows import move_channels_last


class Identity(Layer):
    """Returns its input unchanged; gives a tensor a name."""

    keras: ClassVar[str] = "Identity"

    def _build_torch(self, *shapes: Shape) -> TorchParts:
        return TorchParts(lambda module, x: x)


class Rescaling(Layer):
    """Multiplies by a scale and adds an offset.

    Parameters
    ----------
    scale
        Factor, or one factor for each entry of the last axis.
    offset
        Number added after scaling, or one for each entry of the last axis.
    """

    keras: ClassVar[str] = "Rescaling"
    scale: float | tuple[float, ...] = row(NumbersKind())
    offset: float | tuple[float, ...] = row(NumbersKind(), default=0.0)

    def _build_torch(self, *shapes: Shape) -> TorchParts:
        scale, offset = self.scale, self.offset
        return TorchParts(
            lambda module, x: x.float() * x.new_tensor(scale).float() + x.new_tensor(offset).float()
        )


class ActivityRegularization(Layer):
    """Returns its input unchanged, and adds a penalty on its magnitude to the loss.

    Parameters
    ----------
    l1
        Factor of the sum of absolute values.
    l2
        Factor of the sum of squares.
    """

    keras: ClassVar[str] = "ActivityRegularization"
    ignored: ClassVar[frozenset[str]] = frozenset({"activity_regularizer"})
    l1: float = row(NumberKind(0), default=0.0)
    l2: float = row(NumberKind(0), default=0.0)

    @property
    def activity_regularizer(self) -> L1L2:
        """The penalty on the outputs."""
        return L1L2(self.l1, self.l2)

    def _build_torch(self, *shapes: Shape) -> TorchParts:
        return TorchParts(lambda module, x: x)


class Reshape(Layer):
    """Gives the values of each sample another shape.

    Parameters
    ----------
    target_shape
        The shape, without the batch axis; one extent may be -1 and follows from the others.
    """

    keras: ClassVar[str] = "Reshape"
    target_shape: int | tuple[int, ...] = row(IntegersKind(-1, single=False))

    def __post_init__(self) -> None:
        if isinstance(self.target_shape, int):
            object.__setattr__(self, "target_shape", (self.target_shape,))
        super().__post_init__()

    def _find_faults(self) -> Iterable[tuple[str, str]]:
        if self._target.count(-1) > 1 or 0 in self._target:
            yield "target_shape", f"may have one -1 and no 0, not {self.target_shape}"

    @property
    def _target(self) -> tuple[int, ...]:
        assert isinstance(self.target_shape, tuple)
        return self.target_shape

    def _infer_shapes(self, *shapes: Shape) -> tuple[Shape, ...]:
        (shape,) = shapes
        rest = shape[1:]
        if None in rest:
            return ((shape[0], *(None if extent == -1 else extent for extent in self._target)),)
        size, given = math.prod(e or 0 for e in rest), math.prod(e for e in self._target if e != -1)
        if (-1 in self._target and size % given) or (-1 not in self._target and size != given):
            raise Misfit(f"cannot give {rest} the shape {self._target}")
        return (
            (shape[0], *(size // given if extent == -1 else extent for extent in self._target)),
        )

    def _build_torch(self, *shapes: Shape) -> TorchParts:
        target = self._target
        return TorchParts(lambda module, x: x.reshape(x.shape[0], *target))


class Flatten(Layer):
    """Puts the values of each sample into one axis.

    Parameters
    ----------
    data_format
        Place of the channels: ``"channels_last"``, or ``"channels_first"``, which moves them to the
        end first.
    """

    keras: ClassVar[str] = "Flatten"
    data_format: str = declare_data_format()

    def _infer_shapes(self, *shapes: Shape) -> tuple[Shape, ...]:
        rest = shapes[0][1:]
        return (
            (shapes[0][0], None if None in rest else math.prod(extent or 0 for extent in rest)),
        )

    def _build_torch(self, *shapes: Shape) -> TorchParts:
        # Keras moves channels to the end before flattening, so that both formats give the same
        # values.
        first = self.data_format == "channels_first"

        def call(module: Any, x: Any) -> Any:
            if x.ndim == 1:
                return x.unsqueeze(1)
            return (move_channels_last(x) if first and x.ndim > 2 else x).flatten(1)

        return TorchParts(call)


class Permute(Layer):
    """Reorders the axes of each sample.

    Parameters
    ----------
    dims
        The axes in their new order, counted from 1 (axis 0 is the batch).
    """

    keras: ClassVar[str] = "Permute"
    dims: tuple[int, ...] = row(IntegersKind(1))

    def _find_faults(self) -> Iterable[tuple[str, str]]:
        if sorted(self.dims) != list(range(1, len(self.dims) + 1)):
            yield "dims", f"must name each axis once, from 1 to {len(self.dims)}, not {self.dims}"

    def _infer_shapes(self, *shapes: Shape) -> tuple[Shape, ...]:
        (shape,) = shapes
        if len(shape) != len(self.dims) + 1:
            raise Misfit(f"orders {len(self.dims)} axes, not those of {shape}")
        return ((shape[0], *(shape[axis] for axis in self.dims)),)

    def _build_torch(self, *shapes: Shape) -> TorchParts:
        dims = self.dims
        return TorchParts(lambda module, x: x.permute(0, *dims))


class RepeatVector(Layer):
    """Repeats each vector along a new axis.

    Parameters
    ----------
    n
        Number of repetitions.
    """

    keras: ClassVar[str] = "RepeatVector"
    n: int = row(IntegerKind())

    def _infer_shapes(self, *shapes: Shape) -> tuple[Shape, ...]:
        (shape,) = shapes
        if len(shape) != 2:
            raise Misfit(f"takes vectors, not {shape}")
        return ((shape[0], self.n, shape[1]),)

    def _build_torch(self, *shapes: Shape) -> TorchParts:
        n = self.n
        return TorchParts(lambda module, x: x.unsqueeze(1).repeat(1, n, 1))


class _Merge(Layer):
    takes: ClassVar[tuple[int, int | None]] = (2, None)
    grouped: ClassVar[bool] = True


class _Elementwise(_Merge):
    pair: ClassVar[Callable[[Any, Any], Any]]

    def _infer_shapes(self, *shapes: Shape) -> tuple[Shape, ...]:
        return (reduce(_broadcast, shapes),)

    def _build_torch(self, *shapes: Shape) -> TorchParts:
        pair = type(self).pair
        return TorchParts(lambda module, *xs: reduce(pair, _align_ranks(xs)))


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

    def _build_torch(self, *shapes: Shape) -> TorchParts:
        return TorchParts(lambda module, *xs: reduce(operator.add, _align_ranks(xs)) / len(xs))


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

    def _infer_shapes(self, *shapes: Shape) -> tuple[Shape, ...]:
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

    def _build_torch(self, *shapes: Shape) -> TorchParts:
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
        Whether vectors along the axes are scaled to length 1 first, which gives the cosine
        similarity.
    """

    keras: ClassVar[str] = "Dot"
    takes: ClassVar[tuple[int, int | None]] = (2, 2)
    axes: int | tuple[int, ...] = row(IntegersKind(single=True))
    normalize: bool = row(FlagKind(), default=False)

    def _resolve_axes(self, *shapes: Shape) -> tuple[int, int]:
        axes = self.axes if isinstance(self.axes, tuple) else (self.axes, self.axes)
        if len(axes) != 2:
            raise Misfit(f"has the axes {axes}; it takes one for each input")
        found = []
        for axis, shape in zip(axes, shapes, strict=True):
            if not -len(shape) < axis < len(shape) or axis % len(shape) == 0:
                raise Misfit(f"has the axis {axis}, which {shape} lacks")
            found.append(axis % len(shape))
        return found[0], found[1]

    def _infer_shapes(self, *shapes: Shape) -> tuple[Shape, ...]:
        a, b = shapes
        i, j = self._resolve_axes(a, b)
        if a[i] is not None and b[j] is not None and a[i] != b[j]:
            raise Misfit(f"cannot multiply axis {i} of {a} with axis {j} of {b}")
        rest = (*a[1:i], *a[i + 1 :], *b[1:j], *b[j + 1 :])
        return ((a[0], *(rest or (1,))),)

    def _build_torch(self, *shapes: Shape) -> TorchParts:
        i, j = self._resolve_axes(*shapes)
        normalize = self.normalize

        def call(module: Any, a: Any, b: Any) -> Any:
            if normalize:
                a, b = (
                    x * x.square().sum(k, keepdim=True).clamp_min(1e-12).rsqrt()
                    for x, k in ((a, i), (b, j))
                )
            left, right = a.movedim(i, -1), b.movedim(j, -1)
            inner = left.flatten(1, -2) if left.ndim > 2 else left.unsqueeze(1)
            outer = right.flatten(1, -2) if right.ndim > 2 else right.unsqueeze(1)
            extents = (*left.shape[1:-1], *right.shape[1:-1]) or (1,)
            return (inner @ outer.transpose(1, 2)).reshape(a.shape[0], *extents)

        return TorchParts(call)


def _broadcast(a: Shape, b: Shape) -> Shape:
    """Return the shape of two tensors merged element by element; the shorter shape gets axes
    after the batch axis.
    """
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


def _align_ranks(xs: tuple[Any, ...]) -> list[Any]:
    rank = max(x.ndim for x in xs)
    return [
        x.reshape(x.shape[0], *[1] * (rank - x.ndim), *x.shape[1:]) if x.ndim < rank else x
        for x in xs
    ]
