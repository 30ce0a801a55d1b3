"""How many bytes of values are needed at the same time while a graph is computed, operation by operation."""

from __future__ import annotations

from collections.abc import Mapping

from nnpipe.analysis.graph_constants import GraphConstants
from nnpipe.analysis.stored_values import StoredValues
from nnpipe.core.graph import Graph


def live_memory(graph: Graph, constants: GraphConstants, stored: StoredValues) -> Mapping[str, int | None]:
    """Return the bytes of all inputs and computed values that exist while each operation runs, by its name.

    Operations run in the order of the graph.  A value exists from the operation that computes it (an input of the
    graph from the start) to the last one that reads it; outputs of the graph exist to the end.  Views share the memory
    of what they show.  Nothing is fused or computed in place, and weights are not included.

    Parameters
    ----------
    graph, constants
        The graph, with all lengths known, and its constants; an operation has ``None`` while a value of unknown size
        exists.
    stored
        Its values as they are in memory.
    """
    steps = [operation for operation in graph.operations if operation.name not in constants.folded]
    begin = {name: 0 for name in graph.inputs if name not in constants.stored}
    end = dict(begin)
    for step, operation in enumerate(steps):
        for name in map(stored.origin, operation.inputs):
            if name in begin:
                end[name] = step
        for name in map(stored.origin, operation.outputs):
            begin.setdefault(name, step)
            end[name] = max(step, end.get(name, step))
    for name in map(stored.origin, graph.outputs):
        if name in begin:
            end[name] = len(steps) - 1
    change, unknown = [0] * (len(steps) + 1), [0] * (len(steps) + 1)
    for name, first in begin.items():
        size = stored.sizes.get(name)
        counted, amount = (unknown, 1) if size is None else (change, size)
        counted[first] += amount
        counted[end[name] + 1] -= amount
    found: dict[str, int | None] = {}
    live = without = 0
    for step, operation in enumerate(steps):
        live, without = live + change[step], without + unknown[step]
        found[operation.name] = None if without else live
    return found
