"""The centre of symmetric differences: scipy agrees, and the interval holds what it says."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from installed import ImportedWhenUsed

from nnpipe.measuring.paired_comparison import (
    compute_centre,
    compute_walsh_averages,
    count_values_needed,
)

stats = ImportedWhenUsed("scipy.stats")


@pytest.mark.parametrize("number", [6, 8, 13, 30])
def test_the_interval_is_what_wilcoxon_s_exact_test_does_not_reject(number):
    values = np.random.default_rng(number).standard_t(2, number) + 0.3
    low, high = compute_centre(values, 0.95).interval
    width = high - low
    for inside in (low + 1e-6 * width, (low + high) / 2, high - 1e-6 * width):
        assert stats.wilcoxon(values - inside, method="exact").pvalue > 0.05
    for outside in (low - 1e-6 * width, high + 1e-6 * width):
        assert stats.wilcoxon(values - outside, method="exact").pvalue <= 0.05


def test_so_many_values_are_needed_as_make_all_signs_alike_unlikely():
    assert [
        count_values_needed(confidence) for confidence in (0.5, 0.9, 0.95, 0.99, 1 - 0.05 / 6)
    ] == [
        2,
        5,
        6,
        8,
        8,
    ]
    assert compute_centre([1.0] * 5, 0.95).interval is None
    assert compute_centre([1.0] * 5, 0.95).reach == math.inf
    assert compute_centre(np.arange(6), 0.95).interval == (0, 5)
    with pytest.raises(ValueError, match="lies between 0 and 1"):
        count_values_needed(1.0)


@pytest.mark.parametrize("values", [[], [[1.0, 2.0]]])
def test_no_value_has_no_centre(values):
    with pytest.raises(ValueError, match="in a row"):
        compute_centre(values, 0.95)


def test_one_wild_value_hardly_moves_the_centre():
    values = np.random.default_rng(0).normal(0, 1, 20)
    wild = values.copy()
    wild[3] = 1e6
    assert abs(compute_centre(wild, 0.95).value - compute_centre(values, 0.95).value) < 0.3


@given(
    st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=30),
    st.floats(-1e3, 1e3),
    st.sampled_from([0.5, 0.9, 0.99]),
)
def test_shifting_and_turning_the_values_shifts_and_turns_the_centre(values, shift, confidence):
    found, moved = (
        compute_centre(values, confidence),
        compute_centre(np.array(values) + shift, confidence),
    )
    turned = compute_centre(-np.array(values), confidence)
    assert moved.value == pytest.approx(found.value + shift, abs=1e-6)
    assert turned.value == pytest.approx(-found.value, abs=1e-9)
    if found.interval is not None:
        assert found.interval[0] <= found.value <= found.interval[1]
        assert turned.interval == (-found.interval[1], -found.interval[0])


def test_pair_means_are_all_of_them():
    assert compute_walsh_averages(np.array([4.0, 0.0])).tolist() == [0.0, 2.0, 4.0]


@pytest.mark.parametrize("number", [8, 20])
def test_the_interval_holds_a_heavy_tailed_centre_as_often_as_it_says(number):
    random = np.random.default_rng(number)
    held = 0
    for _ in range(2000):
        low, high = compute_centre(random.standard_cauchy(number), 0.95).interval
        held += low <= 0 <= high
    assert held / 2000 > 0.94
