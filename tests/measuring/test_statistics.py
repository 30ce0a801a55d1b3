"""Percentiles come with intervals, or not at all."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from property_examples import examples

from nnpipe.measuring.quantile_intervals import Sample
from nnpipe.measuring.statistics import (
    SHARES,
    Summary,
    compute_percentile,
    count_samples_needed,
    find_interval_ranks,
)


def coverage(samples, share, low, high):
    """How probably the quantile lies between two order statistics, by adding up the binomial
    distribution.
    """
    return math.fsum(
        math.comb(samples, below) * share**below * (1 - share) ** (samples - below)
        for below in range(low + 1, high + 1)
    )


def test_the_samples_that_percentiles_need_are_the_published_ones():
    assert [count_samples_needed(share) for share in SHARES] == [6, 29, 299, 2995]


@pytest.mark.parametrize("share", SHARES)
def test_too_few_samples_have_no_interval(share):
    needed = count_samples_needed(share)
    assert find_interval_ranks(needed, share)[1] == needed - 1
    with pytest.raises(ValueError, match="do not support"):
        find_interval_ranks(needed - 1, share)
    assert compute_percentile(Sample(np.arange(needed - 1.0)), share).value is None


@pytest.mark.parametrize("share", SHARES)
def test_a_percentile_appears_when_there_are_as_many_samples_as_it_said(share):
    random = np.random.default_rng(3)
    found = compute_percentile(Sample(random.normal(size=5)), share)
    asked = 0
    while found.value is None:
        assert found.interval is None
        assert found.needed > asked
        asked = found.needed
        found = compute_percentile(Sample(random.normal(size=asked)), share)
    assert found.interval[0] <= found.value <= found.interval[1]
    assert asked <= 3 * count_samples_needed(share) + 10


@settings(max_examples=examples(150), deadline=None)
@given(st.sampled_from([0.5, 0.9, 0.99]), st.integers(0, 500))
def test_intervals_cover_as_often_as_they_say_and_are_the_narrowest(share, more):
    samples = count_samples_needed(share) + more
    low, high = find_interval_ranks(samples, share)
    assert 0 <= low < high < samples
    assert coverage(samples, share, low, high) >= 0.95 - 1e-9
    narrower = range(max(0, low - 40), min(samples - 1, high + 40) - (high - low) + 2)
    assert all(coverage(samples, share, start, start + high - low - 1) < 0.95 for start in narrower)


def test_intervals_of_many_samples_are_those_of_the_normal_distribution():
    low, high = find_interval_ranks(1_000_000, 0.5)
    assert (high - low) / 2 == pytest.approx(1.96 * 500, rel=0.01)
    assert (high + low) / 2 == pytest.approx(500_000, abs=2)


def test_a_summary_says_what_numpy_says():
    values = np.random.default_rng(0).integers(1000, 10**9, 20_000)
    summary = Summary.from_values(values)
    assert len(summary) == 20_000
    assert summary.mean == pytest.approx(values.mean())
    assert summary.deviation == pytest.approx(values.std(ddof=1))
    assert summary.median == np.median(values)
    assert (summary.least, summary.greatest) == (values.min(), values.max())
    assert summary.mean_interval[0] < summary.mean < summary.mean_interval[1]
    assert [found.name for found in summary.percentiles] == ["median", "p90", "p99", "p99.9"]
    assert [found.value for found in summary.percentiles] == [
        np.quantile(values, share) for share in SHARES
    ]


def test_one_sample_has_neither_deviation_nor_percentiles():
    summary = Summary.from_values(np.array([5]))
    assert (summary.mean, summary.mean_interval, summary.deviation, summary.median) == (
        5,
        None,
        None,
        5,
    )
    assert all(found.value is None for found in summary.percentiles)


@settings(max_examples=examples(400))
@given(st.lists(st.floats(-1e15, 1e15), min_size=1, max_size=40), st.floats(0, 1))
def test_a_quantile_of_ordered_values_is_numpys(values: list[float], share: float) -> None:
    ordered = np.sort(np.array(values, np.float64))
    assert Summary.from_values(ordered).quantile(share) == np.quantile(ordered, share)
