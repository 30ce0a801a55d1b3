"""Weights that were changed are found where they were, and factors of channels are told from damage."""

from __future__ import annotations

import numpy as np
import pytest

from nnpipe.analysis.altered_weights import nearest, unexplained

RANDOM = np.random.default_rng(5)
ROWS = RANDOM.standard_normal((10, 36))


@pytest.mark.parametrize("last", [False, True])
def test_a_changed_kernel_is_found_in_its_place(last: bool) -> None:
    changed = ROWS + 0.4 * RANDOM.standard_normal(ROWS.shape)
    laid = changed.T.ravel() if last else changed.ravel()
    values = np.concatenate([RANDOM.standard_normal(123), laid, RANDOM.standard_normal(77)])
    found = nearest(values, ROWS, last)
    assert found is not None
    np.testing.assert_array_equal(found, changed)


@pytest.mark.parametrize("values", [np.zeros(5), np.zeros(2000), RANDOM.standard_normal(2000), np.full(2000, np.nan)])
def test_what_is_not_there_is_not_found(values: np.ndarray) -> None:
    assert nearest(values, ROWS, False) is None


def test_factors_of_output_and_input_channels_explain_what_noise_does_not() -> None:
    outer, inner = RANDOM.uniform(0.1, 5, (10, 1, 1)), RANDOM.uniform(0.1, 5, (1, 4, 1))
    scaled = (ROWS.reshape(10, 4, 9) * outer * inner).reshape(10, 36)
    assert np.all(unexplained(ROWS, scaled, (4, 3, 3)) > 80)
    levels = unexplained(
        ROWS, scaled + 0.3 * scaled.std(1, keepdims=True) * RANDOM.standard_normal((10, 36)), (4, 3, 3)
    )
    assert np.all((levels > 5) & (levels < 16))


def test_scales_of_the_entries_of_a_table_are_no_damage_to_its_columns() -> None:
    """A quantiser gives each row of an embedding a scale of its own, and columns are the channels of its result."""
    random = np.random.default_rng(8)
    scaled = ROWS * random.uniform(0.4, 2, (1, 36))
    assert np.all(unexplained(ROWS, scaled, (36,)) > 80)
    spoilt = scaled.copy()
    spoilt[[2, 5]] = spoilt[[5, 2]]
    levels = unexplained(ROWS, spoilt, (36,))
    assert np.all(levels[[2, 5]] < 3)
    noisy = scaled + 0.3 * scaled.std(1, keepdims=True) * random.standard_normal(scaled.shape)
    assert np.all(unexplained(ROWS, noisy, (36,)) < 14)
    assert np.all(unexplained(ROWS[:2], noisy[:2], (36,)) < 14)
