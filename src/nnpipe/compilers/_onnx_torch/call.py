"""The call of an ONNX operator: its inputs as tensors or as values that are known, and its
attributes.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nnpipe.core.errors import CompileError
from nnpipe.formats.onnx_network import ONNXNode
from nnpipe.layers.imports.translation import fold

TYPES = {
    1: "float32",
    2: "uint8",
    3: "int8",
    5: "int16",
    6: "int32",
    7: "int64",
    9: "bool",
    10: "float16",
    11: "float64",
}
"""Names of element types in PyTorch by their numbers in ``onnx/onnx.proto3``."""

Known = np.ndarray
"""Integers that are known while a program is exported.

Free lengths among them are symbols, in an array of objects.
"""


@dataclass(frozen=True)
class OperatorCall:
    """One call of an operator.

    Parameters
    ----------
    node
        The operator with its attributes.
    opset
        The version of ONNX's operators, which decides what some of them mean.
    tensor_of, known_of
        Return an input by its name as a tensor, and as an array if its values are known.
    matrix_of
        Returns a matrix of weights by its name, transposed.
    """

    node: ONNXNode
    opset: int
    tensor_of: Callable[[str], Any]
    known_of: Callable[[str], Known | None]
    matrix_of: Callable[[str], Any]

    def __len__(self) -> int:
        return len(self.node.inputs)

    def has(self, place: int) -> bool:
        """Return whether an input is given."""
        return bool(self.node.get_input(place))

    def tensor(self, place: int) -> Any:
        """Return an input as a tensor; ``None`` if it is left out."""
        return self.tensor_of(self.node.inputs[place]) if self.has(place) else None

    def tensors(self) -> list[Any]:
        """Return all inputs as tensors."""
        return [self.tensor(place) for place in range(len(self))]

    def get_known(self, place: int) -> Known | None:
        """Return an input as an array, or ``None`` if it is left out or its values are not
        known.
        """
        return self.known_of(self.node.inputs[place]) if self.has(place) else None

    def matrix(self, place: int) -> Any:
        """Return an input that is a matrix of weights, transposed; ``None`` if it is no such
        matrix.
        """
        return self.matrix_of(self.node.inputs[place]) if self.has(place) else None

    def attribute(self, name: str, default: Any = None) -> Any:
        """Return an attribute, or the default if the node leaves it out."""
        found = self.node.attributes.get(name)
        return default if found is None else found

    def numbers(self, place: int, name: str = "") -> list[Any] | None:
        """Return a list of numbers, which is an input or, in older versions, an attribute; ``None``
        if it is left out.

        Raises
        ------
        CompileError
            If it depends on the values of the model's inputs.
        """
        if not self.has(place):
            found = self.attribute(name) if name else None
            return None if found is None else list(found) if isinstance(found, tuple) else [found]
        known = self.get_known(place)
        if known is None:
            raise CompileError(
                f"its input {self.node.inputs[place]!r} depends on the values of the model's inputs"
            )
        return list(known.reshape(-1).tolist())

    def make_refusal(self, what: str) -> CompileError:
        """Return the error of an operator that is not translated as it is used."""
        return CompileError(what)


def convert_known_to_tensor(array: Known) -> Any:
    """Return known integers as a tensor; free lengths stay free."""
    import torch

    if array.dtype != object:
        return torch.from_numpy(np.array(array))
    flat = [torch.scalar_tensor(value, dtype=torch.int64) for value in array.reshape(-1).tolist()]
    return torch.stack(flat).reshape(array.shape)


def require_fixed_length(length: Any, what: str) -> int:
    """Return a length that must be known; raise :class:`CompileError` if it is free."""
    if not isinstance(length, int):
        raise CompileError(f"it needs {what} that is fixed")
    return length


class LateFunctions:
    """Functions of a module that is imported at the first call of one of them.

    The table of operators is also read to tell which ones are not translated, for which
    PyTorch (1 s) is not needed.

    Parameters
    ----------
    module
        The name of the module.
    """

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *arguments, **options: getattr(importlib.import_module(self._module), name)(
            *arguments, **options
        )


_MOST = 1 << 10  # lengths are few; what is longer is computed by the program

Lengths = Callable[[ONNXNode, list[Any]], Any]


def fold_known_integers(
    node: ONNXNode, given: Sequence[Known | None], simplified: bool
) -> Known | None:
    """Return the result of an operation on known integers; ``None`` if it must be computed by the
    program.

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
        return (
            found
            if found is not None and found.dtype.kind in "iub" and found.size <= _MOST
            else None
        )
    operation = _OPERATIONS.get(node.kind)
    if operation is None:
        return None
    try:
        found = np.asarray(operation(node, list(given)))
    except TypeError:
        return None
    return _to_plain_array(found) if simplified else found.astype(object)


