"""The tensors of a graph that no input can change: weights, and what follows from weights alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from nnpipe.core.graph import Graph, Operation
from nnpipe.core.primitives import PlainPrimitive


@dataclass(frozen=True)
class GraphConstants:
    """The constants of a graph.

    Attributes
    ----------
    stored
        For each constant tensor the tensors in the file from which it follows: itself, or the integers that a
        dequantisation turns into weights.
    folded
        The names of operations on constants alone, which runtimes compute once, when they load the model.
    """

    stored: Mapping[str, tuple[str, ...]]
    folded: frozenset[str]


def constants_of(graph: Graph) -> GraphConstants:
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
            used = operation.inputs[:1] if operation.primitives[0].kind == "quantisation" else operation.inputs
            origin = tuple(dict.fromkeys(root for name in used for root in stored[name]))
            stored |= dict.fromkeys(operation.outputs, origin)
    return GraphConstants(stored, frozenset(folded))


def _is_fixed(operation: Operation) -> bool:
    """Return whether an operation gives the same at each call with the same values, and is known."""
    return bool(operation.primitives) and not any(
        isinstance(each, PlainPrimitive) and each.function == "random" for each in operation.primitives
    )
