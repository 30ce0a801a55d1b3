"""In what form the values of a graph are in memory: views show the values of others, and quantised
ones are integers.

Networks in 8 bits are often written in floats: each value is quantised and dequantised at once
(``QuantizeLinear``, ``DequantizeLinear``; the QDQ form), so that no other operation sees the
integers.  Runtimes fuse the pairs with the operations around them, and what moves are the integers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from nnpipe.core.graph import Graph, Operation
from nnpipe.core.primitives import (
    AttentionPrimitive,
    ConvolutionPrimitive,
    MatrixProduct,
    PlainPrimitive,
    RecurrentPrimitive,
    multiply_lengths,
)
from nnpipe.core.tensors import DTYPES, TensorSpec


@dataclass(frozen=True)
class GraphConstants:
    """The constants of a graph.

    Attributes
    ----------
    stored
        For each constant tensor the tensors in the file from which it follows: itself, or the
        integers that a dequantisation turns into weights.
    folded
        The names of operations on constants alone, which runtimes compute once, when they load the
        model.
    """

    stored: Mapping[str, tuple[str, ...]]
    folded: frozenset[str]


def find_constants(graph: Graph) -> GraphConstants:
    """Return the constants of a graph and the operations that only compute with them."""
    computed = {name for operation in graph.operations for name in operation.outputs}
    taken = set(graph.inputs)
    stored: dict[str, tuple[str, ...]] = {
        name: (name,) for name in graph.tensors if name not in computed and name not in taken
    }
    folded = []
    for operation in graph.operations:
        if all(name in stored for name in operation.inputs) and _is_fixed(operation):
            folded.append(operation.name)
            # Of a quantised tensor only the values count, not its scales and zero points.
            used = (
                operation.inputs[:1]
                if operation.primitives[0].kind == "quantisation"
                else operation.inputs
            )
            origin = tuple(dict.fromkeys(root for name in used for root in stored[name]))
            stored |= dict.fromkeys(operation.outputs, origin)
    return GraphConstants(stored, frozenset(folded))


def _is_fixed(operation: Operation) -> bool:
    """Return whether an operation gives the same at each call with the same values, and is
    known.
    """
    return bool(operation.primitives) and not any(
        isinstance(each, PlainPrimitive) and each.function == "random"
        for each in operation.primitives
    )


_PRODUCTS = (AttentionPrimitive, ConvolutionPrimitive, MatrixProduct, RecurrentPrimitive)
_BYTES = ("int8", "uint8")
_FLOATS = ("float16", "bfloat16", "float32", "float64")
_SIZES = {"bfloat16": 2} | {
    name: np.dtype(name).itemsize for name in DTYPES - {"bfloat16", "string"}
}


def count_bytes(spec: TensorSpec) -> int | None:
    """Return the size of a tensor in bytes; ``None`` if an axis is free or its elements are
    texts.
    """
    if None in spec.shape or spec.dtype == "string":
        return None
    return _SIZES[spec.dtype] * (multiply_lengths(spec.shape) or 0)


@dataclass(frozen=True)
class StoredValues:
    """The values of a graph as they are in memory.

    Parameters
    ----------
    origins
        For each tensor that only shows another one, or has its values in floats, the tensor that is
        in memory.
    sizes
        The bytes of each tensor, or of the one that is in memory in its place; ``None`` if they are
        not known.
    passing
        The operations that move nothing: views, and conversions that are fused with other
        operations.
    users
        The operations that read each tensor in memory; the empty name is the caller, who reads the
        graph's outputs.
    """

    origins: Mapping[str, str]
    sizes: Mapping[str, int | None]
    passing: frozenset[str]
    users: Mapping[str, frozenset[str]]

    def get_origin(self, tensor: str) -> str:
        """Return the tensor that is in memory in place of this one."""
        return self.origins.get(tensor, tensor)


def build_stored_values(
    graph: Graph, constants: GraphConstants, apart: Collection[str] = ()
) -> StoredValues:
    """Return the values of a graph as they are in memory.

    Parameters
    ----------
    graph, constants
        The graph, with all lengths known, and its constants.
    apart
        Names of conversions to and from 8 bits that are not fused with other operations.
    """
    steps = [each for each in graph.operations if each.name not in constants.folded]
    readers: dict[str, list[str]] = {name: [""] for name in graph.outputs}
    for operation in steps:
        for name in dict.fromkeys(operation.inputs):
            readers.setdefault(name, []).append(operation.name)
    computed = {name for each in steps for name in each.outputs}
    quantised = _is_written_in_floats(steps, graph, constants)
    views: dict[str, str] = {}
    converted: dict[str, str] = {}
    passing = set()
    for operation in steps:
        if not operation.inputs or not operation.outputs or operation.inputs[0] in constants.stored:
            continue
        value, result = operation.inputs[0], operation.outputs[0]
        kinds = {each.kind for each in operation.primitives}
        if kinds == {"view"}:
            passing.add(operation.name)
            views |= dict.fromkeys(operation.outputs, value)
        elif quantised and operation.name not in apart and kinds == {"quantisation"}:
            types = tuple(graph.tensors[name].dtype for name in (value, result))
            if types[0] in _BYTES and types[1] in _FLOATS and "" not in readers.get(result, ()):
                passing.add(operation.name)
                converted[result] = value
            elif types[0] in _FLOATS and types[1] in _BYTES:
                shown = _find_exclusive_views(value, views, readers)
                if shown and shown[-1] in computed and shown[-1] not in converted:
                    passing.add(operation.name)
                    converted |= dict.fromkeys(shown, result)
    origins = views | converted
    ends = {name: _end(name, origins) for name in origins}
    users: dict[str, set[str]] = {}
    for name, found in readers.items():
        users.setdefault(ends.get(name, name), set()).update(found)
    return StoredValues(
        ends,
        {name: count_bytes(graph.tensors[ends.get(name, name)]) for name in graph.tensors},
        frozenset(passing),
        {name: frozenset(found - passing) for name, found in users.items()},
    )


def _is_written_in_floats(
    steps: Sequence[Operation], graph: Graph, constants: GraphConstants
) -> bool:
    """Return whether no product or convolution takes values of 8 bits; otherwise conversions to
    them are real.
    """
    for operation in steps:
        if any(isinstance(each, _PRODUCTS) for each in operation.primitives):
            values = [name for name in operation.inputs if name not in constants.stored]
            if any(graph.tensors[name].dtype in _BYTES for name in values):
                return False
    return True


def _find_exclusive_views(
    tensor: str, views: Mapping[str, str], readers: Mapping[str, Sequence[str]]
) -> list[str]:
    """Return a tensor and those that it is a view of, if one operation alone reads each of them;
    otherwise nothing.
    """
    found: list[str] = []
    name: str | None = tensor
    while name is not None:
        if len(readers.get(name, ())) != 1 or "" in readers[name]:
            return []
        found.append(name)
        name = views.get(name)
    return found


def _end(tensor: str, origins: Mapping[str, str]) -> str:
    while tensor in origins:
        tensor = origins[tensor]
    return tensor
