"""Delta debugging finds what must stay, with few tries."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from nnpipe.workflows.reduction.trying import minimize_items


@pytest.mark.parametrize("wanted", [{0}, {99}, {49, 50}, {13, 77}, {3, 40, 98}])
def test_it_ends_with_what_must_stay(wanted: set[int]) -> None:
    tried: list[Sequence[int]] = []

    def shows(part: Sequence[int]) -> bool:
        tried.append(part)
        return wanted <= set(part)

    assert set(list(minimize_items(range(100), shows))[-1]) == wanted
    assert len(tried) < 100


def test_no_single_item_can_be_left_out_in_the_end() -> None:
    def shows(part: Sequence[int]) -> bool:
        return len(part) % 3 == 1 or len(part) > 20

    left = list(minimize_items(range(30), shows))[-1]
    assert shows(left)
    assert len(left) == 1 or not any(shows(left[:n] + left[n + 1 :]) for n in range(len(left)))
