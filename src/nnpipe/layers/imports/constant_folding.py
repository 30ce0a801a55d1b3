"""Constant folding: computations of shapes that exporters write, and transposed or reshaped weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nnpipe.formats.onnx_nodes import ONNXNode

_MOST = 1 << 16  # values in a result that is larger than its inputs
_MOST_ALIKE = 1 << 24  # values where one stands for many: states that start from zeros, for any number of samples
_KEEP_ALIKE = frozenset(
    {"Constant", "Identity", "Transpose", "Unsqueeze", "Squeeze", "Slice", "Shape", "Size", "Expand", "ConstantOfShape"}
)  # these take no memory for their results
_TYPES = {1: "f4", 2: "u1", 3: "i1", 5: "i2", 6: "i4", 7: "i8", 9: "?", 10: "f2", 11: "f8", 12: "u4", 13: "u8"}


def fold(node: ONNXNode, given: Sequence[Any], room: int) -> np.ndarray | None:
    """Return the result of an operation on constants; ``None`` if the operation is not supported here.

    Parameters
    ----------
    node, given
        The operation and its inputs, ``None`` for inputs that are left out.
    room
        Greatest number of values for which the result may take memory.

    Raises
    ------
    ValueError
        If the operation is used against its definition, or its result would be too large.
    """
    operation = _OPERATIONS.get(node.kind)
    if operation is None or (not given and node.kind != "Constant"):
        return None
    if node.kind not in _KEEP_ALIKE:
        there = [array for array in given if array is not None]
        if sum(a.size for a in there) > room or any(a.size > max(_MOST, _held(a)) for a in there):
            raise ValueError("a constant that would be very large")
    try:
        with np.errstate(all="ignore"):
            return np.asarray(operation(node, list(given)))
    except AttributeError:  # an input is None or a number instead of an array
        raise ValueError("an input is missing, or an attribute of another kind") from None
    except RuntimeError as error:  # numpy raises it for too many axes
        raise ValueError(str(error)) from None


def copied(node: ONNXNode, result: np.ndarray) -> int:
    """Return the number of values for which the result of an operation takes memory."""
    return 0 if node.kind in _KEEP_ALIKE else result.size


def _held(array: np.ndarray) -> int:
    """Return the number of values that an array really stores; broadcast values count once."""
    return math.prod(extent for extent, stride in zip(array.shape, array.strides, strict=True) if stride)


def _bounded(shape: Any, most: int = _MOST) -> tuple[int, ...]:
    extents = tuple(int(extent) for extent in np.asarray(shape).reshape(-1))
    size = 1
    for extent in extents:
        if extent < 0:
            raise ValueError("an extent below zero")
        size *= extent
        if size > most:
            raise ValueError("a constant that would be very large")
    return extents


def _constant(node: ONNXNode, given: list[Any]) -> Any:
    for name in ("value", "value_float", "value_int", "value_floats", "value_ints"):
        if (found := node.attributes.get(name)) is not None:
            kind = np.float32 if "float" in name else np.int64
            return found if isinstance(found, np.ndarray) else np.array(found, kind)
    raise ValueError("a constant without a value")


def _axes(node: ONNXNode, given: list[Any]) -> list[int]:
    found = given[1] if len(given) > 1 and given[1] is not None else node.attributes.get("axes")
    return [] if found is None else [int(axis) for axis in np.asarray(found).reshape(-1)]


def _reshape(node: ONNXNode, given: list[Any]) -> Any:
    array, target = given[0], [int(extent) for extent in given[1].reshape(-1)]
    if not node.attributes.get("allowzero"):
        target = [array.shape[place] if extent == 0 else extent for place, extent in enumerate(target)]
    return array.reshape(target)


def _unsqueeze(node: ONNXNode, given: list[Any]) -> Any:
    return np.expand_dims(given[0], tuple(_axes(node, given)))


def _squeeze(node: ONNXNode, given: list[Any]) -> Any:
    return np.squeeze(given[0], tuple(_axes(node, given)) or None)


def _slice(node: ONNXNode, given: list[Any]) -> Any:
    if len(given) < 3:
        starts, ends = node.attributes["starts"], node.attributes["ends"]
        axes, steps = node.attributes.get("axes") or range(len(starts)), [1] * len(starts)
    else:
        starts, ends = (array.reshape(-1) for array in given[1:3])
        axes = given[3].reshape(-1) if len(given) > 3 and given[3] is not None else range(len(starts))
        steps = given[4].reshape(-1) if len(given) > 4 and given[4] is not None else [1] * len(starts)
    places: list[Any] = [slice(None)] * given[0].ndim
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        places[int(axis)] = slice(int(start), int(end), int(step))
    return given[0][tuple(places)]


def _quotient(a: Any, b: Any) -> Any:
    if a.dtype.kind in "iu":
        return np.where(b == 0, 0, np.trunc(a / np.where(b == 0, 1, b))).astype(a.dtype)
    return a / b


def _paired(function: Callable[[Any, Any], Any]) -> Callable[[ONNXNode, list[Any]], Any]:
    def call(node: ONNXNode, given: list[Any]) -> Any:
        a, b = given
        shape = np.broadcast_shapes(a.shape, b.shape)
        if shape not in (a.shape, b.shape):
            _bounded(shape)
        return function(a, b)

    return call


def _cast(node: ONNXNode, given: list[Any]) -> Any:
    return given[0].astype(_TYPES[node.attributes["to"]])


def _filled(node: ONNXNode, given: list[Any]) -> Any:
    value = node.attributes.get("value")
    number = np.float32(0) if value is None else value.reshape(-1)[0]
    return np.broadcast_to(number, _bounded(given[0], _MOST_ALIKE))


def _expand(node: ONNXNode, given: list[Any]) -> Any:
    shape = np.broadcast_shapes(given[0].shape, tuple(int(extent) for extent in given[1].reshape(-1)))
    return np.broadcast_to(given[0], shape if shape == given[0].shape else _bounded(shape, _MOST_ALIKE))


def _gather(node: ONNXNode, given: list[Any]) -> Any:
    array, places = given
    axis = node.attributes.get("axis") or 0
    if places.size * array.size > max(_MOST, array.size) * max(array.shape[axis], 1):
        raise ValueError("a constant that would be very large")
    return np.take(array, places, axis)


def _where(node: ONNXNode, given: list[Any]) -> Any:
    _bounded(np.broadcast_shapes(*(array.shape for array in given)))
    return np.where(*given)


def _transpose(node: ONNXNode, given: list[Any]) -> Any:
    return np.transpose(given[0], node.attributes.get("perm"))


_OPERATIONS: dict[str, Callable[[ONNXNode, list[Any]], Any]] = {
    "Constant": _constant,
    "Identity": lambda node, given: given[0],
    "Reshape": _reshape,
    "Flatten": lambda node, given: given[0].reshape(int(np.prod(given[0].shape[: node.attributes.get("axis", 1)])), -1),
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
    "Squeeze": _squeeze,
    "Slice": _slice,
    "Gather": _gather,
    "Concat": lambda node, given: np.concatenate(given, node.attributes["axis"]),
    "Shape": lambda node, given: np.array(given[0].shape, np.int64),
    "Size": lambda node, given: np.array(given[0].size, np.int64),
    "Cast": _cast,
    "ConstantOfShape": _filled,
    "Expand": _expand,
    "Add": _paired(np.add),
    "Sub": _paired(np.subtract),
    "Mul": _paired(np.multiply),
    "Div": _paired(_quotient),
    "Max": _paired(np.maximum),
    "Min": _paired(np.minimum),
    "Equal": _paired(np.equal),
    "Neg": lambda node, given: -given[0],
    "Sqrt": lambda node, given: np.sqrt(given[0]),
    "Floor": lambda node, given: np.floor(given[0]),
    "Ceil": lambda node, given: np.ceil(given[0]),
    "Where": _where,
}
