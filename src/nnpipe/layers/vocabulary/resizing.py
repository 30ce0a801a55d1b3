"""Layers that change spatial extents: pad, crop, upsample."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from nnpipe.layers.problems import Misfit
from nnpipe.layers.vocabulary.field_table import row
from nnpipe.layers.vocabulary.layer import Layer, Shape, TorchParts, declare_data_format
from nnpipe.layers.vocabulary.value_kinds import ChoiceKind, PadsKind, SizesKind
from nnpipe.layers.vocabulary.windows import (
    check_rank,
    get_channels,
    get_spatial_extents,
    join_shape,
    move_channels_first,
    move_channels_last,
)


class _Edged(Layer):
    """Base of layers that pad or crop the edges of spatial axes; subclasses declare
    ``data_format``.
    """

    @property
    def _format(self) -> str:
        return str(getattr(self, "data_format"))  # noqa: B009 - subclasses declare it, after their first argument

    def _compute_edges(self) -> tuple[tuple[int, int], ...]:
        """Return how many elements to add before and after each axis; negative numbers cut."""
        raise NotImplementedError

    def _infer_shapes(self, *shapes: Shape) -> tuple[Shape, ...]:
        (shape,) = shapes
        check_rank(shape, self.rank)
        extents = [
            None if extent is None else extent + before + after
            for extent, (before, after) in zip(
                get_spatial_extents(shape, self._format), self._compute_edges(), strict=True
            )
        ]
        if any(extent is not None and extent < 1 for extent in extents):
            raise Misfit(f"leaves nothing of {shape}")
        return (join_shape(shape[0], extents, get_channels(shape, self._format), self._format),)

    def _build_torch(self, *shapes: Shape) -> TorchParts:
        import torch.nn.functional as F

        flat = [side for pair in reversed(self._compute_edges()) for side in pair]
        if self._format == "channels_last":
            flat = [0, 0, *flat]
        return TorchParts(lambda module, x: F.pad(x, flat))


class _ZeroPad(_Edged):
    """Base of zero padding.

    Parameters
    ----------
    padding
        Number of zeros: one for all edges, one for each axis, or a pair (before, after) for each
        axis.
    data_format
        Place of the channels: ``"channels_last"`` or ``"channels_first"``.
    """

    padding: int | tuple[Any, ...] = row(PadsKind(), default=1)
    data_format: str = declare_data_format()

    def _compute_edges(self) -> tuple[tuple[int, int], ...]:
        assert isinstance(self.padding, tuple)
        return self.padding


class ZeroPad1d(_ZeroPad):
    """Adds zeros before and after one axis."""

    keras: ClassVar[str] = "ZeroPadding1D"
    rank: ClassVar[int] = 1


class ZeroPad2d(_ZeroPad):
    """Adds zeros before and after two axes."""

    keras: ClassVar[str] = "ZeroPadding2D"
    rank: ClassVar[int] = 2


class ZeroPad3d(_ZeroPad):
    """Adds zeros before and after three axes."""

    keras: ClassVar[str] = "ZeroPadding3D"
    rank: ClassVar[int] = 3


class _Crop(_Edged):
    """Base of cropping.

    Parameters
    ----------
    cropping
        Number of elements to cut: one for all edges, one for each axis, or a pair (before, after)
        for each axis.
    data_format
        Place of the channels: ``"channels_last"`` or ``"channels_first"``.
    """

    cropping: int | tuple[Any, ...] = row(PadsKind(), default=1)
    data_format: str = declare_data_format()

    def _compute_edges(self) -> tuple[tuple[int, int], ...]:
        assert isinstance(self.cropping, tuple)
        return tuple((-before, -after) for before, after in self.cropping)


class Crop1d(_Crop):
    """Cuts both ends of one axis; channels are last."""

    keras: ClassVar[str] = "Cropping1D"
    unwritten: ClassVar[frozenset[str]] = frozenset({"data_format"})
    rank: ClassVar[int] = 1

    def _find_faults(self) -> Iterable[tuple[str, str]]:
        return _check_channels_last(self.data_format)


class Crop2d(_Crop):
    """Cuts both ends of two axes."""

    keras: ClassVar[str] = "Cropping2D"
    rank: ClassVar[int] = 2


class Crop3d(_Crop):
    """Cuts both ends of three axes."""

    keras: ClassVar[str] = "Cropping3D"
    rank: ClassVar[int] = 3


class _UpSample(Layer):
    """Base of upsampling.

    Parameters
    ----------
    size
        Factor by which each spatial axis grows; one integer stands for all axes.
    data_format
        Place of the channels: ``"channels_last"`` or ``"channels_first"``.
    """

    size: int | tuple[int, ...] = row(SizesKind(), default=2, older=("length",))
    data_format: str = declare_data_format()

    def _infer_shapes(self, *shapes: Shape) -> tuple[Shape, ...]:
        (shape,) = shapes
        check_rank(shape, self.rank)
        assert isinstance(self.size, tuple)
        extents = [
            None if extent is None else extent * factor
            for extent, factor in zip(
                get_spatial_extents(shape, self.data_format), self.size, strict=True
            )
        ]
        return (
            join_shape(shape[0], extents, get_channels(shape, self.data_format), self.data_format),
        )

    def _build_torch(self, *shapes: Shape) -> TorchParts:
        assert isinstance(self.size, tuple)
        first = 1 if self.data_format == "channels_last" else 2
        factors = [(axis, factor) for axis, factor in enumerate(self.size, first) if factor > 1]

        def call(module: Any, x: Any) -> Any:
            for axis, factor in factors:
                x = x.repeat_interleave(factor, axis)
            return x

        return TorchParts(call)


class UpSample1d(_UpSample):
    """Repeats each value along one axis; channels are last."""

    keras: ClassVar[str] = "UpSampling1D"
    unwritten: ClassVar[frozenset[str]] = frozenset({"data_format"})
    rank: ClassVar[int] = 1
    size: int | tuple[int, ...] = row(SizesKind(bare=True), default=2, older=("length",))

    def _find_faults(self) -> Iterable[tuple[str, str]]:
        return _check_channels_last(self.data_format)


class UpSample2d(_UpSample):
    """Enlarges two axes by repeating or interpolating values.

    Parameters
    ----------
    interpolation
        Method of interpolation; PyTorch supports ``"nearest"`` and ``"bilinear"`` only.
    """

    keras: ClassVar[str] = "UpSampling2D"
    rank: ClassVar[int] = 2
    interpolation: str = row(
        ChoiceKind(
            (
                "nearest",
                "bilinear",
                "bicubic",
                "lanczos3",
                "lanczos5",
                "area",
                "mitchellcubic",
                "gaussian",
            )
        ),
        default="nearest",
    )

    def limits(self, backend: str) -> Iterable[str]:
        """Return the interpolation if the backend does not support it."""
        if self.interpolation in ("nearest", "bilinear"):
            return []
        if backend == "keras" and self.interpolation in ("bicubic", "lanczos3", "lanczos5"):
            return []
        return [f"the interpolation {self.interpolation} is not offered"]

    def _build_torch(self, *shapes: Shape) -> TorchParts:
        if self.interpolation == "nearest":
            return super()._build_torch(*shapes)
        import torch.nn.functional as F

        last = self.data_format == "channels_last"
        assert isinstance(self.size, tuple)
        scale = [float(factor) for factor in self.size]

        def call(module: Any, x: Any) -> Any:
            y = F.interpolate(
                move_channels_first(x) if last else x, scale_factor=scale, mode="bilinear"
            )
            return move_channels_last(y) if last else y

        return TorchParts(call)


class UpSample3d(_UpSample):
    """Repeats each value along three axes."""

    keras: ClassVar[str] = "UpSampling3D"
    rank: ClassVar[int] = 3


def _check_channels_last(said: str) -> Iterable[tuple[str, str]]:
    if said != "channels_last":
        yield "data_format", "must be channels_last: Keras has no other here"
