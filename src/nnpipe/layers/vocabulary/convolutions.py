"""Convolutions: plain, transposed, depthwise and separable."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, ClassVar

from nnpipe.layers.problems import Misfit
from nnpipe.layers.vocabulary.activations import ACTIVATION, ActivationFunction
from nnpipe.layers.vocabulary.field_table import Raw, row
from nnpipe.layers.vocabulary.initialisers import INITIALISER, GlorotUniform, Initialiser
from nnpipe.layers.vocabulary.layer import LayerVariable, Shape, TorchParts, declare_data_format
from nnpipe.layers.vocabulary.regularisers import CONSTRAINT, REGULARISER, Constraint, Regulariser
from nnpipe.layers.vocabulary.value_kinds import ChoiceKind, IntegerKind, SizesKind
from nnpipe.layers.vocabulary.weighted_layer import (
    Biased,
    Kernelled,
    describe_bias,
    get_activation,
    get_weight_settings,
)
from nnpipe.layers.vocabulary.windows import (
    build_window_parts,
    check_strides,
    compute_output_extents,
    count_input_channels,
    get_spatial_extents,
    get_torch_axes,
    get_window_sizes,
    join_shape,
    with_channels_first,
)

_PADDINGS = ("valid", "same")


class _Conv(Kernelled):
    """Base of convolutions.

    Parameters
    ----------
    filters
        Number of output channels.
    kernel_size
        Size of the window along each spatial axis; one integer stands for all axes.
    strides
        Step of the window along each spatial axis.
    padding
        ``"valid"`` adds nothing; ``"same"`` adds zeros so that the output has the size of the input
        divided by the stride, rounded up; ``"causal"`` (one axis only) adds zeros before the first
        step alone.
    data_format
        Place of the channels: ``"channels_last"`` or ``"channels_first"``.
    dilation_rate
        Distance between the elements of the window along each spatial axis.
    groups
        Number of groups of channels that are convolved separately.
    activation
        Function applied to the outputs.
    """

    filters: int = row(IntegerKind())
    kernel_size: int | tuple[int, ...] = row(SizesKind())
    strides: int | tuple[int, ...] = row(SizesKind(), default=1)
    padding: str = row(ChoiceKind(_PADDINGS), default="valid")
    data_format: str = declare_data_format()
    dilation_rate: int | tuple[int, ...] = row(SizesKind(), default=1)
    groups: int = row(IntegerKind(), default=1)
    activation: ActivationFunction | Raw | str | None = row(
        ACTIVATION, default=ActivationFunction()
    )

    def _find_faults(self) -> Iterable[tuple[str, str]]:
        if self.filters % self.groups:
            yield "groups", f"must divide the {self.filters} filters, not be {self.groups}"
        yield from check_strides(self)

    def _count_input_channels(self, shape: Shape) -> int:
        into = count_input_channels(self, shape)
        if into % self.groups:
            raise Misfit(
                f"has {self.groups} groups, which do not divide its input's {into} channels"
            )
        return into

    def _infer_shapes(self, *shapes: Shape) -> tuple[Shape, ...]:
        (shape,) = shapes
        self._count_input_channels(shape)
        return (
            join_shape(
                shape[0], compute_output_extents(self, shape), self.filters, self.data_format
            ),
        )

    def _describe_variables(self, *shapes: Shape) -> tuple[LayerVariable, ...]:
        shape = (
            *get_window_sizes(self),
            self._count_input_channels(shapes[0]) // self.groups,
            self.filters,
        )
        kernel = LayerVariable(
            "kernel",
            shape,
            *get_weight_settings(self, "kernel"),
            torch="weight",
            axes=get_torch_axes(self.rank),
        )
        return (kernel, *describe_bias(self, self.filters))

    def _build_torch(self, *shapes: Shape) -> TorchParts:
        from torch import nn

        core = getattr(nn, f"Conv{self.rank}d")(
            self._count_input_channels(shapes[0]),
            self.filters,
            self.kernel_size,
            self.strides,
            dilation=self.dilation_rate,
            groups=self.groups,
            bias=self.use_bias,
        )
        return build_window_parts(self, core, lambda core, x: core(x))


class Conv1d(_Conv):
    """A convolution over one axis."""

    keras: ClassVar[str] = "Conv1D"
    aliases: ClassVar[tuple[str, ...]] = ("Convolution1D",)
    rank: ClassVar[int] = 1
    padding: str = row(ChoiceKind((*_PADDINGS, "causal")), default="valid")


class Conv2d(_Conv):
    """A convolution over two axes."""

    keras: ClassVar[str] = "Conv2D"
    aliases: ClassVar[tuple[str, ...]] = ("Convolution2D",)
    rank: ClassVar[int] = 2


class Conv3d(_Conv):
    """A convolution over three axes."""

    keras: ClassVar[str] = "Conv3D"
    aliases: ClassVar[tuple[str, ...]] = ("Convolution3D",)
    rank: ClassVar[int] = 3


class _ConvTranspose(Kernelled):
    """Base of transposed convolutions.

    Parameters
    ----------
    filters
        Number of output channels.
    kernel_size
        Size of the window along each spatial axis; one integer stands for all axes.
    strides
        Factor by which each spatial axis grows.
    padding
        ``"valid"`` keeps the whole output; ``"same"`` crops it to the input's size times the
        stride.
    output_padding
        Elements added to the end of each spatial axis of the output; ``None`` derives them from
        ``padding``.
    data_format
        Place of the channels: ``"channels_last"`` or ``"channels_first"``.
    dilation_rate
        Distance between the elements of the window along each spatial axis.
    activation
        Function applied to the outputs.
    """

    # Keras 2 wrote it; its value was always 1
    ignored: ClassVar[frozenset[str]] = frozenset({"groups"})
    filters: int = row(IntegerKind())
    kernel_size: int | tuple[int, ...] = row(SizesKind())
    strides: int | tuple[int, ...] = row(SizesKind(), default=1)
    padding: str = row(ChoiceKind(_PADDINGS), default="valid")
    output_padding: int | tuple[int, ...] | None = row(SizesKind(0, optional=True), default=None)
    data_format: str = declare_data_format()
    dilation_rate: int | tuple[int, ...] = row(SizesKind(), default=1)
    activation: ActivationFunction | Raw | str | None = row(
        ACTIVATION, default=ActivationFunction()
    )

    def _find_faults(self) -> Iterable[tuple[str, str]]:
        yield from check_strides(self)
        extra = self.output_padding if isinstance(self.output_padding, tuple) else ()
        if any(
            more >= stride for more, stride in zip(extra, _as_tuple(self.strides), strict=False)
        ):
            yield (
                "output_padding",
                f"must be less than the strides {self.strides}, not {self.output_padding}",
            )

    def _compute_crops(self) -> list[tuple[int, int]]:
        """Return how many elements to cut before and after each axis of the full result;
        negative numbers add.
        """
        extra = (
            _as_tuple(self.output_padding)
            if self.output_padding is not None
            else (None,) * self.rank
        )
        windows = zip(
            _as_tuple(self.kernel_size),
            _as_tuple(self.strides),
            _as_tuple(self.dilation_rate),
            extra,
            strict=True,
        )
        return [_compute_crop(*window, self.padding) for window in windows]

    def _infer_shapes(self, *shapes: Shape) -> tuple[Shape, ...]:
        (shape,) = shapes
        count_input_channels(self, shape)
        sizes = zip(
            get_spatial_extents(shape, self.data_format),
            _as_tuple(self.kernel_size),
            _as_tuple(self.strides),
            _as_tuple(self.dilation_rate),
            self._compute_crops(),
            strict=True,
        )
        extents = [
            None
            if extent is None
            else (extent - 1) * stride + (size - 1) * dilation + 1 - before - after
            for extent, size, stride, dilation, (before, after) in sizes
        ]
        if any(extent is not None and extent < 1 for extent in extents):
            raise Misfit(f"gives nothing for {shape}")
        return (join_shape(shape[0], extents, self.filters, self.data_format),)

    def _describe_variables(self, *shapes: Shape) -> tuple[LayerVariable, ...]:
        shape = (*get_window_sizes(self), self.filters, count_input_channels(self, shapes[0]))
        kernel = LayerVariable(
            "kernel",
            shape,
            *get_weight_settings(self, "kernel"),
            torch="weight",
            axes=get_torch_axes(self.rank),
        )
        return (
            kernel,
            *(replace(bias, torch="added") for bias in describe_bias(self, self.filters)),
        )

    def _build_torch(self, *shapes: Shape) -> TorchParts:
        import torch.nn.functional as F
        from torch import nn

        core = getattr(nn, f"ConvTranspose{self.rank}d")(
            count_input_channels(self, shapes[0]),
            self.filters,
            self.kernel_size,
            self.strides,
            dilation=self.dilation_rate,
            bias=False,
        )
        if self.use_bias:
            import torch

            core.added = nn.Parameter(torch.zeros(self.filters))
        cut = [-side for pair in reversed(self._compute_crops()) for side in pair]
        activation, rank, biased = get_activation(self), self.rank, self.use_bias

        def call(module: Any, x: Any) -> Any:
            y = module.core(x)
            y = F.pad(y, cut) if any(cut) else y
            # The bias is added to the padded edge as well.
            return y + module.core.added.reshape(-1, *[1] * rank) if biased else y

        inner = with_channels_first(call, self.data_format)
        return TorchParts(lambda module, x: activation(inner(module, x)), core)


class Conv1dTranspose(_ConvTranspose):
    """A transposed convolution over one axis."""

    keras: ClassVar[str] = "Conv1DTranspose"
    aliases: ClassVar[tuple[str, ...]] = ("Convolution1DTranspose",)
    rank: ClassVar[int] = 1


class Conv2dTranspose(_ConvTranspose):
    """A transposed convolution over two axes."""

    keras: ClassVar[str] = "Conv2DTranspose"
    aliases: ClassVar[tuple[str, ...]] = ("Convolution2DTranspose", "Deconvolution2D")
    rank: ClassVar[int] = 2


class Conv3dTranspose(_ConvTranspose):
    """A transposed convolution over three axes."""

    keras: ClassVar[str] = "Conv3DTranspose"
    aliases: ClassVar[tuple[str, ...]] = ("Convolution3DTranspose",)
    rank: ClassVar[int] = 3


def _compute_crop(
    size: int, stride: int, dilation: int, extra: int | None, padding: str
) -> tuple[int, int]:
    # As in Keras's JAX and TensorFlow backends: "valid" gives (n-1) s + max(k, s), "same" gives n
    # s; a given output padding is added to (n-1) s + k or to (n-1) s + k % 2.
    reach = (size - 1) * dilation + 1
    if padding == "valid":
        return 0, -(max(stride - reach, 0) if extra is None else extra)
    total = stride + reach - 2 if extra is None else reach + reach % 2 - 2 + extra
    left = min(total // 2 + total % 2, reach - 1)
    return reach - 1 - left, reach - 1 - (total - left)


def _as_tuple(value: Any) -> tuple[int, ...]:
    return tuple(value)


class _DepthwiseConv(Biased):
    """Base of depthwise convolutions.

    Parameters
    ----------
    kernel_size
        Size of the window along each spatial axis; one integer stands for all axes.
    strides
        Step of the window along each spatial axis.
    padding
        ``"valid"`` adds nothing; ``"same"`` adds zeros so that the output has the size of the input
        divided by the stride, rounded up.
    depth_multiplier
        Number of output channels for each input channel.
    data_format
        Place of the channels: ``"channels_last"`` or ``"channels_first"``.
    dilation_rate
        Distance between the elements of the window along each spatial axis.
    activation
        Function applied to the outputs.
    depthwise_initializer
        Initial values of the kernel.
    depthwise_regularizer
        Penalty on the kernel that is added to the loss.
    depthwise_constraint
        Constraint on the kernel, applied after each training step.
    """

    # Keras 2 wrote arguments that it had inherited from the ordinary convolution.
    ignored: ClassVar[frozenset[str]] = frozenset(
        {"groups", "filters", "kernel_initializer", "kernel_regularizer", "kernel_constraint"}
    )
    kernel_size: int | tuple[int, ...] = row(SizesKind())
    strides: int | tuple[int, ...] = row(SizesKind(), default=1)
    padding: str = row(ChoiceKind(_PADDINGS), default="valid")
    depth_multiplier: int = row(IntegerKind(), default=1)
    data_format: str = declare_data_format()
    dilation_rate: int | tuple[int, ...] = row(SizesKind(), default=1)
    activation: ActivationFunction | Raw | str | None = row(
        ACTIVATION, default=ActivationFunction()
    )
    depthwise_initializer: Initialiser | Raw | str = row(INITIALISER, default=GlorotUniform())
    depthwise_regularizer: Regulariser | Raw | str | None = row(REGULARISER, default=None)
    depthwise_constraint: Constraint | Raw | str | None = row(CONSTRAINT, default=None)

    def _find_faults(self) -> Iterable[tuple[str, str]]:
        return check_strides(self)

    def _infer_shapes(self, *shapes: Shape) -> tuple[Shape, ...]:
        (shape,) = shapes
        count = count_input_channels(self, shape) * self.depth_multiplier
        return (join_shape(shape[0], compute_output_extents(self, shape), count, self.data_format),)

    def _describe_variables(self, *shapes: Shape) -> tuple[LayerVariable, ...]:
        into = count_input_channels(self, shapes[0])
        return (
            _describe_depthwise_kernel(self, into, "kernel", "weight"),
            *describe_bias(self, into * self.depth_multiplier),
        )

    def _build_torch(self, *shapes: Shape) -> TorchParts:
        core = _build_depthwise_module(self, count_input_channels(self, shapes[0]), self.use_bias)
        return build_window_parts(self, core, lambda core, x: core(x))


class DepthwiseConv1d(_DepthwiseConv):
    """A depthwise convolution over one axis: each channel has its own kernel."""

    keras: ClassVar[str] = "DepthwiseConv1D"
    rank: ClassVar[int] = 1


class DepthwiseConv2d(_DepthwiseConv):
    """A depthwise convolution over two axes: each channel has its own kernel."""

    keras: ClassVar[str] = "DepthwiseConv2D"
    rank: ClassVar[int] = 2


class _SeparableConv(Biased):
    """Base of separable convolutions.

    Parameters
    ----------
    filters
        Number of output channels.
    kernel_size
        Size of the window along each spatial axis; one integer stands for all axes.
    strides
        Step of the window along each spatial axis.
    padding
        ``"valid"`` adds nothing; ``"same"`` adds zeros so that the output has the size of the input
        divided by the stride, rounded up; ``"causal"`` (one axis only) adds zeros before the first
        step alone.
    data_format
        Place of the channels: ``"channels_last"`` or ``"channels_first"``.
    dilation_rate
        Distance between the elements of the window along each spatial axis.
    depth_multiplier
        Number of channels that the depthwise convolution makes of each input channel.
    activation
        Function applied to the outputs.
    depthwise_initializer, pointwise_initializer
        Initial values of the depthwise or pointwise kernel.
    depthwise_regularizer, pointwise_regularizer
        Penalty on the depthwise or pointwise kernel that is added to the loss.
    depthwise_constraint, pointwise_constraint
        Constraint on the depthwise or pointwise kernel, applied after each training step.
    """

    ignored: ClassVar[frozenset[str]] = frozenset(
        {"groups", "kernel_initializer", "kernel_regularizer", "kernel_constraint"}
    )
    filters: int = row(IntegerKind())
    kernel_size: int | tuple[int, ...] = row(SizesKind())
    strides: int | tuple[int, ...] = row(SizesKind(), default=1)
    padding: str = row(ChoiceKind(_PADDINGS), default="valid")
    data_format: str = declare_data_format()
    dilation_rate: int | tuple[int, ...] = row(SizesKind(), default=1)
    depth_multiplier: int = row(IntegerKind(), default=1)
    activation: ActivationFunction | Raw | str | None = row(
        ACTIVATION, default=ActivationFunction()
    )
    depthwise_initializer: Initialiser | Raw | str = row(INITIALISER, default=GlorotUniform())
    pointwise_initializer: Initialiser | Raw | str = row(INITIALISER, default=GlorotUniform())
    depthwise_regularizer: Regulariser | Raw | str | None = row(REGULARISER, default=None)
    pointwise_regularizer: Regulariser | Raw | str | None = row(REGULARISER, default=None)
    depthwise_constraint: Constraint | Raw | str | None = row(CONSTRAINT, default=None)
    pointwise_constraint: Constraint | Raw | str | None = row(CONSTRAINT, default=None)

    def _find_faults(self) -> Iterable[tuple[str, str]]:
        return check_strides(self)

    def _infer_shapes(self, *shapes: Shape) -> tuple[Shape, ...]:
        (shape,) = shapes
        count_input_channels(self, shape)
        return (
            join_shape(
                shape[0], compute_output_extents(self, shape), self.filters, self.data_format
            ),
        )

    def _describe_variables(self, *shapes: Shape) -> tuple[LayerVariable, ...]:
        into = count_input_channels(self, shapes[0])
        shape = (*[1] * self.rank, into * self.depth_multiplier, self.filters)
        point = LayerVariable(
            "pointwise_kernel",
            shape,
            *get_weight_settings(self, "pointwise"),
            torch="pointwise.weight",
            axes=get_torch_axes(self.rank),
        )
        bias = [replace(bias, torch="pointwise.bias") for bias in describe_bias(self, self.filters)]
        return (
            _describe_depthwise_kernel(self, into, "depthwise_kernel", "depthwise.weight"),
            point,
            *bias,
        )

    def _build_torch(self, *shapes: Shape) -> TorchParts:
        from torch import nn

        into = count_input_channels(self, shapes[0])
        core = nn.ModuleDict(
            {
                "depthwise": _build_depthwise_module(self, into, False),
                "pointwise": getattr(nn, f"Conv{self.rank}d")(
                    into * self.depth_multiplier, self.filters, 1, bias=self.use_bias
                ),
            }
        )
        return build_window_parts(
            self, core, lambda core, x: core["pointwise"](core["depthwise"](x))
        )


class SeparableConv1d(_SeparableConv):
    """A depthwise convolution over one axis, followed by a pointwise one."""

    keras: ClassVar[str] = "SeparableConv1D"
    aliases: ClassVar[tuple[str, ...]] = ("SeparableConvolution1D",)
    rank: ClassVar[int] = 1
    padding: str = row(ChoiceKind((*_PADDINGS, "causal")), default="valid")


class SeparableConv2d(_SeparableConv):
    """A depthwise convolution over two axes, followed by a pointwise one."""

    keras: ClassVar[str] = "SeparableConv2D"
    aliases: ClassVar[tuple[str, ...]] = ("SeparableConvolution2D",)
    rank: ClassVar[int] = 2


def _describe_depthwise_kernel(layer: Any, into: int, name: str, torch: str) -> LayerVariable:
    shape = (*get_window_sizes(layer), into, layer.depth_multiplier)
    return LayerVariable(
        name,
        shape,
        *get_weight_settings(layer, "depthwise"),
        torch=torch,
        axes=(layer.rank, layer.rank + 1, *range(layer.rank)),
        torch_shape=(into * layer.depth_multiplier, 1, *get_window_sizes(layer)),
    )


def _build_depthwise_module(layer: Any, into: int, bias: bool) -> Any:
    from torch import nn

    return getattr(nn, f"Conv{layer.rank}d")(
        into,
        into * layer.depth_multiplier,
        layer.kernel_size,
        layer.strides,
        dilation=layer.dilation_rate,
        groups=into,
        bias=bias,
    )
