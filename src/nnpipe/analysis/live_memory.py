"""How many bytes of values are needed at the same time while a graph is computed, operation by operation."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

import numpy as np

from nnpipe.core.graph import Graph
from nnpipe.core.tensors import TensorSpec

_SIZES = {"bfloat16": 2, "string": 0}


def bytes_of(spec: TensorSpec) -> int | None:
    """Return the size of a tensor in bytes; ``None`` if an axis is free or its elements are texts."""
    if None in spec.shape or spec.dtype == "string":
        return None
    size = _SIZES[spec.dtype] if spec.dtype in _SIZES else np.dtype(spec.dtype).itemsize
    return size * math.prod(length or 0 for length in spec.shape)


def live_memory(graph: Graph, constants: Collection[str], folded: Collection[str] = ()) -> Mapping[str, int | None]:
    """Return the bytes of all inputs and computed values that exist while each operation runs, by its name.

    Operations run in the order of the graph.  A value exists from the operation that computes it (an input of the
    graph from the start) to the last one that reads it; outputs of the graph exist to the end.  Views share the memory
    of what they show.  Nothing is fused or computed in place, and weights are not included.

    Parameters
    ----------
    graph
        The graph, with all lengths known; operations are ``None`` while a value of unknown size exists.
    constants
        Tensors that are stored with the model or computed when it is loaded.
    folded
        Names of operations that run when the model is loaded.
    """
    steps = [operation for operation in graph.operations if operation.name not in folded]
    fixed = set(constants)
    owner = {name: name for name in graph.inputs if name not in fixed}
    begin = dict.fromkeys(owner, 0)
    end = dict.fromkeys(owner, 0)
    for step, operation in enumerate(steps):
        for name in operation.inputs:
            if name in owner:
                end[owner[name]] = step
        shown = operation.inputs[0] if operation.inputs and _is_view(operation.primitives) else None
        for name in operation.outputs:
            owner[name] = owner.get(shown, name) if shown is not None else name
            begin.setdefault(owner[name], step)
            end[owner[name]] = max(step, end.get(owner[name], step))
    for name in graph.outputs:
        if name in owner:
            end[owner[name]] = len(steps) - 1
    change, unknown = [0] * (len(steps) + 1), [0] * (len(steps) + 1)
    for name, first in begin.items():
        size = bytes_of(graph.tensors[name]) if name in graph.tensors else None
        counted, amount = (unknown, 1) if size is None else (change, size)
        counted[first] += amount
        counted[end[name] + 1] -= amount
    found: dict[str, int | None] = {}
    live = without = 0
    for step, operation in enumerate(steps):
        live, without = live + change[step], without + unknown[step]
        found[operation.name] = None if without else live
    return found


def _is_view(primitives: tuple[object, ...]) -> bool:
    return len(primitives) == 1 and getattr(primitives[0], "kind", "") == "view"
