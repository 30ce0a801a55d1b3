"""Values tell whether other weights have their effect, also through the noise of 8-bit integers."""

from __future__ import annotations

import numpy as np
import pytest

from nnpipe.analysis.suspect_operations import has_no_effect, has_no_effect_in, is_lost, is_rescaled

RANDOM = np.random.default_rng(1)
INPUTS = RANDOM.standard_normal((300, 12))
KERNEL = RANDOM.standard_normal((12, 7))
EXPECTED = INPUTS @ KERNEL
NOISE = 0.05 * RANDOM.standard_normal(EXPECTED.shape)
EVERYWHERE = tuple(range(7))


def test_only_the_result_of_the_source_says_that_a_kernel_has_no_effect() -> None:
    adopted = INPUTS @ (KERNEL * RANDOM.uniform(0.95, 1.05, (12, 1)))
    assert has_no_effect(EXPECTED, adopted, EXPECTED + NOISE, 1)
    assert not has_no_effect(EXPECTED, adopted, adopted + NOISE, 1)
    # without an effect, nothing is known
    assert not has_no_effect(EXPECTED, EXPECTED, EXPECTED + NOISE, 1)
    one = np.where(np.arange(7) == 3, adopted, EXPECTED)
    assert not has_no_effect(EXPECTED, adopted, one, 1)


def test_each_number_of_a_vector_must_be_seen() -> None:
    adopted = EXPECTED + np.array([0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.0])
    assert has_no_effect_in(EXPECTED, adopted, EXPECTED + NOISE, EVERYWHERE[:6], 7)
    assert not has_no_effect_in(EXPECTED, adopted, EXPECTED + NOISE, EVERYWHERE, 7)
    assert not has_no_effect_in(EXPECTED, adopted, adopted + NOISE, (2,), 7)
    assert not has_no_effect_in(EXPECTED, adopted, EXPECTED + 20 * NOISE, (2,), 7)


@pytest.mark.parametrize(("size", "lost"), [(1e-5, True), (1e-2, False)])
def test_a_bias_is_lost_only_in_rounding(size: float, lost: bool) -> None:
    assert is_lost(EXPECTED, EXPECTED + size, EVERYWHERE, 7) is lost
    # a factor might be seen on other samples
    assert not is_lost(EXPECTED, EXPECTED * (1 + size), EVERYWHERE, 7)


def test_factors_and_constants_of_one_axis_are_told_from_other_changes() -> None:
    rounding = 1e-6 * np.ones_like(KERNEL)
    for factor in (RANDOM.uniform(0.5, 2, (12, 1)), RANDOM.uniform(0.5, 2, 7)):
        assert is_rescaled(KERNEL, KERNEL * factor, rounding)
        assert is_rescaled(KERNEL, KERNEL + factor, rounding)
        assert not is_rescaled(
            KERNEL, KERNEL * factor + 1e-4 * RANDOM.standard_normal(KERNEL.shape), rounding
        )
    assert not is_rescaled(KERNEL, KERNEL[::-1], rounding)
    # nothing is left of it
    assert not is_rescaled(KERNEL, np.where(np.arange(12)[:, None] == 5, 0, KERNEL), rounding)
