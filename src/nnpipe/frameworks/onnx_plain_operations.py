"""Nodes for operations that a function and the shapes of their tensors describe: activations, sums, copies."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from nnpipe.core.errors import NotSupported
from nnpipe.core.graph import Operation
from nnpipe.core.primitives import PlainPrimitive, Primitive
from nnpipe.frameworks.onnx_graph_values import GraphValues
from nnpipe.frameworks.onnx_reshaping import Lengths, copied, reshaped

_ELEMENTWISE = (
    "Abs Acos Acosh Add And Asin Asinh Atan Atanh BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Ceil Celu Clip Cos Cosh "
    "Div Elu Equal Erf Exp Floor Gelu Greater GreaterOrEqual HardSigmoid HardSwish IsInf IsNaN LeakyRelu Less "
    "LessOrEqual Log Max Mean Min Mish Mod Mul Neg Not Or PRelu Pow Reciprocal Relu Round Selu Sigmoid Sign Sin Sinh "
    "Softplus Softsign Sqrt Sub Sum Tan Tanh Where Xor"
)
_OPERATORS = {name.lower(): name for name in _ELEMENTWISE.split()} | {
    "relu6": "Clip", "hardtanh": "Clip", "relu_n1_to_1": "Clip", "logistic": "Sigmoid", "hard_swish": "HardSwish",
    "leaky_relu": "LeakyRelu", "hard_sigmoid": "HardSigmoid", "truediv": "Div", "floor_div": "Div", "multiply": "Mul",
    "subtract": "Sub", "rsqrt": "Reciprocal", "squared_difference": "Sub", "maximum": "Max", "minimum": "Min",
    "square": "Abs", "dropout": "Identity", "quickgelu": "Gelu", "fastgelu": "Gelu", "biasgelu": "Gelu",
}  # fmt: skip
_ONE_INPUT = {"Clip", "Gelu"}  # further inputs are bounds and biases
_REDUCTIONS = {"max": "ReduceMax", "min": "ReduceMin", "sum": "ReduceSum", "prod": "ReduceProd"}
_SWISH = ("swish", "silu")
_JOINS = ("concat", "concatenation", "cat", "pack")
_TURNS = ("transpose", "permute")


def plain(
    values: GraphValues, what: PlainPrimitive, operation: Operation, x: str, shape: Lengths, out: Lengths
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
        return _quantisation(values, operation, x, shape), shape or out
    if not x:
        raise NotSupported(operation.kind)
    if what.plain == "elementwise":
        rank = max(len(values.shape(name)) for name in (*values.computed(operation), operation.outputs[0]))
        return _elementwise(values, function, [values.operand(name, rank) for name in operation.inputs]), out
    if what.plain == "reduction":
        x, shape = _reduction(values, function, x, shape, out)
        dtype = values.dtype(operation.outputs[0])
        return (_cast(values, x, dtype) if function.startswith("arg") and dtype != "int64" else x), shape
    if what.plain == "normalisation":
        return _normalisation(values, function, x, shape), shape
    if what.plain == "softmax":
        return _softmax(values, function, x), shape
    if what.plain == "resize" and len(shape) == len(out):
        mode = function if function in ("linear", "cubic") else "nearest"
        return values.add("Resize", x, "", "", values.constant(np.array(out, np.int64)), mode=mode), out
    if what.plain == "gather":
        return _gather(values, operation, out), out
    if what.plain == "view":
        if math.prod(shape) == math.prod(out):
            return reshaped(values, x, shape, out), out
        dtype = values.dtype(operation.outputs[0])
        if dtype != values.dtype(values.computed(operation)[0]):  # a shape as numbers
            return values.constant(np.ones(out, np.dtype(dtype))), out
    return _movement(values, function, operation, x, shape, out)


def activation(values: GraphValues, what: Primitive, x: str) -> str:
    """Add the nodes of an activation that is part of another operation.

    Raises
    ------
    NotSupported
        If there is no rule for it.
    """
    if isinstance(what, PlainPrimitive) and what.plain == "softmax":
        return _softmax(values, what.function.lower(), x)
    if isinstance(what, PlainPrimitive) and what.plain == "elementwise":
        return _elementwise(values, what.function.lower(), [x])
    raise NotSupported(what.kind)


def _softmax(values: GraphValues, function: str, x: str) -> str:
    return values.add("LogSoftmax" if "log" in function else "Softmax", x, axis=-1)


def _elementwise(values: GraphValues, function: str, given: Sequence[str]) -> str:
    if function in _SWISH:
        return values.add("Mul", given[0], values.add("Sigmoid", given[0]))
    kind = _OPERATORS.get(function)
    if kind is None:
        raise NotSupported(function)
    if kind == "Clip":
        return values.add("Clip", given[0], *(values.constant(np.array(bound, np.float32)) for bound in (0, 6)))
    return values.add(kind, *(given[:1] if kind in _ONE_INPUT else given))


def _reduction(values: GraphValues, function: str, x: str, shape: Lengths, out: Lengths) -> tuple[str, Lengths]:
    if math.prod(out) == math.prod(shape):
        return x, shape
    axes = _reduced(shape, out)
    if axes is None or function == "topk":
        raise NotSupported(function)
    if function.startswith("arg"):
        return values.add("ArgMax", x, axis=axes[0], keepdims=0), tuple(np.delete(shape, axes[0]).tolist())
    word = next((full for part, full in _REDUCTIONS.items() if part in function), "ReduceMean")
    kept = tuple(1 if axis in axes else length for axis, length in enumerate(shape))
    return values.add(word, x, values.constant(np.array(axes, np.int64)), keepdims=1), kept


def _normalisation(values: GraphValues, function: str, x: str, shape: Lengths) -> str:
    if function in ("layer", "rms"):  # ONNX has had the second one since opset 23
        last = shape[-1]
        return values.add("LayerNormalization", x, values.weights(last, mean=1), values.weights(last), axis=-1)
    if function == "local response":
        return values.add("LRN", x, size=5)
    channels = shape[1] if len(shape) > 1 else 1
    if function == "batch":
        near_one, zeros, means = (values.weights(channels, mean=mean) for mean in (1, 0, 0))
        ones = values.constant(np.ones(channels, np.float32))
        return values.add("BatchNormalization", x, near_one, zeros, means, ones)
    if function == "instance":
        return values.add("InstanceNormalization", x, values.weights(channels, mean=1), values.weights(channels))
    raise NotSupported(function)


def _quantisation(values: GraphValues, operation: Operation, x: str, shape: Lengths) -> str:
    first, result = operation.inputs[0], operation.outputs[0]
    if values.is_small(first) and values.is_small(result):  # to another scale
        return x
    if not x:  # integer weights
        shape = values.shape(first)
        x = values.value(first)
    scales = [name for name in operation.inputs[1:] if values.dtype(name) == "float32"]
    each = values.shape(scales[0]) if scales else ()
    integer = values.dtype(first) if values.dtype(first).startswith(("int", "uint")) else values.dtype(result)
    scale = values.constant(np.full(each, 0.02, np.float32))
    zero = values.constant(np.zeros(each, np.dtype(integer)))
    kind = "DequantizeLinear" if integer == values.dtype(first) else "QuantizeLinear"
    if not each:
        return values.add(kind, x, scale, zero)
    axis = next((number for number, length in enumerate(shape) if length == each[0]), 0)
    return values.add(kind, x, scale, zero, axis=axis)


def _gather(values: GraphValues, operation: Operation, out: Lengths) -> str:
    given = values.computed(operation)
    indices = [name for name in given if values.dtype(name) in ("int32", "int64")]
    constants = values.constants(operation)
    if indices and constants:  # an embedding
        return values.add("Gather", values.value(constants[0]), values.value(indices[0]), axis=0)
    return copied(values, values.value(given[0]), values.shape(given[0]), out)


def _movement(
    values: GraphValues, function: str, operation: Operation, x: str, shape: Lengths, out: Lengths
) -> tuple[str, Lengths]:
    given = values.computed(operation)
    if function in _JOINS and len(given) > 1:
        parts = [(values.value(name), values.shape(name)) for name in given]
        if function == "pack":  # along an axis that is new
            parts = [(reshaped(values, y, its, (1, *its)), (1, *its)) for y, its in parts]
            joined = values.add("Concat", *(y for y, _ in parts), axis=0)
            return copied(values, joined, (len(parts), *shape), out), out
        along = [axis for axis in range(len(out)) if sum(its[axis] for _, its in parts) == out[axis]]
        differing = [axis for axis in along if any(its[axis] != out[axis] for _, its in parts)]
        return values.add("Concat", *(y for y, _ in parts), axis=(differing or [0])[0]), out
    if function == "cast":
        return _cast(values, x, values.dtype(operation.outputs[0])), shape
    return copied(values, x, shape, out, turned=function in _TURNS), out


def _cast(values: GraphValues, x: str, dtype: str) -> str:
    from onnx import helper

    return values.add("Cast", x, to=helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def _reduced(shape: Lengths, out: Lengths) -> list[int] | None:
    """Return the axes that a reduction removes or leaves with the length 1; ``None`` if none fit."""
    if len(shape) == len(out):
        return [axis for axis, pair in enumerate(zip(shape, out, strict=True)) if pair[0] != pair[1]]
    for axes in itertools.combinations(range(len(shape)), max(len(shape) - len(out), 0)):
        if tuple(length for axis, length in enumerate(shape) if axis not in axes) == out:
            return list(axes)
    return None
