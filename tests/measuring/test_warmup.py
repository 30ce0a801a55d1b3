"""Warm-up is found where it is, and not where it is not."""

from __future__ import annotations

import numpy as np
import pytest

from nnpipe.measuring.quantile_intervals import count_warm_up_calls


def steady(random, calls=2000):
    return (
        1e5
        * np.exp(0.05 * random.standard_normal(calls))
        * np.where(random.random(calls) < 0.005, 8, 1)
    )


@pytest.mark.parametrize("length", [10, 40, 200, 700])
@pytest.mark.parametrize("factor", [1.3, 3.0])
def test_a_slow_beginning_is_found_with_its_length(length, factor):
    random = np.random.default_rng(length)
    times = steady(random)
    times[:length] *= factor
    assert count_warm_up_calls(times) == pytest.approx(length, rel=0.1, abs=2)


@pytest.mark.parametrize("calls", [15, 60, 250])
def test_a_beginning_that_wears_off_is_found(calls):
    random = np.random.default_rng(calls)
    times = steady(random) * (1 + 2 * np.exp(-np.arange(2000) / calls))
    assert calls < count_warm_up_calls(times) < 6 * calls


def test_steady_runs_have_none():
    random = np.random.default_rng(0)
    assert (
        sum(count_warm_up_calls(steady(random, random.integers(40, 3000))) > 0 for _ in range(500))
        <= 1
    )


def test_neighbours_that_resemble_each_other_are_no_warm_up():
    random = np.random.default_rng(1)
    found = 0
    for _ in range(200):
        # bursts, one of which may stand at the beginning
        slow = np.repeat(random.random(200) < 0.1, 15)
        found += count_warm_up_calls(steady(random, 3000) * np.where(slow, 2.0, 1.0)) > 0
    assert found <= 4


@pytest.mark.parametrize(
    "times", [np.full(500, 7.0), np.zeros(100), np.arange(39.0)[::-1], np.array([])]
)
def test_where_nothing_can_be_told_there_is_none(times):
    assert count_warm_up_calls(times) == 0


def test_a_fast_beginning_is_no_warm_up():
    times = steady(np.random.default_rng(2))
    times[:300] *= 0.7
    assert count_warm_up_calls(times) == 0


def test_at_most_half_of_a_run_is_warm_up():
    assert count_warm_up_calls(steady(np.random.default_rng(3)) * np.linspace(3, 1, 2000)) <= 1000
