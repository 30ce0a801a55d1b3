"""Distributions by the standard library agree with scipy's."""

from __future__ import annotations

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from installed import ImportedWhenUsed

from nnpipe.core.distributions import beta_quantile, incomplete_beta, student_quantile

special = ImportedWhenUsed("scipy.special")
stats = ImportedWhenUsed("scipy.stats")

PARAMETERS = st.floats(0.1, 1e5)


@given(PARAMETERS, PARAMETERS, st.floats(0, 1), st.floats(-5, 5))
def test_the_incomplete_beta_function_is_scipys(a, b, x, deviations):
    mean, deviation = a / (a + b), math.sqrt(a * b / (a + b) ** 2 / (a + b + 1))
    for place in (x, min(max(mean + deviations * deviation, 0.0), 1.0)):
        assert incomplete_beta(place, a, b) == pytest.approx(special.betainc(a, b, place), abs=1e-9)


@given(st.floats(0.001, 0.999), st.floats(0.5, 1e4), st.floats(0.5, 1e4))
def test_quantiles_undo_the_beta_distribution(probability, a, b):
    x = beta_quantile(probability, a, b)
    assume(1e-12 < x < 1 - 1e-12)
    assert incomplete_beta(x, a, b) == pytest.approx(probability, abs=1e-9)


@pytest.mark.parametrize("freedom", [1, 2.5, 15, 200, 10_000, math.inf])
@pytest.mark.parametrize("probability", [0.005, 0.3, 0.5, 0.975, 0.9995])
def test_students_quantiles_are_scipys(probability, freedom):
    assert student_quantile(probability, freedom) == pytest.approx(
        stats.t.ppf(probability, freedom), rel=1e-8
    )


def test_what_has_no_meaning_is_refused():
    for arguments in ((1.5, 1, 1), (0.5, 0, 1), (0.5, 1, -1)):
        with pytest.raises(ValueError, match="not defined"):
            incomplete_beta(*arguments)
