"""The primitives of ONNX operators: what a node computes, by its attributes and shapes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from nnpipe.core.errors import SpecMismatch
from nnpipe.core.primitives import (
    AttentionPrimitive,
    Length,
    PlainKind,
    PlainPrimitive,
    PoolingPrimitive,
    Primitive,
    RecurrentPrimitive,
    Shape,
    build_convolution,
    build_einsum,
    build_linear,
    build_matrix_product,
    multiply_lengths,
)

_PLAIN: Mapping[PlainKind, str] = {
    "elementwise": (
        "Abs Acos Acosh Add And Asin Asinh Atan Atanh BitShift BitwiseAnd BitwiseNot BitwiseOr "
        "BitwiseXor Ceil Celu Clip Cos Cosh Div Elu Equal Erf Exp Floor Gelu Greater "
        "GreaterOrEqual HardSigmoid HardSwish IsInf IsNaN LeakyRelu Less LessOrEqual Log Max Mean "
        "Min Mish Mod Mul Neg Not Or PRelu Pow Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin "
        "Sinh Softplus Softsign Sqrt Sub Sum Swish Tan Tanh ThresholdedRelu Where Xor Dropout "
        "CumSum RotaryEmbedding com.microsoft.QLinearAdd com.microsoft.QLinearMul "
        "com.microsoft.QLinearLeakyRelu com.microsoft.QLinearSigmoid com.microsoft.QuickGelu "
        "com.microsoft.FastGelu com.microsoft.BiasGelu com.microsoft.Gelu ai.onnx.ml.Scaler"
    ),
    "reduction": (
        "ArgMax ArgMin ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean "
        "ReduceMin ReduceProd ReduceSum ReduceSumSquare TopK com.microsoft.QLinearReduceMean"
    ),
    "softmax": "Softmax LogSoftmax Hardmax com.microsoft.QLinearSoftmax",
    "quantisation": (
        "QuantizeLinear DequantizeLinear DynamicQuantizeLinear com.microsoft.QuantizeLinear "
        "com.microsoft.DequantizeLinear"
    ),
    "gather": "Gather GatherElements GatherND",
    "movement": (
        "Cast CastLike Compress Concat ConstantOfShape DepthToSpace Expand EyeLike OneHot Pad "
        "Range ReverseSequence ScatterElements ScatterND Scatter Slice SpaceToDepth Split Tile "
        "Transpose Trilu TensorScatter Upsample com.microsoft.QLinearConcat Unique NonZero"
    ),
    "view": "Flatten Identity Reshape Shape Size Squeeze Unsqueeze",
}


_PLAINS: dict[str, PlainKind] = {
    name: kind for kind, names in _PLAIN.items() for name in names.split()
}


_RANDOM = set(
    "RandomNormal RandomNormalLike RandomUniform RandomUniformLike Bernoulli Multinomial".split()
)


_NORMALISATIONS = {
    "BatchNormalization": "batch",
    "InstanceNormalization": "instance",
    "LayerNormalization": "layer",
    "GroupNormalization": "group",
    "RMSNormalization": "rms",
    "LpNormalization": "l2",
    "LRN": "local response",
    "SimplifiedLayerNormalization": "rms",
    "MeanVarianceNormalization": "layer",
    "com.microsoft.SkipLayerNormalization": "layer",
    "com.microsoft.SkipSimplifiedLayerNormalization": "rms",
}


_EPSILON = 1e-5  # of normalisations that do not state another


_WEIGHTS = {
    "Conv": 1,
    "ConvTranspose": 1,
    "ConvInteger": 1,
    "com.microsoft.FusedConv": 1,
    "QLinearConv": 3,
}


_PRODUCTS = {"MatMul": 1, "MatMulInteger": 1, "QLinearMatMul": 3, "com.microsoft.QLinearMatMul": 3}


_GEMMS = {"Gemm": 1, "com.microsoft.QGemm": 3, "com.microsoft.FusedGemm": 1}


_POOLS = {
    "MaxPool": "max",
    "AveragePool": "mean",
    "LpPool": "norm",
    "com.microsoft.QLinearAveragePool": "mean",
}


_WHOLE_POOLS = {
    "GlobalMaxPool": "max",
    "GlobalAveragePool": "mean",
    "GlobalLpPool": "norm",
    "com.microsoft.QLinearGlobalAveragePool": "mean",
}


_CELLS: Mapping[str, Literal["lstm", "gru", "rnn"]] = {"LSTM": "lstm", "GRU": "gru", "RNN": "rnn"}


@dataclass(frozen=True)
class _Call:
    """A node: its kind, attributes, and the shapes of its inputs and outputs, ``None`` for those
    that are left out.
    """

    kind: str
    attributes: Mapping[str, Any]
    inputs: Sequence[Shape | None]
    outputs: Sequence[Shape | None]

    def shape(self, place: int) -> Shape:
        found = self.inputs[place] if place < len(self.inputs) else None
        if found is None:
            raise SpecMismatch(f"input {place} of {self.kind} has no known shape")
        return found

    def result(self) -> Shape:
        if not self.outputs or self.outputs[0] is None:
            raise SpecMismatch(f"the result of {self.kind} has no known shape")
        return self.outputs[0]

    def lengths(self, name: str) -> tuple[int, ...]:
        return tuple(int(length) for length in self.attributes.get(name, ()))


def list_primitives(
    kind: str,
    attributes: Mapping[str, Any],
    inputs: Sequence[Shape | None],
    outputs: Sequence[Shape | None],
) -> tuple[Primitive, ...]:
    """Return the primitives of a node; none if its operator is not known here, or its attributes
    contradict its shapes.

    Parameters
    ----------
    kind
        The operator, after its domain and a dot unless it is one of ONNX's own.
    attributes
        Values by name.
    inputs, outputs
        Shapes in the order of the operator's definition; ``None`` for tensors that are left out or
        have no known rank.
    """
    try:
        found = _describe_primitive(_Call(kind, attributes, inputs, outputs))
    except (SpecMismatch, IndexError, TypeError, ValueError):
        return ()
    return () if found is None else (found,)


def _describe_primitive(call: _Call) -> Primitive | None:
    kind = call.kind
    if kind in _PLAINS:
        return PlainPrimitive(_PLAINS[kind], kind.rpartition(".")[2].lower())
    if kind in _RANDOM:
        return PlainPrimitive("elementwise", "random")
    if kind in _NORMALISATIONS:
        epsilon = call.attributes.get("epsilon", _EPSILON)
        return PlainPrimitive("normalisation", _NORMALISATIONS[kind], epsilon=float(epsilon))
    if kind in _POOLS:
        return PoolingPrimitive(
            _POOLS[kind],
            call.lengths("kernel_shape"),
            call.lengths("strides"),
            call.lengths("dilations"),
        )
    if kind in _WHOLE_POOLS:
        return PoolingPrimitive(_WHOLE_POOLS[kind])
    if kind in _WEIGHTS:
        return _describe_convolution(call, call.shape(_WEIGHTS[kind]))
    if kind in _PRODUCTS:
        return build_matrix_product(call.shape(0), call.shape(_PRODUCTS[kind]))
    if kind in _GEMMS:
        flipped = bool(call.attributes.get("transA", 0)), bool(call.attributes.get("transB", 0))
        return build_matrix_product(call.shape(0), call.shape(_GEMMS[kind]), flipped)
    return _OTHERS[kind](call) if kind in _OTHERS else None


def _describe_convolution(call: _Call, weights: Shape) -> Primitive:
    groups, transposed = int(call.attributes.get("group", 1)), call.kind == "ConvTranspose"
    first, second = weights[:2]
    # (out, in / groups, kernel ...), or (in, out / groups, kernel ...) if it is transposed
    channels = (
        (first, multiply_lengths((second, groups)))
        if transposed
        else (multiply_lengths((second, groups)), first)
    )
    return build_convolution(
        call.shape(0),
        weights[2:],
        channels,
        call.result(),
        channel_axis=1,
        groups=groups,
        strides=call.lengths("strides"),
        dilations=call.lengths("dilations"),
        transposed=transposed,
    )


def _describe_recurrent(call: _Call) -> Primitive:
    data, weights, state = call.shape(0), call.shape(1), call.shape(2)
    steps, batch = (data[1], data[0]) if call.attributes.get("layout", 0) else data[:2]
    return RecurrentPrimitive(
        _CELLS[call.kind], batch, steps, weights[2], state[2], int(weights[0] or 1)
    )


def _describe_attention(call: _Call) -> Primitive:
    queries, keys, values = call.shape(0), call.shape(1), call.shape(2)
    heads: Length = call.attributes.get("q_num_heads") if len(queries) == 3 else queries[1]
    its: Length = call.attributes.get("kv_num_heads") if len(keys) == 3 else keys[1]
    depth = queries[-1] if len(queries) == 4 else _compute_share(queries[-1], heads)
    value_depth = values[-1] if len(values) == 4 else _compute_share(values[-1], its)
    past = call.inputs[4][2] if len(call.inputs) > 4 and call.inputs[4] is not None else 0
    length = None if keys[-2] is None or past is None else keys[-2] + past
    return AttentionPrimitive(
        multiply_lengths((queries[0], heads)), queries[-2], length, depth, value_depth
    )


def _compute_share(whole: Length, parts: Length) -> Length:
    return None if whole is None or not parts else whole // parts


def _describe_resize(call: _Call) -> Primitive:
    mode = call.attributes.get("mode", "nearest")
    rank = len(call.shape(0))
    changed = [
        axis
        for axis, pair in enumerate(zip(call.shape(0), call.result(), strict=True))
        if pair[0] != pair[1]
    ]
    return PlainPrimitive("resize", str(mode), tuple(changed[:rank]))


def _describe_quantised_product(call: _Call) -> Primitive:
    """Read MatMulNBits: products with a matrix of ``K`` by ``N`` values of a few bits."""
    return build_linear(call.shape(0), int(call.attributes["N"]), int(call.attributes["K"]))


_OTHERS: Mapping[str, Callable[[_Call], Primitive]] = {
    **dict.fromkeys(_CELLS, _describe_recurrent),
    "Attention": _describe_attention,
    "Einsum": lambda call: build_einsum(
        str(call.attributes["equation"]), [call.shape(place) for place in range(len(call.inputs))]
    ),
    "Resize": _describe_resize,
    "com.microsoft.MatMulNBits": _describe_quantised_product,
}
