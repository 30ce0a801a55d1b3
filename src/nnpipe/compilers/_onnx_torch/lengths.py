"""Arithmetic on lengths of axes while a program is exported; free lengths are PyTorch's symbols."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from nnpipe.compilers._onnx_torch.call import TYPES, Known
from nnpipe.formats.onnx_nodes import ONNXNode
from nnpipe.layers.imports.constant_folding import fold

_MOST = 1 << 10  # lengths are few; what is longer is computed by the program

Lengths = Callable[[ONNXNode, list[Any]], Any]


def computed(node: ONNXNode, given: Sequence[Known | None], simplified: bool) -> Known | None:
    """Return the result of an operation on known integers; ``None`` if it must be computed by the program.

    ``simplified`` gives results without free lengths a type of NumPy; otherwise all count as free.
    """
    there = [array for array in given if array is not None]
    if not there or any(array.size > _MOST or array.dtype.kind not in "iubO" for array in there):
        return None
    if all(array.dtype != object for array in there):
        try:
            found = fold(node, given, _MOST)
        except (ValueError, IndexError, KeyError, TypeError):
            return None
        return found if found is not None and found.dtype.kind in "iub" and found.size <= _MOST else None
    operation = _OPERATIONS.get(node.kind)
    if operation is None:
        return None
    try:
        found = np.asarray(operation(node, list(given)))
    except TypeError:
        return None
    return _plain(found) if simplified else found.astype(object)


def _plain(array: np.ndarray) -> np.ndarray:
    """Return an array with a type of NumPy if no length in it is free."""
    if array.dtype != object or not all(isinstance(value, (int, bool)) for value in array.reshape(-1).tolist()):
        return array
    return array.astype(np.int64)


def _items(array: Any) -> list[int]:
    if array.dtype == object:  # int() would fix a free length
        raise TypeError("free lengths as places")
    return [int(value) for value in array.reshape(-1).tolist()]


def _axes(node: ONNXNode, given: list[Any]) -> tuple[int, ...]:
    found = given[1] if len(given) > 1 else None
    return tuple(_items(found)) if found is not None else tuple(node.attributes.get("axes") or ())


def _slice(node: ONNXNode, given: list[Any]) -> Any:
    starts, ends = _items(given[1]), _items(given[2])
    step = _items(given[4])[0] if len(given) > 4 and given[4] is not None else 1
    return given[0][starts[0] : ends[0] : step]


def _each(function: Callable[[Any, Any], Any]) -> Lengths:
    """Return an operation on pairs of numbers, which asks PyTorch about free lengths one at a time."""

    def call(node: ONNXNode, given: list[Any]) -> Any:
        left, right = np.broadcast_arrays(*given)
        found = np.empty(left.shape, object)
        for place in np.ndindex(left.shape):
            found[place] = function(left[place], right[place])
        return found

    return call


def _where(node: ONNXNode, given: list[Any]) -> Any:
    return np.where(given[0].astype(bool), given[1], given[2])


def _cast(node: ONNXNode, given: list[Any]) -> Any:
    if TYPES.get(node.attributes.get("to", 0), "").startswith("int"):
        return given[0]
    raise TypeError("free lengths as real numbers")


def _product(node: ONNXNode, given: list[Any]) -> Any:
    found = given[0].prod()
    return np.array([found] if node.attributes.get("keepdims", 1) else found, object)


_OPERATIONS: Mapping[str, Lengths] = {
    "Identity": lambda node, given: given[0],
    "Cast": _cast,
    "Concat": lambda node, given: np.concatenate(given, node.attributes["axis"]),
    "Gather": lambda node, given: np.take(given[0], given[1].astype(np.int64), node.attributes.get("axis") or 0),
    "Slice": _slice,
    "Reshape": lambda node, given: given[0].reshape(_items(given[1])),
    "Squeeze": lambda node, given: np.squeeze(given[0], _axes(node, given) or None),
    "Unsqueeze": lambda node, given: np.expand_dims(given[0], _axes(node, given)),
    "Add": _each(lambda a, b: a + b),
    "Sub": _each(lambda a, b: a - b),
    "Mul": _each(lambda a, b: a * b),
    "Div": _each(lambda a, b: a // b),  # lengths are never negative
    "Max": _each(lambda a, b: max(a, b)),
    "Min": _each(lambda a, b: min(a, b)),
    "Equal": _each(lambda a, b: bool(a == b)),
    "Where": _where,
    "ReduceProd": _product,
}
