"""What can be reached in graphs, held against plain definitions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nnpipe.codegen.graph import find_cycles, find_reachable, sort_topologically

COUNT = 6
edges = st.sets(st.tuples(st.integers(0, COUNT - 1), st.integers(0, COUNT - 1)))


def reachable(links):
    """Close a relation by definition: a pair is in it if a third node leads from one to the
    other.
    """
    found = set(links)
    for middle in range(COUNT):
        found |= {(a, d) for a, b in found if b == middle for c, d in found if c == middle}
    return found


def test_what_is_reached_is_what_starts_and_what_follows():
    assert find_reachable("a", {"a": "b", "b": "ca", "d": "a"}) == {"a", "b", "c"}
    assert find_reachable((), {"a": "b"}) == set()


@given(edges)
def test_circles_are_sets_that_reach_each_other(links):
    both = reachable(links)
    found = find_cycles(COUNT, links)
    assert [min(circle) for circle in found] == sorted(min(circle) for circle in found)
    for a in range(COUNT):
        assert sum(a in circle for circle in found) == ((a, a) in both)
        for b in range(COUNT):
            together = any({a, b} <= circle for circle in found)
            assert together == ((a, b) in both and (b, a) in both)


@given(edges, st.permutations(range(COUNT)))
def test_an_order_follows_every_edge(links, names):
    # Edges that go up in some numbering make no circle.
    links = {(names[min(a, b)], names[max(a, b)]) for a, b in links if a != b}
    order = sort_topologically(COUNT, links)
    assert sorted(order) == list(range(COUNT))
    assert all(order.index(a) < order.index(b) for a, b in links)
    ends = [node for node in range(COUNT) if all(a != node for a, _ in links)]
    for last in ends:
        assert sort_topologically(COUNT, links, last)[-1] == last


def test_where_nothing_else_decides_the_numbers_do():
    assert sort_topologically(4, set()) == [0, 1, 2, 3]
    assert sort_topologically(4, {(3, 1)}, last=0) == [2, 3, 1, 0]
