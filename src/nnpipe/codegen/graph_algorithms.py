"""Graph algorithms: reachability, cycles and topological order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import TypeVar

Node = TypeVar("Node")
Edge = tuple[int, int]
"""Indices of two nodes; the first comes before the second."""


def reached(start: Iterable[Node], follow: Mapping[Node, Iterable[Node]]) -> set[Node]:
    """Return the nodes of ``start`` and all that can be reached from them; ``follow`` holds the successors of nodes."""
    found: set[Node] = set()
    waiting = list(start)
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting += follow.get(node, ())
    return found


def circles(count: int, edges: Collection[Edge]) -> list[frozenset[int]]:
    """Return the sets of nodes that can all be reached from each other, and the nodes with an edge to themselves.

    Nodes are numbered from 0; the sets are in the order of their lowest nodes.
    """
    follow: dict[int, set[int]] = defaultdict(set)
    for before, after in edges:
        follow[before].add(after)
    reach = {node: reached(follow.get(node, ()), follow) for node in range(count)}
    found: list[frozenset[int]] = []
    for node in range(count):
        circle = frozenset(other for other in reach[node] if node in reach[other])
        if node in reach[node] and circle not in found:
            found.append(circle)
    return found


def in_order(count: int, edges: Collection[Edge], last: int | None = None) -> list[int]:
    """Return the nodes in topological order; where the edges leave a choice, lower numbers come first.

    ``last`` is the node that comes last.  There must be no cycles, and no edge may start at ``last``.
    """
    needs: dict[int, set[int]] = defaultdict(set)
    for before, after in edges:
        needs[after].add(before)
    found: list[int] = []
    while len(found) < count:
        ready = [node for node in range(count) if node not in found and needs[node] <= set(found)]
        found.append(next((node for node in ready if node != last), ready[0]))
    return found
