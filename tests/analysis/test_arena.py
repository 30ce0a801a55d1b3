"""Plans of an arena: nothing overlaps, and where a smaller arena is possible it is found."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from itertools import combinations, permutations
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnpipe.analysis.arena import ArenaPlan, Buffer, plan_arena
from nnpipe.core.discoverable import C
from nnpipe.core.errors import ConfigError

CASES = Path(__file__).resolve().parents[3] / "shared" / "data" / "memory" / "minimalloc"
needs_c = pytest.mark.skipif(
    C.find() is None, reason="no C compiler is installed (apt install gcc)"
)


def check(buffers: Sequence[Buffer], plan: ArenaPlan, alignment: int = 1) -> None:
    assert len(plan.offsets) == len(buffers)
    for offset, buffer in zip(plan.offsets, buffers, strict=True):
        assert offset >= 0
        assert offset % alignment == 0
        assert offset + buffer.size <= plan.size
    for (a, one), (b, other) in combinations(zip(plan.offsets, buffers, strict=True), 2):
        if one.lower < other.upper and other.lower < one.upper:
            assert a + one.size <= b or b + other.size <= a, (one, other)


def least_by_trying(buffers: Sequence[Buffer]) -> int:
    """Return the least arena: first-fit in the best of all orders, by offset, finds it."""

    def height(order: Sequence[int]) -> int:
        places: dict[int, int] = {}
        for n in order:
            beside = [
                m
                for m in places
                if buffers[m].lower < buffers[n].upper and buffers[n].lower < buffers[m].upper
            ]
            places[n] = max((places[m] + buffers[m].size for m in beside), default=0)
        return max(at + buffers[n].size for n, at in places.items())

    return min(map(height, permutations(range(len(buffers)))))


lives = st.tuples(st.integers(0, 6), st.integers(1, 5), st.integers(0, 9)).map(
    lambda t: Buffer(t[0], t[0] + t[1], t[2])
)


@given(st.lists(lives, max_size=12), st.sampled_from([1, 4, 16]))
@settings(max_examples=100, deadline=None)
def test_buffers_that_live_together_never_overlap(buffers: list[Buffer], alignment: int) -> None:
    plan = plan_arena(buffers, alignment=alignment, seconds=0)
    check(buffers, plan, alignment)
    assert plan.size >= plan.lower_bound


@needs_c
@given(st.lists(lives, min_size=4, max_size=6))
@settings(max_examples=15, deadline=None)
def test_the_plan_is_as_small_as_the_best_of_all(buffers: list[Buffer]) -> None:
    plan = plan_arena(buffers)
    check(buffers, plan)
    assert plan.least
    assert plan.size == least_by_trying(buffers)


@needs_c
def test_a_bound_that_cannot_be_reached_is_proven() -> None:
    # Two steps are full with five bytes, but no placement fits all of them below six.
    buffers = [
        Buffer(0, 2, 2),
        Buffer(1, 4, 2),
        Buffer(3, 5, 3),
        Buffer(0, 1, 3),
        Buffer(4, 6, 2),
        Buffer(5, 7, 3),
    ]
    plan = plan_arena(buffers)
    check(buffers, plan)
    assert plan.least
    assert plan.size == least_by_trying(buffers)


def test_no_buffers_need_no_arena() -> None:
    assert plan_arena([]) == ArenaPlan((), 0, 0)


def test_what_is_no_buffer_is_refused() -> None:
    with pytest.raises(ConfigError, match="from step 3 to 3"):
        Buffer(3, 3, 1)


@needs_c
@pytest.mark.parametrize("case", ["D", "F", "J"])
def test_hard_cases_from_outside_fit(case: str) -> None:
    path = CASES / f"{case}.1048576.csv"
    if not path.is_file():
        pytest.skip("the cases of minimalloc are not there")
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    buffers = [Buffer(int(row["lower"]), int(row["upper"]), int(row["size"])) for row in rows]
    plan = plan_arena(buffers, capacity=1 << 20)
    check(buffers, plan)
    assert plan.size <= 1 << 20
