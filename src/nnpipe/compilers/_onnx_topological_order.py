"""Sort the nodes of an ONNX graph topologically, as ONNX demands."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Any


def put_in_order(graph: Any) -> None:
    """Put every node of a graph behind those whose results it takes, in the graphs within its nodes as well.

    A node whose inputs are computed in a graph within another node is moved there: converters that append what they
    insert to the outer graph mean it so.

    Parameters
    ----------
    graph
        An ``onnx.GraphProto``; it is changed.
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
    """Return the nodes' numbers in an order that computes, as near to the present one as that can be."""
    makers = {name: number for number, node in enumerate(graph.node) for name in node.output if name}
    users: dict[int, list[int]] = {}
    waiting: dict[int, int] = {}
    for number, node in enumerate(graph.node):
        before = {makers[name] for name in _taken(node) if name in makers} - {number}
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
    return order if len(order) == len(waiting) else list(waiting)  # a circle is for others to refuse


def _taken(node: Any) -> set[str]:
    """Return what a node takes, what the graphs within it take from outside included."""
    found = set(filter(None, node.input))
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs) if attribute.type in (5, 10) else ():  # GRAPH, GRAPHS
            for inner in graph.node:
                found |= _taken(inner)
            found |= {value.name for value in graph.output}
    return found


def _within(graph: Any) -> Iterator[Any]:
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == 5:  # AttributeProto.GRAPH
                yield attribute.g
            elif attribute.type == 10:  # AttributeProto.GRAPHS
                yield from attribute.graphs