def _to_plain_array(array: np.ndarray) -> np.ndarray:
    """Return an array with a type of NumPy if no length in it is free."""
    if array.dtype != object or not all(
        isinstance(value, (int, bool)) for value in array.reshape(-1).tolist()
    ):
        return array
    return array.astype(np.int64)


def _list_items(array: Any) -> list[int]:
    if array.dtype == object:  # int() would fix a free length
        raise TypeError("free lengths as places")
    return [int(value) for value in array.reshape(-1).tolist()]


def _read_axes(node: ONNXNode, given: list[Any]) -> tuple[int, ...]:
    found = given[1] if len(given) > 1 else None
    return (
        tuple(_list_items(found)) if found is not None else tuple(node.attributes.get("axes") or ())
    )


def _fold_slice(node: ONNXNode, given: list[Any]) -> Any:
    starts, ends = _list_items(given[1]), _list_items(given[2])
    step = _list_items(given[4])[0] if len(given) > 4 and given[4] is not None else 1
    return given[0][starts[0] : ends[0] : step]


def _make_pairwise(function: Callable[[Any, Any], Any]) -> Lengths:
    """Return an operation on pairs of numbers, which asks PyTorch about free lengths one at a
    time.
    """

    def call(node: ONNXNode, given: list[Any]) -> Any:
        left, right = np.broadcast_arrays(*given)
        found = np.empty(left.shape, object)
        for place in np.ndindex(left.shape):
            found[place] = function(left[place], right[place])
        return found

    return call


def _fold_where(node: ONNXNode, given: list[Any]) -> Any:
    return np.where(given[0].astype(bool), given[1], given[2])


def _fold_cast(node: ONNXNode, given: list[Any]) -> Any:
    if TYPES.get(node.attributes.get("to", 0), "").startswith("int"):
        return given[0]
    raise TypeError("free lengths as real numbers")


def _fold_product(node: ONNXNode, given: list[Any]) -> Any:
    found = given[0].prod()
    return np.array([found] if node.attributes.get("keepdims", 1) else found, object)


_OPERATIONS: Mapping[str, Lengths] = {
    "Identity": lambda node, given: given[0],
    "Cast": _fold_cast,
    "Concat": lambda node, given: np.concatenate(given, node.attributes["axis"]),
    "Gather": lambda node, given: np.take(
        given[0], given[1].astype(np.int64), node.attributes.get("axis") or 0
    ),
    "Slice": _fold_slice,
    "Reshape": lambda node, given: given[0].reshape(_list_items(given[1])),
    "Squeeze": lambda node, given: np.squeeze(given[0], _read_axes(node, given) or None),
    "Unsqueeze": lambda node, given: np.expand_dims(given[0], _read_axes(node, given)),
    "Add": _make_pairwise(lambda a, b: a + b),
    "Sub": _make_pairwise(lambda a, b: a - b),
    "Mul": _make_pairwise(lambda a, b: a * b),
    "Div": _make_pairwise(lambda a, b: a // b),  # lengths are never negative
    "Max": _make_pairwise(lambda a, b: max(a, b)),
    "Min": _make_pairwise(lambda a, b: min(a, b)),
    "Equal": _make_pairwise(lambda a, b: bool(a == b)),
    "Where": _fold_where,
    "ReduceProd": _fold_product,
}
