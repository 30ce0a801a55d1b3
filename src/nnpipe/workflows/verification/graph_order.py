"""The order in which a graph computes, and what depends on its inputs."""

from __future__ import annotations

from nnpipe.core.graph import Graph, Operation


def varying(graph: Graph) -> set[str]:
    """Return the tensors that depend on the inputs, not only on weights."""
    found = set(graph.inputs)
    for operation in in_order(graph):
        if not found.isdisjoint(operation.inputs):
            found.update(operation.outputs)
    return found


def in_order(graph: Graph) -> list[Operation]:
    """Return operations sorted so that each follows those whose results it takes; not every file is sorted."""
    makers = {tensor: operation for operation in graph.operations for tensor in operation.outputs}
    found: dict[str, Operation] = {}
    waiting = list(reversed(graph.operations))
    while waiting:
        operation = waiting[-1]
        before = [makers[name] for name in operation.inputs if name in makers and makers[name].name not in found]
        if operation.name in found or not before:
            found.setdefault(operation.name, waiting.pop())
        elif len(waiting) > 2 * len(graph.operations) + len(makers):  # a cycle, which no file should have
            return list(graph.operations)
        else:
            waiting += before
    return list(found.values())
