"""Long series become short ones in which nothing is hidden."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from nnpipe.report.drawing.axes import (
    COLUMNS,
    compute_column_means,
    find_column_starts,
    reduce_to_columns,
)


def test_one_slow_call_in_a_million_stays_in_the_picture():
    x, y = np.arange(1_000_000), np.full(1_000_000, 5)
    y[777_777] = 10_000
    line = reduce_to_columns("", x, y)
    assert len(line.x) == COLUMNS
    assert line.high.max() == 10_000
    assert line.y.max() == 5
    assert line.low.min() == 5


def test_short_series_are_given_as_they_are():
    x, y = np.arange(COLUMNS), np.arange(COLUMNS) ** 2
    line = reduce_to_columns("label", x, y)
    np.testing.assert_array_equal(line.x, x)
    np.testing.assert_array_equal(line.y, y)
    assert line.low is None
    assert line.high is None


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 3000), st.integers(1, 400), st.booleans())
def test_every_sample_is_within_the_band_of_its_column(seed, samples, columns, clumped):
    random = np.random.default_rng(seed)
    x = np.sort(random.integers(0, 50 if clumped else 10**9, samples))
    y = random.standard_normal(samples)
    line = reduce_to_columns("", x, y, columns)
    assert len(line.x) <= max(columns, 0 if line.low is not None else samples)
    assert (np.diff(line.x) >= 0).all()
    if line.low is not None:
        starts = find_column_starts(x, columns)
        for number, part in enumerate(np.split(y, starts[1:])):
            assert line.low[number] == part.min()
            assert line.high[number] == part.max()
            assert line.y[number] == np.median(part)


def test_means_of_layers_add_up_to_the_mean_of_the_sum():
    random = np.random.default_rng(0)
    x = np.sort(random.integers(0, 10**9, 5000))
    layers = tuple(random.integers(0, 1000, 5000) for _ in range(3))
    places, means = compute_column_means(x, layers)
    _, (whole,) = compute_column_means(x, (sum(layers),))
    assert len(places) <= COLUMNS
    np.testing.assert_allclose(sum(means), whole)
