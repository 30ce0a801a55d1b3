"""Topological sorting of the nodes of an ONNX graph, which ONNX requires."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Any


def put_in_order(graph: Any) -> None:
    """Sort the nodes of a graph and of its subgraphs so that each follows the nodes whose results it takes.

    A node whose inputs are computed in the subgraph of another node is moved there: some converters append such nodes
    to the outer graph.

    Parameters
    ----------
    graph
        An ``onnx.GraphProto``; it is modified in place.
    """
    for inner in _within(graph):
        made = {name for node in inner.node for name in node.output}
        known = made | {value.name for value in inner.input} | {constant.name for constant in inner.initializer}
        here = [n for n, node in enumerate(graph.node) if known.intersection(filter(None, node.input))]
        for number in here:
            inner.node.add().CopyFrom(graph.node[number])
        for number in reversed(here):
            del graph.node[number]
        put_in_order(inner)
    order = _order(graph)
    if order != sorted(order):
        nodes = [graph.node[number] for number in order]
        del graph.node[:]
        graph.node.extend(nodes)


def _order(graph: Any) -> list[int]:
    """Return the nodes' indices in topological order, as close to the present order as possible."""
    makers = {name: number for number, node in enumerate(graph.node) for name in node.output if name}
    users: dict[int, list[int]] = {}
    waiting: dict[int, int] = {}
    for number, node in enumerate(graph.node):
        before = {makers[name] for name in taken_by(node) if name in makers} - {number}
        waiting[number] = len(before)
        for maker in before:
            users.setdefault(maker, []).append(number)
    ready = [number for number, count in waiting.items() if not count]
    order: list[int] = []
    while ready:
        order.append(heapq.heappop(ready))
        for number in users.get(order[-1], ()):
            waiting[number] -= 1
            if not waiting[number]:
                heapq.heappush(ready, number)
    return order if len(order) == len(waiting) else list(waiting)  # later steps reject a cycle


def taken_by(node: Any) -> set[str]:
    """Return the inputs of a node, including the outer values that its subgraphs use."""
    found = set(filter(None, node.input))
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs) if attribute.type in (5, 10) else ():  # GRAPH, GRAPHS
            for inner in graph.node:
                found |= taken_by(inner)
            found |= {value.name for value in graph.output}
    return found


def _within(graph: Any) -> Iterator[Any]:
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == 5:  # AttributeProto.GRAPH
                yield attribute.g
            elif attribute.type == 10:  # AttributeProto.GRAPHS
                yield from attribute.graphs
