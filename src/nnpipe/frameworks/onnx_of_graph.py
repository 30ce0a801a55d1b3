"""An ONNX network with random weights that computes as much as a graph of any framework.

Of the graph only what is computed and the shapes of tensors are used: neither names nor numbers of
it are in the result.  Attributes follow from shapes, such as the axis along which values are
joined.  Where layouts differ, channels come first, as ONNX has them.  Numbers of 8 bits are
computed with as in quantised ONNX files: between conversions that runtimes fuse.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from nnpipe.core.errors import NotSupported
from nnpipe.core.graph import Graph, Operation
from nnpipe.core.primitives import (
    AttentionPrimitive,
    ConvolutionPrimitive,
    MatrixProduct,
    PlainPrimitive,
    PoolingPrimitive,
    Primitive,
    RecurrentPrimitive,
)
from nnpipe.frameworks.onnx_graph_values import (
    GraphValues,
    Lengths,
    add_copy,
    add_reshape,
    add_transpose,
    build_onnx_pads,
)

_ELEMENTWISE = (
    "Abs Acos Acosh Add And Asin Asinh Atan Atanh BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Ceil "
    "Celu Clip Cos Cosh Div Elu Equal Erf Exp Floor Gelu Greater GreaterOrEqual HardSigmoid "
    "HardSwish IsInf IsNaN LeakyRelu Less LessOrEqual Log Max Mean Min Mish Mod Mul Neg Not Or "
    "PRelu Pow Reciprocal Relu Round Selu Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Sub Sum Tan "
    "Tanh Where Xor"
)
_OPERATORS = {name.lower(): name for name in _ELEMENTWISE.split()} | {
    "relu6": "Clip",
    "hardtanh": "Clip",
    "relu_n1_to_1": "Clip",
    "logistic": "Sigmoid",
    "hard_swish": "HardSwish",
    "leaky_relu": "LeakyRelu",
    "hard_sigmoid": "HardSigmoid",
    "truediv": "Div",
    "floor_div": "Div",
    "multiply": "Mul",
    "subtract": "Sub",
    "rsqrt": "Reciprocal",
    "squared_difference": "Sub",
    "maximum": "Max",
    "minimum": "Min",
    "square": "Abs",
    "dropout": "Identity",
    "quickgelu": "Gelu",
    "fastgelu": "Gelu",
    "biasgelu": "Gelu",
}
_ONE_INPUT = {"Clip", "Gelu"}  # further inputs are bounds and biases
_REDUCTIONS = {"max": "ReduceMax", "min": "ReduceMin", "sum": "ReduceSum", "prod": "ReduceProd"}
_SWISH = ("swish", "silu")
_JOINS = ("concat", "concatenation", "cat", "pack")
_TURNS = ("transpose", "permute")


def add_plain_operation(
    values: GraphValues,
    what: PlainPrimitive,
    operation: Operation,
    x: str,
    shape: Lengths,
    out: Lengths,
) -> tuple[str, Lengths]:
    """Add the nodes of an operation, and return the result with its shape.

    Parameters
    ----------
    values
        Takes the nodes, and knows the tensors.
    what, operation
        The operation.
    x, shape
        Its first input that is not a constant.
    out
        The shape that its result has in the end.

    Raises
    ------
    NotSupported
        If there is no rule for it.
    """
    function = what.function.lower()
    if what.plain == "quantisation":
        return _add_quantization(values, operation, x, shape), shape or out
    if not x:
        raise NotSupported(operation.kind)
    if what.plain == "elementwise":
        rank = max(
            len(values.shape(name))
            for name in (*values.list_computed_inputs(operation), operation.outputs[0])
        )
        return _add_elementwise(
            values, function, [values.operand(name, rank) for name in operation.inputs]
        ), out
    if what.plain == "reduction":
        x, shape = _add_reduction(values, function, x, shape, out)
        dtype = values.dtype(operation.outputs[0])
        return (
            _add_cast(values, x, dtype) if function.startswith("arg") and dtype != "int64" else x
        ), shape
    if what.plain == "normalisation":
        return _add_normalization(values, function, x, shape), shape
    if what.plain == "softmax":
        return _add_softmax(values, function, x), shape
    if what.plain == "resize" and len(shape) == len(out):
        mode = function if function in ("linear", "cubic") else "nearest"
        return values.add(
            "Resize", x, "", "", values.constant(np.array(out, np.int64)), mode=mode
        ), out
    if what.plain == "gather":
        return _add_gather(values, operation, out), out
    if what.plain == "view":
        if math.prod(shape) == math.prod(out):
            return add_reshape(values, x, shape, out), out
        dtype = values.dtype(operation.outputs[0])
        if dtype != values.dtype(values.list_computed_inputs(operation)[0]):  # a shape as numbers
            return values.constant(np.ones(out, np.dtype(dtype))), out
    return _add_movement(values, function, operation, x, shape, out)


def add_activation(values: GraphValues, what: Primitive, x: str) -> str:
    """Add the nodes of an activation that is part of another operation.

    Raises
    ------
    NotSupported
        If there is no rule for it.
    """
    if isinstance(what, PlainPrimitive) and what.plain == "softmax":
        return _add_softmax(values, what.function.lower(), x)
    if isinstance(what, PlainPrimitive) and what.plain == "elementwise":
        return _add_elementwise(values, what.function.lower(), [x])
    raise NotSupported(what.kind)


def _add_softmax(values: GraphValues, function: str, x: str) -> str:
    return values.add("LogSoftmax" if "log" in function else "Softmax", x, axis=-1)


def _add_elementwise(values: GraphValues, function: str, given: Sequence[str]) -> str:
    if function in _SWISH:
        return values.add("Mul", given[0], values.add("Sigmoid", given[0]))
    kind = _OPERATORS.get(function)
    if kind is None:
        raise NotSupported(function)
    if kind == "Clip":
        return values.add(
            "Clip", given[0], *(values.constant(np.array(bound, np.float32)) for bound in (0, 6))
        )
    return values.add(kind, *(given[:1] if kind in _ONE_INPUT else given))


def _add_reduction(
    values: GraphValues, function: str, x: str, shape: Lengths, out: Lengths
) -> tuple[str, Lengths]:
    if math.prod(out) == math.prod(shape):
        return x, shape
    axes = _find_reduced_axes(shape, out)
    if axes is None or function == "topk":
        raise NotSupported(function)
    if function.startswith("arg"):
        return values.add("ArgMax", x, axis=axes[0], keepdims=0), tuple(
            np.delete(shape, axes[0]).tolist()
        )
    word = next((full for part, full in _REDUCTIONS.items() if part in function), "ReduceMean")
    kept = tuple(1 if axis in axes else length for axis, length in enumerate(shape))
    return values.add(word, x, values.constant(np.array(axes, np.int64)), keepdims=1), kept


def _add_normalization(values: GraphValues, function: str, x: str, shape: Lengths) -> str:
    if function in ("layer", "rms"):  # ONNX has had the second one since opset 23
        last = shape[-1]
        return values.add(
            "LayerNormalization", x, values.weights(last, mean=1), values.weights(last), axis=-1
        )
    if function == "local response":
        return values.add("LRN", x, size=5)
    channels = shape[1] if len(shape) > 1 else 1
    if function == "batch":
        near_one, zeros, means = (values.weights(channels, mean=mean) for mean in (1, 0, 0))
        ones = values.constant(np.ones(channels, np.float32))
        return values.add("BatchNormalization", x, near_one, zeros, means, ones)
    if function == "instance":
        return values.add(
            "InstanceNormalization", x, values.weights(channels, mean=1), values.weights(channels)
        )
    raise NotSupported(function)


def _add_quantization(values: GraphValues, operation: Operation, x: str, shape: Lengths) -> str:
    first, result = operation.inputs[0], operation.outputs[0]
    if values.is_small(first) and values.is_small(result):  # to another scale
        return x
    if not x:  # integer weights
        shape = values.shape(first)
        x = values.value(first)
    scales = [name for name in operation.inputs[1:] if values.dtype(name) == "float32"]
    each = values.shape(scales[0]) if scales else ()
    integer = (
        values.dtype(first)
        if values.dtype(first).startswith(("int", "uint"))
        else values.dtype(result)
    )
    scale = values.constant(np.full(each, 0.02, np.float32))
    zero = values.constant(np.zeros(each, np.dtype(integer)))
    kind = "DequantizeLinear" if integer == values.dtype(first) else "QuantizeLinear"
    if not each:
        return values.add(kind, x, scale, zero)
    axis = next((number for number, length in enumerate(shape) if length == each[0]), 0)
    return values.add(kind, x, scale, zero, axis=axis)


def _add_gather(values: GraphValues, operation: Operation, out: Lengths) -> str:
    given = values.list_computed_inputs(operation)
    indices = [name for name in given if values.dtype(name) in ("int32", "int64")]
    constants = values.constants(operation)
    if indices and constants:  # an embedding
        return values.add("Gather", values.value(constants[0]), values.value(indices[0]), axis=0)
    return add_copy(values, values.value(given[0]), values.shape(given[0]), out)


def _add_movement(
    values: GraphValues, function: str, operation: Operation, x: str, shape: Lengths, out: Lengths
) -> tuple[str, Lengths]:
    given = values.list_computed_inputs(operation)
    if function in _JOINS and len(given) > 1:
        parts = [(values.value(name), values.shape(name)) for name in given]
        if function == "pack":  # along an axis that is new
            parts = [(add_reshape(values, y, its, (1, *its)), (1, *its)) for y, its in parts]
            joined = values.add("Concat", *(y for y, _ in parts), axis=0)
            return add_copy(values, joined, (len(parts), *shape), out), out
        along = [
            axis for axis in range(len(out)) if sum(its[axis] for _, its in parts) == out[axis]
        ]
        differing = [axis for axis in along if any(its[axis] != out[axis] for _, its in parts)]
        return values.add("Concat", *(y for y, _ in parts), axis=(differing or [0])[0]), out
    if function == "cast":
        return _add_cast(values, x, values.dtype(operation.outputs[0])), shape
    return add_copy(values, x, shape, out, turned=function in _TURNS), out


def _add_cast(values: GraphValues, x: str, dtype: str) -> str:
    from onnx import helper

    return values.add("Cast", x, to=helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def _find_reduced_axes(shape: Lengths, out: Lengths) -> list[int] | None:
    """Return the axes that a reduction removes or leaves with the length 1; ``None`` if none
    fit.
    """
    if len(shape) == len(out):
        return [
            axis for axis, pair in enumerate(zip(shape, out, strict=True)) if pair[0] != pair[1]
        ]
    for axes in itertools.combinations(range(len(shape)), max(len(shape) - len(out), 0)):
        if tuple(length for axis, length in enumerate(shape) if axis not in axes) == out:
            return list(axes)
    return None


_MOST_NAMED = 8
# functions that runtimes fuse with a quantisation behind them
_POSITIVE = ("relu", "relu6", "clip")
_COPIED = ("quantisation", "gather", "movement", "view")


def build_onnx_of_graph(
    graph: Graph, random: np.random.Generator, folded: frozenset[str] = frozenset()
) -> bytes:
    """Return the content of an ONNX file with a network of the same operations and shapes.

    Parameters
    ----------
    graph
        The graph, with the length of every axis known.
    random
        Draws the weights.
    folded
        Operations on constants alone, which are replaced by constants.

    Raises
    ------
    NotSupported
        If some operations cannot be written; the message names them with their number.
    ConversionError
        If the weights would be larger than one file can hold.
    """
    values = GraphValues(graph, random)
    refused: Counter[str] = Counter()
    for operation in graph.operations:
        if operation.name in folded and not any(
            each.kind == "quantisation" for each in operation.primitives
        ):
            continue
        try:
            _write(values, operation)
        # the last two for shapes that contradict the operation
        except (NotSupported, ValueError, IndexError):
            refused[operation.kind] += 1
            values.put_anything(operation)
    if refused:
        named = ", ".join(f"{number} {kind}" for kind, number in refused.most_common(_MOST_NAMED))
        raise NotSupported(
            f"a network of the same cost cannot be made: it has operations without a rule: {named}"
        )
    return values.model(*(values.value(name) for name in graph.outputs))


def _write(values: GraphValues, operation: Operation) -> None:
    """Add the nodes of an operation.

    Raises
    ------
    NotSupported
        If there is no rule for it.
    """
    if not operation.primitives or not operation.outputs or operation.unlisted:
        raise NotSupported(operation.kind)
    given, result, first = (
        values.list_computed_inputs(operation),
        operation.outputs[0],
        operation.primitives[0],
    )
    out = values.shape(result)
    rescaled = bool(given) and values.is_small(given[0]) and values.is_small(result)
    computes = first.kind not in _COPIED or (first.kind == "quantisation" and rescaled)
    x, shape = "", Lengths()
    if given:
        x, shape = (
            values.operand(given[0]) if computes else values.value(given[0]),
            values.shape(given[0]),
        )
    x, shape = _add_first_primitive(values, first, operation, x, shape, out)
    for each in operation.primitives[1:]:  # fused behind it: activations
        x = add_activation(values, each, x)
    x = add_reshape(values, x, shape, out)
    if computes and values.is_small(result):
        values.put_rounded(result, x, positive=_is_positive(operation.primitives[-1]))
    else:
        values.put(result, x)
    for place, name in enumerate(operation.outputs[1:], 1):
        if isinstance(first, RecurrentPrimitive):
            values.put(name, f"{x}_{place}")
        elif values.is_read(name):
            if not isinstance(first, PlainPrimitive) or not given:
                raise NotSupported(operation.kind)
            values.put(
                name,
                add_copy(
                    values, values.value(given[0]), values.shape(given[0]), values.shape(name)
                ),
            )


def _is_positive(what: Primitive) -> bool:
    return isinstance(what, PlainPrimitive) and what.function.lower() in _POSITIVE


def _add_first_primitive(
    values: GraphValues, what: Primitive, operation: Operation, x: str, shape: Lengths, out: Lengths
) -> tuple[str, Lengths]:
    """Add the nodes of the first primitive of an operation, and return the result with its
    shape.
    """
    if isinstance(what, PlainPrimitive):
        return add_plain_operation(values, what, operation, x, shape, out)
    if isinstance(what, ConvolutionPrimitive):
        return _add_convolution(values, what, operation, x, shape, out)
    if isinstance(what, MatrixProduct):
        return _add_product(values, what, operation, out)
    if isinstance(what, PoolingPrimitive):
        return _add_pooling(values, what, x, shape, out)
    if isinstance(what, RecurrentPrimitive):
        return _add_recurrent(values, what, x, shape, out)
    if isinstance(what, AttentionPrimitive):
        return _add_attention(values, operation, out)
    raise NotSupported(operation.kind)


def _add_convolution(
    values: GraphValues,
    what: ConvolutionPrimitive,
    operation: Operation,
    x: str,
    shape: Lengths,
    out: Lengths,
) -> tuple[str, Lengths]:
    if len(shape) != len(what.kernel) + 2:
        raise NotSupported(operation.kind)
    each_group = what.in_channels // what.groups
    filters = (what.out_channels, each_group)
    if what.transposed:
        filters = (what.in_channels, what.out_channels // what.groups)
    given = [
        x,
        values.add_stored_weights(_choose_weight_type(values, operation), *filters, *what.kernel),
    ]
    if bias := _add_bias(values, operation, what.out_channels):
        given.append(bias)
    attributes: dict[str, Any] = {
        "kernel_shape": list(what.kernel),
        "strides": list(what.strides),
        "dilations": list(what.dilations),
        "group": what.groups,
    }
    ends = (out, shape) if what.transposed else (shape, out)
    # By how much the windows reach beyond the values; less than nothing if they leave some out.
    windows = zip(ends[0][2:], ends[1][2:], what.kernel, what.strides, what.dilations, strict=True)
    over = [
        (times - 1) * step + (kernel - 1) * dilation + 1 - long
        for long, times, kernel, step, dilation in windows
    ]
    pads = build_onnx_pads([max(each, 0) for each in over])
    if what.transposed:
        missing = [max(-each, 0) for each in over]
        found = values.add("ConvTranspose", *given, pads=pads, output_padding=missing, **attributes)
    else:
        found = values.add("Conv", *given, pads=pads, **attributes)
    return found, (shape[0], what.out_channels, *out[2:])


def _choose_weight_type(values: GraphValues, operation: Operation) -> str:
    """Return the element type of the weights of a product or convolution."""
    constants = values.constants(operation)
    # otherwise real numbers would be rounded
    small = bool(constants) and values.is_small(operation.inputs[0])
    return (
        next((values.dtype(name) for name in constants if values.is_small(name)), "float32")
        if small
        else "float32"
    )


def _add_bias(values: GraphValues, operation: Operation, length: int) -> str:
    """Add the bias of an operation; return an empty text if it has none."""
    found = [name for name in values.constants(operation) if values.shape(name) == (length,)]
    kind = {"int32", "float32"} & {values.dtype(name) for name in found}
    return (
        values.add_stored_weights("int32" if "int32" in kind else "float32", length) if kind else ""
    )


def _add_product(
    values: GraphValues, what: MatrixProduct, operation: Operation, out: Lengths
) -> tuple[str, Lengths]:
    rows, depth, columns = (int(length or 1) for length in (what.rows, what.depth, what.columns))
    given = values.list_computed_inputs(operation)
    if len(given) == 1:
        x, shape = values.operand(given[0]), values.shape(given[0])
        stored = _choose_weight_type(values, operation)
        bias = _add_bias(values, operation, columns)
        if shape[-1:] != (depth,):
            x, shape = add_reshape(values, x, shape, (-1, depth)), (rows, depth)
        if len(shape) == 2 and (bias or operation.kind == "Gemm"):
            more = [bias] if bias else []
            return values.add(
                "Gemm", x, values.add_stored_weights(stored, columns, depth), *more, transB=1
            ), (
                shape[0],
                columns,
            )
        y, result = (
            values.add("MatMul", x, values.add_stored_weights(stored, depth, columns)),
            (*shape[:-1], columns),
        )
        return (values.add("Add", y, bias) if bias else y), result
    (x, shape), (y, other) = ((values.operand(name), values.shape(name)) for name in given[:2])
    if shape[-1] != depth and len(shape) > 1 and shape[-2] == depth:
        x, shape = add_transpose(values, x, shape)
    if other[-1] == depth and (other[-1] != columns or other[-2] != depth):
        y, other = add_transpose(values, y, other)
    if shape[-1] != other[-2]:
        raise NotSupported(operation.kind)
    return values.add("MatMul", x, y), (*out[:-2], shape[-2], other[-1])


def _add_attention(values: GraphValues, operation: Operation, out: Lengths) -> tuple[str, Lengths]:
    """Add two products with a softmax between them, of queries, keys and values with heads of
    their own.
    """
    given = values.list_computed_inputs(operation)
    if len(given) < 3 or any(len(values.shape(name)) != 4 for name in given[:3]):
        raise NotSupported(operation.kind)
    (queries, _), (keys, shape), (contents, _) = (
        (values.operand(name), values.shape(name)) for name in given[:3]
    )
    scale = values.constant(np.array(1 / math.sqrt(shape[-1]), np.float32))
    scores = values.add(
        "Mul", values.add("MatMul", queries, add_transpose(values, keys, shape)[0]), scale
    )
    return values.add("MatMul", values.add("Softmax", scores, axis=-1), contents), out


def _add_pooling(
    values: GraphValues, what: PoolingPrimitive, x: str, shape: Lengths, out: Lengths
) -> tuple[str, Lengths]:
    word = "Max" if what.function == "max" else "Average"
    if not what.kernel:
        return values.add(f"Global{word}Pool", x), (*shape[:2], *(1,) * (len(shape) - 2))
    strides = what.strides or what.kernel
    windows = zip(shape[2:], out[2:], what.kernel, strides, strict=True)
    pads = build_onnx_pads(
        [max((times - 1) * step + kernel - long, 0) for long, times, kernel, step in windows]
    )
    found = values.add(
        f"{word}Pool", x, kernel_shape=list(what.kernel), strides=list(strides), pads=pads
    )
    return found, (*shape[:2], *out[2:])


def _add_recurrent(
    values: GraphValues, what: RecurrentPrimitive, x: str, shape: Lengths, out: Lengths
) -> tuple[str, Lengths]:
    batch, steps, width, units = (
        int(length or 1) for length in (what.batch, what.steps, what.inputs, what.units)
    )
    kind, gates = {"lstm": ("LSTM", 4), "gru": ("GRU", 3), "rnn": ("RNN", 1)}[what.cell]
    many = what.directions
    y = values.add(
        kind,
        add_reshape(values, x, shape, (steps, batch, width)),
        values.weights(many, gates * units, width),
        values.weights(many, gates * units, units),
        values.weights(many, 2 * gates * units),
        outputs=3 if kind == "LSTM" else 2,
        hidden_size=units,
        direction="forward" if many == 1 else "bidirectional",
    )
    full = (steps, many, batch, units)
    if math.prod(out) == math.prod(full):
        return y, full
    last = values.add("Gather", y, values.constant(np.array(steps - 1, np.int64)), axis=0)
    return last, full[1:]
