"""Layers that rearrange or rescale values: reshape, flatten, permute, repeat."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, ClassVar

from nnpipe.layers.problems import Misfit
from nnpipe.layers.vocabulary.field_table import row
from nnpipe.layers.vocabulary.layer import Layer, Shape, TorchParts, data_format
from nnpipe.layers.vocabulary.regularisers import L1L2
from nnpipe.layers.vocabulary.value_kinds import IntegerKind, IntegersKind, NumberKind, NumbersKind
from nnpipe.layers.vocabulary.windows import channels_last


class Identity(Layer):
    """Returns its input unchanged; gives a tensor a name."""

    keras: ClassVar[str] = "Identity"

    def _torch(self, *shapes: Shape) -> TorchParts:
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

    def _torch(self, *shapes: Shape) -> TorchParts:
        scale, offset = self.scale, self.offset
        return TorchParts(lambda module, x: x.float() * x.new_tensor(scale).float() + x.new_tensor(offset).float())


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

    def _torch(self, *shapes: Shape) -> TorchParts:
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

    def _faults(self) -> Iterable[tuple[str, str]]:
        if self._target.count(-1) > 1 or 0 in self._target:
            yield "target_shape", f"may have one -1 and no 0, not {self.target_shape}"

    @property
    def _target(self) -> tuple[int, ...]:
        assert isinstance(self.target_shape, tuple)
        return self.target_shape

    def _shapes(self, *shapes: Shape) -> tuple[Shape, ...]:
        (shape,) = shapes
        rest = shape[1:]
        if None in rest:
            return ((shape[0], *(None if extent == -1 else extent for extent in self._target)),)
        size, given = math.prod(e or 0 for e in rest), math.prod(e for e in self._target if e != -1)
        if (-1 in self._target and size % given) or (-1 not in self._target and size != given):
            raise Misfit(f"cannot give {rest} the shape {self._target}")
        return ((shape[0], *(size // given if extent == -1 else extent for extent in self._target)),)

    def _torch(self, *shapes: Shape) -> TorchParts:
        target = self._target
        return TorchParts(lambda module, x: x.reshape(x.shape[0], *target))


class Flatten(Layer):
    """Puts the values of each sample into one axis.

    Parameters
    ----------
    data_format
        Place of the channels: ``"channels_last"``, or ``"channels_first"``, which moves them to the end first.
    """

    keras: ClassVar[str] = "Flatten"
    data_format: str = data_format()

    def _shapes(self, *shapes: Shape) -> tuple[Shape, ...]:
        rest = shapes[0][1:]
        return ((shapes[0][0], None if None in rest else math.prod(extent or 0 for extent in rest)),)

    def _torch(self, *shapes: Shape) -> TorchParts:
        # Keras moves channels to the end before flattening, so that both formats give the same values.
        first = self.data_format == "channels_first"

        def call(module: Any, x: Any) -> Any:
            if x.ndim == 1:
                return x.unsqueeze(1)
            return (channels_last(x) if first and x.ndim > 2 else x).flatten(1)

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

    def _faults(self) -> Iterable[tuple[str, str]]:
        if sorted(self.dims) != list(range(1, len(self.dims) + 1)):
            yield "dims", f"must name each axis once, from 1 to {len(self.dims)}, not {self.dims}"

    def _shapes(self, *shapes: Shape) -> tuple[Shape, ...]:
        (shape,) = shapes
        if len(shape) != len(self.dims) + 1:
            raise Misfit(f"orders {len(self.dims)} axes, not those of {shape}")
        return ((shape[0], *(shape[axis] for axis in self.dims)),)

    def _torch(self, *shapes: Shape) -> TorchParts:
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

    def _shapes(self, *shapes: Shape) -> tuple[Shape, ...]:
        (shape,) = shapes
        if len(shape) != 2:
            raise Misfit(f"takes vectors, not {shape}")
        return ((shape[0], self.n, shape[1]),)

    def _torch(self, *shapes: Shape) -> TorchParts:
        n = self.n
        return TorchParts(lambda module, x: x.unsqueeze(1).repeat(1, n, 1))
