"""The call of an ONNX operator: its inputs as tensors or as values that are known, and its attributes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from nnpipe.core.errors import CompileError
from nnpipe.formats.onnx_nodes import ONNXNode

TYPES = {
    1: "float32", 2: "uint8", 3: "int8", 5: "int16", 6: "int32", 7: "int64", 9: "bool", 10: "float16", 11: "float64",
}  # fmt: skip
"""Names of element types in PyTorch by their numbers in ``onnx/onnx.proto3``."""

Known = np.ndarray
"""Integers that are known while a program is exported.  Free lengths among them are symbols, in an array of objects."""


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
        return bool(self.node.takes(place))

    def tensor(self, place: int) -> Any:
        """Return an input as a tensor; ``None`` if it is left out."""
        return self.tensor_of(self.node.inputs[place]) if self.has(place) else None

    def tensors(self) -> list[Any]:
        """Return all inputs as tensors."""
        return [self.tensor(place) for place in range(len(self))]

    def known(self, place: int) -> Known | None:
        """Return an input as an array, or ``None`` if it is left out or its values are not known."""
        return self.known_of(self.node.inputs[place]) if self.has(place) else None

    def matrix(self, place: int) -> Any:
        """Return an input that is a matrix of weights, transposed; ``None`` if it is no such matrix."""
        return self.matrix_of(self.node.inputs[place]) if self.has(place) else None

    def attribute(self, name: str, default: Any = None) -> Any:
        """Return an attribute, or the default if the node leaves it out."""
        found = self.node.attributes.get(name)
        return default if found is None else found

    def numbers(self, place: int, name: str = "") -> list[Any] | None:
        """Return a list of numbers, which is an input or, in older versions, an attribute; ``None`` if it is left out.

        Raises
        ------
        CompileError
            If it depends on the values of the model's inputs.
        """
        if not self.has(place):
            found = self.attribute(name) if name else None
            return None if found is None else list(found) if isinstance(found, tuple) else [found]
        known = self.known(place)
        if known is None:
            raise CompileError(f"its input {self.node.inputs[place]!r} depends on the values of the model's inputs")
        return list(known.reshape(-1).tolist())

    def refuse(self, what: str) -> CompileError:
        """Return the error of an operator that is not translated as it is used."""
        return CompileError(what)


def tensor_of_known(array: Known) -> Any:
    """Return known integers as a tensor; free lengths stay free."""
    import torch

    if array.dtype != object:
        return torch.from_numpy(np.array(array))
    flat = [torch.scalar_tensor(value, dtype=torch.int64) for value in array.reshape(-1).tolist()]
    return torch.stack(flat).reshape(array.shape)


def fixed(length: Any, what: str) -> int:
    """Return a length that must be known; raise :class:`CompileError` if it is free."""
    if not isinstance(length, int):
        raise CompileError(f"it needs {what} that is fixed")
    return length
