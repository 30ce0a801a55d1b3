"""Pooling over windows and over whole axes."""

from __future__ import annotations

from typing import Any, ClassVar

from nnpipe.layers.vocabulary.field_table import row
from nnpipe.layers.vocabulary.layer import Layer, Shape, TorchParts, declare_data_format
from nnpipe.layers.vocabulary.value_kinds import ChoiceKind, FlagKind, SizesKind
from nnpipe.layers.vocabulary.windows import (
    check_rank,
    count_window_positions,
    get_channels,
    get_spatial_extents,
    join_shape,
    make_padder,
    with_channels_first,
)


class _Pool(Layer):
    """Base of pooling over windows.

    Parameters
    ----------
    pool_size
        Size of the window along each spatial axis; one integer stands for all axes.
    strides
        Step of the window along each spatial axis; ``None`` for the window's size.
    padding
        ``"valid"`` adds nothing; ``"same"`` pads so that the output has the size of the input
        divided by the stride, rounded up.
    data_format
        Place of the channels: ``"channels_last"`` or ``"channels_first"``.
    """

    pool_size: int | tuple[int, ...] = row(SizesKind(), default=2, older=("pool_length",))
    strides: int | tuple[int, ...] | None = row(SizesKind(optional=True), default=None)
    padding: str = row(ChoiceKind(("valid", "same")), default="valid")
    data_format: str = declare_data_format()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.strides is None:  # Keras writes the window's size in this case as well
            object.__setattr__(self, "strides", self.pool_size)

    def _infer_shapes(self, *shapes: Shape) -> tuple[Shape, ...]:
        (shape,) = shapes
        check_rank(shape, self.rank)
        windows = zip(
            get_spatial_extents(shape, self.data_format), self._size, self._strides, strict=True
        )
        extents = [
            count_window_positions(extent, size, stride, 1, self.padding)
            for extent, size, stride in windows
        ]
        return (
            join_shape(shape[0], extents, get_channels(shape, self.data_format), self.data_format),
        )

    @property
    def _size(self) -> tuple[int, ...]:
        assert isinstance(self.pool_size, tuple)
        return self.pool_size

    @property
    def _strides(self) -> tuple[int, ...]:
        assert isinstance(self.strides, tuple)
        return self.strides

    def _make_padder(self, fill: float) -> Any:
        return make_padder(self._size, self._strides, (1,) * self.rank, self.padding, fill)


class _MaxPool(_Pool):
    def _build_torch(self, *shapes: Shape) -> TorchParts:
        from torch import nn

        core = getattr(nn, f"MaxPool{self.rank}d")(self._size, self._strides)
        pad = self._make_padder(float("-inf"))
        return TorchParts(
            with_channels_first(lambda module, x: module.core(pad(x)), self.data_format), core
        )


class MaxPool1d(_MaxPool):
    """The maximum of each window over one axis."""

    keras: ClassVar[str] = "MaxPooling1D"
    aliases: ClassVar[tuple[str, ...]] = ("MaxPool1D",)
    rank: ClassVar[int] = 1


class MaxPool2d(_MaxPool):
    """The maximum of each window over two axes."""

    keras: ClassVar[str] = "MaxPooling2D"
    aliases: ClassVar[tuple[str, ...]] = ("MaxPool2D",)
    rank: ClassVar[int] = 2


class MaxPool3d(_MaxPool):
    """The maximum of each window over three axes."""

    keras: ClassVar[str] = "MaxPooling3D"
    aliases: ClassVar[tuple[str, ...]] = ("MaxPool3D",)
    rank: ClassVar[int] = 3


class _AvgPool(_Pool):
    def _build_torch(self, *shapes: Shape) -> TorchParts:
        from torch import nn

        core = getattr(nn, f"AvgPool{self.rank}d")(self._size, self._strides)
        pad, same = self._make_padder(0.0), self.padding == "same"

        def call(module: Any, x: Any) -> Any:
            padded = pad(x)
            if not same or padded is x:
                return module.core(padded)
            # Padding does not count, and there may be more of it on one side.
            return module.core(padded) / module.core(pad(x.new_ones((1, 1, *x.shape[2:]))))

        return TorchParts(with_channels_first(call, self.data_format), core)


