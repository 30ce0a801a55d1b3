"""Reachability in graphs: of tasks, of variables, and of functions that call each other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import TypeVar

Node = TypeVar("Node")
Edge = tuple[int, int]
"""Two nodes by their numbers; the first comes before the second."""


def reached(start: Iterable[Node], follow: Mapping[Node, Iterable[Node]]) -> set[Node]:
    """Return some nodes with all that can be reached from them; ``follow`` names what comes after each."""
    found: set[Node] = set()
    waiting = list(start)
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting += follow.get(node, ())
    return found


def circles(count: int, edges: Collection[Edge]) -> list[frozenset[int]]:
    """List the sets of nodes that can all be reached from each other, and nodes with an edge to themselves.

    Nodes are numbered from 0; sets come in the order of their first nodes.
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
    """Return nodes in an order in which each follows what comes before it, by their numbers else; one may come last.

    There must be no circles, and nothing may come after ``last``.
    """
    needs: dict[int, set[int]] = defaultdict(set)
    for before, after in edges:
        needs[after].add(before)
    found: list[int] = []
    while len(found) < count:
        ready = [node for node in range(count) if node not in found and needs[node] <= set(found)]
        found.append(next((node for node in ready if node != last), ready[0]))
    return found
