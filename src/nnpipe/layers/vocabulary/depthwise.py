"""Depthwise and separable convolutions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, ClassVar

from nnpipe.layers.vocabulary.activations import ACTIVATION, ActivationFunction
from nnpipe.layers.vocabulary.constraints import CONSTRAINT, Constraint
from nnpipe.layers.vocabulary.field_table import row
from nnpipe.layers.vocabulary.initialisers import INITIALISER, GlorotUniform, Initialiser
from nnpipe.layers.vocabulary.layer import LayerVariable, Shape, TorchParts, data_format
from nnpipe.layers.vocabulary.objects import Raw
from nnpipe.layers.vocabulary.regularisers import REGULARISER, Regulariser
from nnpipe.layers.vocabulary.value_kinds import ChoiceKind, IntegerKind, SizesKind
from nnpipe.layers.vocabulary.weighted_layer import Biased, bias_of, described
from nnpipe.layers.vocabulary.windows import (
    channels_into,
    joined,
    sizes_of,
    slid_extents,
    sliding,
    stride_faults,
    torch_axes,
)

_PADDINGS = ("valid", "same")


class _DepthwiseConv(Biased):
    """Base of depthwise convolutions.

    Parameters
    ----------
    kernel_size
        Size of the window along each spatial axis; one integer stands for all axes.
    strides
        Step of the window along each spatial axis.
    padding
        ``"valid"`` adds nothing; ``"same"`` adds zeros so that the output has the size of the input divided by the
        stride, rounded up.
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
    data_format: str = data_format()
    dilation_rate: int | tuple[int, ...] = row(SizesKind(), default=1)
    activation: ActivationFunction | Raw | str | None = row(ACTIVATION, default=ActivationFunction())
    depthwise_initializer: Initialiser | Raw | str = row(INITIALISER, default=GlorotUniform())
    depthwise_regularizer: Regulariser | Raw | str | None = row(REGULARISER, default=None)
    depthwise_constraint: Constraint | Raw | str | None = row(CONSTRAINT, default=None)

    def _faults(self) -> Iterable[tuple[str, str]]:
        return stride_faults(self)

    def _shapes(self, *shapes: Shape) -> tuple[Shape, ...]:
        (shape,) = shapes
        count = channels_into(self, shape) * self.depth_multiplier
        return (joined(shape[0], slid_extents(self, shape), count, self.data_format),)

    def _variables(self, *shapes: Shape) -> tuple[LayerVariable, ...]:
        into = channels_into(self, shapes[0])
        return (_depthwise(self, into, "kernel", "weight"), *bias_of(self, into * self.depth_multiplier))

    def _torch(self, *shapes: Shape) -> TorchParts:
        core = _depthwise_module(self, channels_into(self, shapes[0]), self.use_bias)
        return sliding(self, core, lambda core, x: core(x))


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
        ``"valid"`` adds nothing; ``"same"`` adds zeros so that the output has the size of the input divided by the
        stride, rounded up; ``"causal"`` (one axis only) adds zeros before the first step alone.
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
    data_format: str = data_format()
    dilation_rate: int | tuple[int, ...] = row(SizesKind(), default=1)
    depth_multiplier: int = row(IntegerKind(), default=1)
    activation: ActivationFunction | Raw | str | None = row(ACTIVATION, default=ActivationFunction())
    depthwise_initializer: Initialiser | Raw | str = row(INITIALISER, default=GlorotUniform())
    pointwise_initializer: Initialiser | Raw | str = row(INITIALISER, default=GlorotUniform())
    depthwise_regularizer: Regulariser | Raw | str | None = row(REGULARISER, default=None)
    pointwise_regularizer: Regulariser | Raw | str | None = row(REGULARISER, default=None)
    depthwise_constraint: Constraint | Raw | str | None = row(CONSTRAINT, default=None)
    pointwise_constraint: Constraint | Raw | str | None = row(CONSTRAINT, default=None)

    def _faults(self) -> Iterable[tuple[str, str]]:
        return stride_faults(self)

    def _shapes(self, *shapes: Shape) -> tuple[Shape, ...]:
        (shape,) = shapes
        channels_into(self, shape)
        return (joined(shape[0], slid_extents(self, shape), self.filters, self.data_format),)

    def _variables(self, *shapes: Shape) -> tuple[LayerVariable, ...]:
        into = channels_into(self, shapes[0])
        shape = (*[1] * self.rank, into * self.depth_multiplier, self.filters)
        point = LayerVariable(
            "pointwise_kernel",
            shape,
            *described(self, "pointwise"),
            torch="pointwise.weight",
            axes=torch_axes(self.rank),
        )
        bias = [replace(bias, torch="pointwise.bias") for bias in bias_of(self, self.filters)]
        return (_depthwise(self, into, "depthwise_kernel", "depthwise.weight"), point, *bias)

    def _torch(self, *shapes: Shape) -> TorchParts:
        from torch import nn

        into = channels_into(self, shapes[0])
        core = nn.ModuleDict(
            {
                "depthwise": _depthwise_module(self, into, False),
                "pointwise": getattr(nn, f"Conv{self.rank}d")(
                    into * self.depth_multiplier, self.filters, 1, bias=self.use_bias
                ),
            }
        )
        return sliding(self, core, lambda core, x: core["pointwise"](core["depthwise"](x)))


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


def _depthwise(layer: Any, into: int, name: str, torch: str) -> LayerVariable:
    shape = (*sizes_of(layer), into, layer.depth_multiplier)
    return LayerVariable(
        name, shape, *described(layer, "depthwise"), torch=torch,
        axes=(layer.rank, layer.rank + 1, *range(layer.rank)),
        torch_shape=(into * layer.depth_multiplier, 1, *sizes_of(layer)),
    )  # fmt: skip


def _depthwise_module(layer: Any, into: int, bias: bool) -> Any:
    from torch import nn

    return getattr(nn, f"Conv{layer.rank}d")(
        into, into * layer.depth_multiplier, layer.kernel_size, layer.strides,
        dilation=layer.dilation_rate, groups=into, bias=bias,
    )  # fmt: skip