class AvgPool1d(_AvgPool):
    """The mean of each window over one axis."""

    keras: ClassVar[str] = "AveragePooling1D"
    aliases: ClassVar[tuple[str, ...]] = ("AvgPool1D",)
    rank: ClassVar[int] = 1


class AvgPool2d(_AvgPool):
    """The mean of each window over two axes."""

    keras: ClassVar[str] = "AveragePooling2D"
    aliases: ClassVar[tuple[str, ...]] = ("AvgPool2D",)
    rank: ClassVar[int] = 2


class AvgPool3d(_AvgPool):
    """The mean of each window over three axes."""

    keras: ClassVar[str] = "AveragePooling3D"
    aliases: ClassVar[tuple[str, ...]] = ("AvgPool3D",)
    rank: ClassVar[int] = 3


class _GlobalPool(Layer):
    """Base of pooling over whole axes.

    Parameters
    ----------
    data_format
        Place of the channels: ``"channels_last"`` or ``"channels_first"``.
    keepdims
        Whether spatial axes are kept with length 1.
    """

    data_format: str = declare_data_format()
    keepdims: bool = row(FlagKind(), default=False)
    reduction: ClassVar[str]

    def _infer_shapes(self, *shapes: Shape) -> tuple[Shape, ...]:
        (shape,) = shapes
        check_rank(shape, self.rank)
        extents = (1,) * self.rank if self.keepdims else ()
        return (
            join_shape(shape[0], extents, get_channels(shape, self.data_format), self.data_format),
        )

    def _build_torch(self, *shapes: Shape) -> TorchParts:
        first = 1 if self.data_format == "channels_last" else 2
        axes = tuple(range(first, first + self.rank))
        reduction, keepdims = self.reduction, self.keepdims
        return TorchParts(lambda module, x: getattr(x, reduction)(axes, keepdim=keepdims))


class GlobalMaxPool1d(_GlobalPool):
    """The maximum of each channel over one axis."""

    keras: ClassVar[str] = "GlobalMaxPooling1D"
    aliases: ClassVar[tuple[str, ...]] = ("GlobalMaxPool1D",)
    rank: ClassVar[int] = 1
    reduction: ClassVar[str] = "amax"


class GlobalMaxPool2d(_GlobalPool):
    """The maximum of each channel over two axes."""

    keras: ClassVar[str] = "GlobalMaxPooling2D"
    aliases: ClassVar[tuple[str, ...]] = ("GlobalMaxPool2D",)
    rank: ClassVar[int] = 2
    reduction: ClassVar[str] = "amax"


class GlobalMaxPool3d(_GlobalPool):
    """The maximum of each channel over three axes."""

    keras: ClassVar[str] = "GlobalMaxPooling3D"
    aliases: ClassVar[tuple[str, ...]] = ("GlobalMaxPool3D",)
    rank: ClassVar[int] = 3
    reduction: ClassVar[str] = "amax"


class GlobalAvgPool1d(_GlobalPool):
    """The mean of each channel over one axis."""

    keras: ClassVar[str] = "GlobalAveragePooling1D"
    aliases: ClassVar[tuple[str, ...]] = ("GlobalAvgPool1D",)
    rank: ClassVar[int] = 1
    reduction: ClassVar[str] = "mean"


class GlobalAvgPool2d(_GlobalPool):
    """The mean of each channel over two axes."""

    keras: ClassVar[str] = "GlobalAveragePooling2D"
    aliases: ClassVar[tuple[str, ...]] = ("GlobalAvgPool2D",)
    rank: ClassVar[int] = 2
    reduction: ClassVar[str] = "mean"


class GlobalAvgPool3d(_GlobalPool):
    """The mean of each channel over three axes."""

    keras: ClassVar[str] = "GlobalAveragePooling3D"
    aliases: ClassVar[tuple[str, ...]] = ("GlobalAvgPool3D",)
    rank: ClassVar[int] = 3
    reduction: ClassVar[str] = "mean"
