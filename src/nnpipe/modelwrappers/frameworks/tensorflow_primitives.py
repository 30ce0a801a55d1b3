"""What the layers and operations of Keras compute, as primitives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from nnpipe.core.errors import SpecMismatch
from nnpipe.core.primitive_shapes import Shape, convolution, einsum, linear, matrix_product, product
from nnpipe.core.primitives import (
    AttentionPrimitive,
    MatrixProduct,
    PlainKind,
    PlainPrimitive,
    PoolingPrimitive,
    Primitive,
    RecurrentPrimitive,
)

_PLAIN: Mapping[PlainKind, str] = {
    "elementwise": (
        "Abs Absolute Activation ActivityRegularization Add Average Ceil Clip Cos Cumsum Divide ELU Elu Equal Erf "
        "Exp Expm1 Floor FloorDivide Gelu Greater GreaterEqual HardSigmoid HardSilu LeakyReLU LeakyRelu Less "
        "LessEqual Log Log1p LogSigmoid LogicalAnd LogicalNot LogicalOr Maximum Minimum Mod Multiply Negative "
        "Normalization NotEqual PReLU Power ReLU Reciprocal Relu Relu6 Rescaling Round Rsqrt Selu Sigmoid Sign Silu "
        "Sin Softplus Softsign Sqrt Square Subtract Tan Tanh TrueDivide Where"
    ),
    "reduction": "All Amax Amin Any Argmax Argmin Logsumexp Max Mean Min Prod Std Sum TopK Var",
    "softmax": "LogSoftmax Softmax",
    "gather": "Embedding Take TakeAlongAxis",
    "movement": (
        "Arange BroadcastTo Cast CategoryEncoding Concatenate Cropping1D Cropping2D Cropping3D Flip Full FullLike "
        "GetItem OneHot Ones OnesLike Pad Permute Repeat RepeatVector Roll Slice Split Stack Swapaxes Tile "
        "Transpose Moveaxis Zeros ZeroPadding1D ZeroPadding2D ZeroPadding3D ZerosLike"
    ),
    "view": (
        "AlphaDropout Dropout ExpandDims Flatten GaussianDropout GaussianNoise Identity Masking Ravel Reshape "
        "SpatialDropout1D SpatialDropout2D SpatialDropout3D Squeeze StopGradient"
    ),
}
_PLAINS: dict[str, PlainKind] = {name: kind for kind, names in _PLAIN.items() for name in names.split()}
_NORMALISATIONS = {
    "BatchNormalization": "batch", "LayerNormalization": "layer", "GroupNormalization": "group",
    "UnitNormalization": "l2", "RMSNormalization": "rms",
}  # fmt: skip
_CELLS: Mapping[str, Literal["lstm", "gru", "rnn"]] = {"LSTM": "lstm", "GRU": "gru", "SimpleRNN": "rnn"}
_POOLS = {"MaxPooling": "max", "AveragePooling": "mean", "GlobalMaxPooling": "max", "GlobalAveragePooling": "mean"}
_RESIZES = {"nearest": "nearest", "bilinear": "linear", "bicubic": "cubic"}
_RANKS = {"1D": 1, "2D": 2, "3D": 3}


@dataclass(frozen=True)
class _Call:
    """A call of a layer, and the shapes of its tensors."""

    layer: Any
    inputs: Sequence[Shape]
    outputs: Sequence[Shape]

    @property
    def channel_axis(self) -> int:
        first = getattr(self.layer, "data_format", "channels_last") == "channels_first"
        return 1 if first else -1

    def channels(self, shape: Shape) -> int:
        found = shape[self.channel_axis]
        if found is None:
            raise SpecMismatch("the number of channels is not known")
        return found


def primitives_of(layer: Any, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> tuple[Primitive, ...]:
    """Return the primitives of a call of a Keras layer or operation; none if it is not known here.

    Parameters
    ----------
    layer
        The layer, or an operation of ``keras.ops``.
    inputs, outputs
        The shapes of the tensors that it takes and returns, without weights.
    """
    if not type(layer).__module__.startswith("keras."):
        return ()  # a user's class, whatever its name
    try:
        return _primitives(_Call(layer, inputs, outputs))
    except (SpecMismatch, IndexError, KeyError, TypeError, AttributeError, ValueError):
        return ()


def _primitives(call: _Call) -> tuple[Primitive, ...]:
    name = type(call.layer).__name__
    if name == "Activation":
        return _activation(call.layer) or (PlainPrimitive("view", "linear"),)
    if name in _PLAINS:
        return (PlainPrimitive(_PLAINS[name], name.lower()),)
    if name in _NORMALISATIONS:
        epsilon = getattr(call.layer, "epsilon", None)
        return (PlainPrimitive("normalisation", _NORMALISATIONS[name], epsilon=epsilon),)
    if name[:-2] in _POOLS and name[-2:] in _RANKS:
        kernel = tuple(getattr(call.layer, "pool_size", ()))
        return (PoolingPrimitive(_POOLS[name[:-2]], kernel, tuple(getattr(call.layer, "strides", ()))),)
    if name.startswith("UpSampling"):
        mode = _RESIZES[getattr(call.layer, "interpolation", "nearest")]
        return (PlainPrimitive("resize", mode, tuple(range(1, len(call.outputs[0]) - 1))),)
    found = _PARTS[name](call) if name in _PARTS else ()
    return (*found, *_activation(call.layer)) if name in _ACTIVATED else found


def _activation(layer: Any) -> tuple[Primitive, ...]:
    name = getattr(getattr(layer, "activation", None), "__name__", "linear")
    if name == "linear":
        return ()
    return (PlainPrimitive("softmax" if "softmax" in name else "elementwise", name),)


def _convolution(call: _Call) -> tuple[Primitive, ...]:
    layer = call.layer
    data, output = call.inputs[0], call.outputs[0]
    channels = call.channels(data), call.channels(output)
    return (
        convolution(
            data, tuple(layer.kernel_size), channels, output, channel_axis=call.channel_axis,
            groups=channels[0] if "Depthwise" in type(layer).__name__ else int(getattr(layer, "groups", 1)),
            strides=tuple(layer.strides), dilations=tuple(layer.dilation_rate),
            transposed=type(layer).__name__.endswith("Transpose"),
        ),
    )  # fmt: skip


def _separable(call: _Call) -> tuple[Primitive, ...]:
    layer = call.layer
    data, output = call.inputs[0], call.outputs[0]
    taken, given = call.channels(data), call.channels(output)
    between = taken * int(layer.depth_multiplier)
    first = convolution(
        data, tuple(layer.kernel_size), (taken, between), output, channel_axis=call.channel_axis, groups=taken,
        strides=tuple(layer.strides), dilations=tuple(layer.dilation_rate),
    )  # fmt: skip
    ones = (1,) * len(layer.kernel_size)
    return first, convolution(data, ones, (between, given), output, channel_axis=call.channel_axis)


def _dense(call: _Call) -> tuple[Primitive, ...]:
    return (linear(call.inputs[0], int(call.layer.units), call.inputs[0][-1]),)


def _einsum_dense(call: _Call) -> tuple[Primitive, ...]:
    return (einsum(call.layer.equation, [call.inputs[0], tuple(call.layer.kernel.shape)]),)


def _recurrent(call: _Call, directions: int = 1, layer: Any = None) -> tuple[Primitive, ...]:
    layer = call.layer if layer is None else layer
    batch, steps, width = call.inputs[0]
    cell = _CELLS[type(layer).__name__]
    return (RecurrentPrimitive(cell, batch, steps, width, int(layer.units), directions),)


def _bidirectional(call: _Call) -> tuple[Primitive, ...]:
    return _recurrent(call, 2, call.layer.forward_layer)


def _multi_head(call: _Call) -> tuple[Primitive, ...]:
    layer = call.layer
    query, value = call.inputs[0], call.inputs[1]
    key = call.inputs[2] if len(call.inputs) > 2 else value
    heads, depth, width = int(layer.num_heads), int(layer.key_dim), int(layer.value_dim)
    batch, output = product(query[:-2]), call.outputs[0]
    return (
        AttentionPrimitive(product((batch, heads)), query[-2], value[-2], depth, width),
        MatrixProduct(batch, query[-2], query[-1], heads * depth),
        MatrixProduct(batch, key[-2], key[-1], heads * depth),
        MatrixProduct(batch, value[-2], value[-1], heads * width),
        MatrixProduct(batch, query[-2], heads * width, output[-1]),
    )


def _matmul(call: _Call) -> tuple[Primitive, ...]:
    return (matrix_product(call.inputs[0], call.inputs[1]),)


def _einsum(call: _Call) -> tuple[Primitive, ...]:
    return (einsum(call.layer.subscripts, list(call.inputs)),)


_ACTIVATED = {
    f"{name}{rank}{ending}"
    for rank in _RANKS
    for name, ending in (("Conv", ""), ("DepthwiseConv", ""), ("SeparableConv", ""), ("Conv", "Transpose"))
} | {"Dense", "EinsumDense"}  # fmt: skip
_PARTS: Mapping[str, Callable[[_Call], tuple[Primitive, ...]]] = {
    **{name: _separable if name.startswith("Separable") else _convolution for name in _ACTIVATED if "Conv" in name},
    "Dense": _dense, "EinsumDense": _einsum_dense, "LSTM": _recurrent, "GRU": _recurrent, "SimpleRNN": _recurrent,
    "Bidirectional": _bidirectional, "MultiHeadAttention": _multi_head, "Matmul": _matmul, "Einsum": _einsum,
}  # fmt: skip
