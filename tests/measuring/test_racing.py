"""A race measures further only whoever can still win, and its intervals hold together."""

from __future__ import annotations

import math

import numpy as np
import pytest

from nnpipe.measuring.racing import (
    SHARES,
    Racer,
    compute_interval_confidence,
    find_front_places,
    find_leaders,
    open_for_choice,
)

FULL = len(SHARES)


def test_all_intervals_hold_together() -> None:
    assert 1 - compute_interval_confidence(0.95, 20, 3) == pytest.approx(0.05 / (3 * 20 * 3))


def test_the_best_looking_comes_first_and_then_who_may_be_best_by_most() -> None:
    racers = [
        Racer(1, True, 0, 5.0, 4.5, 5.5),
        Racer(1, True, 0, 4.0, 3.9, 4.1),
        Racer(1, True, 0, 9.0, 1.0, 20.0),
        Racer(1, False, 0, 1.0, 0.9, 1.1),  # fails a constraint
        Racer(1, True, 1, 2.0, 1.9, 2.1),  # its estimates do not meet one, but it may
    ]
    assert open_for_choice(racers, [False] * 5) == [1, 2, 0, 4]
    racers[1] = Racer(FULL, True, 0, 4.0, 3.99, 4.01)
    assert find_leaders(racers) == [1]
    assert open_for_choice(racers, [True, False, False, False, False]) == [2, 4]
    assert open_for_choice([Racer(1, False)], [False]) == []


def test_places_at_the_front_are_sure_only_where_intervals_say_so() -> None:
    low = np.array([[1.0, 5.0], [2.0, 6.0], [0.9, 1.0], [3.0, -math.inf]])
    high = np.array([[1.1, 5.0], [2.1, 6.0], [1.05, 9.0], [3.1, math.inf]])
    twins, shared = np.arange(4), np.array([False, False])
    dominated, surely = find_front_places(low, high, twins, shared)
    assert dominated.tolist() == [False, True, False, False]
    # the third may dominate the first, the last is not known
    assert surely.tolist() == [False, False, False, False]
    low[2] = high[2] = 0.9, 1.0
    dominated, surely = find_front_places(low, high, twins, shared)
    assert dominated.tolist() == [True, True, False, False]
    assert surely.tolist() == [False, False, True, False]


def test_twins_are_equal_in_what_they_share_although_it_is_not_known() -> None:
    low, high = np.array([[1.0, 0.1], [2.0, 0.0]]), np.array([[1.1, 0.9], [2.1, 1.0]])
    assert find_front_places(low, high, np.array([0, 0]), np.array([False, True]))[0].tolist() == [
        False,
        True,
    ]
    assert find_front_places(low, high, np.array([0, 1]), np.array([False, True]))[0].tolist() == [
        False,
        False,
    ]
