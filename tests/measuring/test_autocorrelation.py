"""Intervals cover the truth although calls depend on each other."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnpipe.measuring.quantile_intervals import (
    compute_autocorrelation_time,
    compute_correlated_mean_interval,
    compute_quantile_interval,
    count_effective_samples,
    count_samples_needed,
    find_interval_ranks,
)


def wandering(random, samples, calls):
    """A stationary Gaussian autoregression that forgets in so many calls; its autocorrelation
    time is known.
    """
    correlation = math.exp(-1 / calls)
    found = np.empty(samples)
    value = random.standard_normal()
    for place, noise in enumerate(random.standard_normal(samples) * math.sqrt(1 - correlation**2)):
        found[place] = value
        value = correlation * value + noise
    return found


@pytest.mark.parametrize("calls", [2, 10, 40])
def test_the_autocorrelation_time_is_that_of_the_process(calls):
    correlation = math.exp(-1 / calls)
    truth = (1 + correlation) / (1 - correlation)
    random = np.random.default_rng(1)
    found = [compute_autocorrelation_time(wandering(random, 8000, calls)) for _ in range(10)]
    # The largest of several estimates leans to the safe side.
    assert 0.9 * truth < np.median(found) < 2 * truth


def test_independent_values_are_worth_nearly_their_number():
    random = np.random.default_rng(2)
    found = [count_effective_samples(random.exponential(size=5000), 0.9) for _ in range(20)]
    assert 2000 < np.median(found) < 5000


@pytest.mark.parametrize("values", [np.full(1000, 7), np.array([3.0]), np.arange(15)])
def test_where_nothing_can_be_told_neighbours_count_as_independent(values):
    assert compute_autocorrelation_time(values) == 1


@pytest.mark.parametrize("share", [0.5, 0.9])
@pytest.mark.parametrize("calls", [0.2, 30])
def test_intervals_cover_the_truth_of_a_wandering_series(share, calls):
    truth = NormalDist().inv_cdf(share)
    random = np.random.default_rng(4)
    found = [compute_quantile_interval(wandering(random, 6000, calls), share) for _ in range(100)]
    assert sum(low <= truth <= high for low, high in found) >= 90


def test_intervals_that_take_calls_for_independent_would_not():
    random = np.random.default_rng(4)
    low, high = find_interval_ranks(6000, 0.5)
    found = [np.sort(wandering(random, 6000, 30)) for _ in range(100)]
    assert sum(series[low] <= 0 <= series[high] for series in found) < 60


def test_intervals_widen_with_confidence_and_enclose_the_samples_own_quantile():
    values = np.random.default_rng(5).lognormal(size=3000)
    for share in (0.01, 0.5, 0.9, 0.99):
        widths = []
        for confidence in (0.5, 0.9, 0.99):
            low, high = compute_quantile_interval(values, share, confidence)
            assert low <= np.quantile(values, share, method="inverted_cdf") <= high
            widths.append(high - low)
        assert widths == sorted(widths)


def test_the_order_of_time_matters():
    values = wandering(np.random.default_rng(6), 5000, 50)
    low, high = compute_quantile_interval(values, 0.5)
    mixed = compute_quantile_interval(np.random.default_rng(0).permutation(values), 0.5)
    assert mixed[1] - mixed[0] < (high - low) / 2


@pytest.mark.parametrize("share", [0.5, 0.9, 0.99])
def test_what_too_few_effective_samples_cannot_support_is_withheld(share):
    needed = count_samples_needed(share)
    random = np.random.default_rng(7)
    assert compute_quantile_interval(random.normal(size=needed - 1), share) is None
    assert compute_quantile_interval(random.normal(size=3 * needed + 10), share) is not None
    long_memory = np.repeat(random.normal(size=needed), 50)
    assert (compute_quantile_interval(long_memory, share) is None) is (share > 0.5)


def test_a_few_values_are_taken_as_independent():
    values = np.array([4.0, 1, 3, 2, 6, 5, 7])
    low, high = find_interval_ranks(7, 0.5)
    assert compute_quantile_interval(values, 0.5) == (low + 1, high + 1)
    assert compute_quantile_interval(values[:5], 0.5) is None


def test_extremes_serve_where_they_must():
    values = np.random.default_rng(8).normal(size=55)
    assert compute_quantile_interval(values, 0.9)[1] == values.max()
    assert compute_quantile_interval(values, 0.1)[0] == values.min()


@pytest.mark.parametrize("calls", [0.2, 30])
def test_intervals_of_means_cover_them(calls):
    random = np.random.default_rng(9)
    found = [
        compute_correlated_mean_interval(np.exp(0.3 * wandering(random, 6000, calls)))
        for _ in range(100)
    ]
    assert sum(low <= math.exp(0.045) <= high for low, high in found) >= 90
    assert compute_correlated_mean_interval(np.arange(15)) is None


@given(st.lists(st.integers(0, 30), min_size=16, max_size=700), st.floats(0.02, 0.98))
def test_a_sample_knows_the_autocorrelation_time_of_every_indicator(numbers, share):
    values = np.array(numbers)
    quantile = np.quantile(values, share, method="inverted_cdf")
    shrinking = count_effective_samples(np.full(100, 1.0)) / 100
    wanted = len(values) / compute_autocorrelation_time(values <= quantile) * shrinking
    assert count_effective_samples(values, share) == pytest.approx(wanted)


def test_whole_numbers_and_equal_values_do_no_harm():
    values = np.repeat([1000, 2000], [900, 100])
    np.random.default_rng(1).shuffle(values)
    assert compute_quantile_interval(values, 0.5) == (1000, 1000)
    assert compute_quantile_interval(values, 0.99) == (2000, 2000)
