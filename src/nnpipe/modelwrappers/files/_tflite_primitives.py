"""What TensorFlow Lite's operators compute, as primitives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nnpipe.core.errors import SpecMismatch
from nnpipe.core.primitive_shapes import Shape, convolution, linear, matrix_product
from nnpipe.core.primitives import Length, PlainKind, PlainPrimitive, PoolingPrimitive, Primitive, RecurrentPrimitive

_PLAIN: Mapping[PlainKind, str] = {
    "elementwise": (
        "ADD SUB MUL DIV MAXIMUM MINIMUM RELU RELU6 RELU_N1_TO_1 RELU_0_TO_1 LEAKY_RELU ELU LOGISTIC TANH "
        "HARD_SWISH GELU PRELU EXP LOG SQRT RSQRT SQUARE SQUARED_DIFFERENCE ABS NEG SIN COS FLOOR CEIL ROUND POW "
        "FLOOR_DIV FLOOR_MOD EQUAL NOT_EQUAL GREATER GREATER_EQUAL LESS LESS_EQUAL LOGICAL_AND LOGICAL_OR "
        "LOGICAL_NOT SELECT SELECT_V2 ADD_N CUMSUM SIGN ATAN2 BITWISE_XOR RIGHT_SHIFT"
    ),
    "reduction": "MEAN SUM REDUCE_MAX REDUCE_MIN REDUCE_PROD REDUCE_ANY REDUCE_ALL ARG_MAX ARG_MIN TOPK_V2",
    "softmax": "SOFTMAX LOG_SOFTMAX",
    "quantisation": "QUANTIZE DEQUANTIZE FAKE_QUANT",
    "gather": "GATHER GATHER_ND EMBEDDING_LOOKUP",
    "movement": (
        "CONCATENATION PACK UNPACK SPLIT SPLIT_V SLICE STRIDED_SLICE PAD PADV2 MIRROR_PAD TILE TRANSPOSE CAST FILL "
        "RANGE ONE_HOT SPACE_TO_DEPTH DEPTH_TO_SPACE SPACE_TO_BATCH_ND BATCH_TO_SPACE_ND REVERSE_V2 "
        "REVERSE_SEQUENCE SCATTER_ND BROADCAST_TO BROADCAST_ARGS DYNAMIC_UPDATE_SLICE ZEROS_LIKE MATRIX_DIAG "
        "MATRIX_SET_DIAG WHERE SPARSE_TO_DENSE UNIQUE"
    ),
    "view": "RESHAPE SQUEEZE EXPAND_DIMS SHAPE RANK BITCAST",
}
_PLAINS: dict[str, PlainKind] = {name: kind for kind, names in _PLAIN.items() for name in names.split()}
_RANDOM = {"RANDOM_UNIFORM", "RANDOM_STANDARD_NORMAL", "MULTINOMIAL"}
_NORMALISATIONS = {"L2_NORMALIZATION": "l2", "LOCAL_RESPONSE_NORMALIZATION": "local response"}
_RESIZES = {"RESIZE_BILINEAR": "linear", "RESIZE_NEAREST_NEIGHBOR": "nearest"}
_POOLS = {"MAX_POOL_2D": "max", "AVERAGE_POOL_2D": "mean", "L2_POOL_2D": "norm"}
_ACTIVATIONS = {1: "relu", 2: "relu_n1_to_1", 3: "relu6", 4: "tanh", 5: "sign_bit"}
_Shapes = Sequence[Shape | None]


def primitives_of(kind: str, options: Mapping[str, int], inputs: _Shapes, outputs: _Shapes) -> tuple[Primitive, ...]:
    """Return the primitives of an operator: its own and a fused activation; none if it is not known here.

    Parameters
    ----------
    kind
        The operator's name in the schema.
    options
        What :func:`~nnpipe.formats.tflite_options.options_of` returns.
    inputs, outputs
        Shapes in the order of the operator's tensors, ``None`` for tensors that are not known.
    """
    try:
        found = _primitive(kind, options, inputs, outputs)
    except (SpecMismatch, IndexError, TypeError):
        return ()
    if found is None:
        return ()
    activation = _ACTIVATIONS.get(options.get("activation", 0))
    return (found,) if activation is None else (found, PlainPrimitive("elementwise", activation))


def _primitive(kind: str, options: Mapping[str, int], inputs: _Shapes, outputs: _Shapes) -> Primitive | None:
    if kind in _PLAINS:
        return PlainPrimitive(_PLAINS[kind], kind.lower())
    if kind in _RANDOM:
        return PlainPrimitive("elementwise", "random")
    if kind in _NORMALISATIONS:
        return PlainPrimitive("normalisation", _NORMALISATIONS[kind])
    if kind in _RESIZES:
        return PlainPrimitive("resize", _RESIZES[kind], (1, 2))
    if kind in _POOLS:
        return PoolingPrimitive(_POOLS[kind], _along("filter", options), _along("stride", options))
    if kind == "FULLY_CONNECTED":
        units, depth = _shape(inputs, 1)
        return linear(_shape(inputs, 0), units, depth)
    if kind == "BATCH_MATMUL":
        flipped = bool(options.get("adjoint_first")), bool(options.get("adjoint_second"))
        return matrix_product(_shape(inputs, 0), _shape(inputs, 1), flipped)
    if kind == "UNIDIRECTIONAL_SEQUENCE_LSTM":
        return _lstm(inputs, outputs)
    return _convolution(kind, options, inputs, outputs)


def _convolution(kind: str, options: Mapping[str, int], inputs: _Shapes, outputs: _Shapes) -> Primitive | None:
    transposed = kind in ("TRANSPOSE_CONV", "CONV_3D_TRANSPOSE")
    if not transposed and kind not in ("CONV_2D", "DEPTHWISE_CONV_2D", "CONV_3D"):
        return None
    # The first input of a transposed convolution is the shape of its output.
    data, weights, output = _shape(inputs, 2 if transposed else 0), _shape(inputs, 1), _shape(outputs, 0)
    taken, given = data[-1], output[-1]
    groups: Length = 1
    if kind.startswith("CONV_3D"):  # (depth, height, width, in, out), or (.., out, in) if it is transposed
        kernel = weights[:3]
    else:  # (out, height, width, in); depthwise (1, height, width, out)
        kernel = weights[1:3]
        if kind == "DEPTHWISE_CONV_2D":
            groups = taken
        elif taken and weights[3]:
            groups = taken // weights[3]
    return convolution(
        data, kernel, (taken, given), output, channel_axis=-1, groups=groups or 0,
        strides=_along("stride", options), dilations=_along("dilation", options), transposed=transposed,
    )  # fmt: skip


def _lstm(inputs: _Shapes, outputs: _Shapes) -> Primitive | None:
    data, weights, output = _shape(inputs, 0), _shape(inputs, 1), _shape(outputs, 0)
    units = weights[0]
    # The state is projected to fewer numbers, for which there is no rule; or steps come first, which changes nothing.
    return RecurrentPrimitive("lstm", data[0], data[1], data[2], units) if output[-1] == units else None


def _along(name: str, options: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(options[f"{name}_{axis}"] for axis in "dhw" if f"{name}_{axis}" in options)


def _shape(shapes: _Shapes, place: int) -> Shape:
    found = shapes[place]
    if found is None:
        raise SpecMismatch("a tensor has no known shape")
    return found
