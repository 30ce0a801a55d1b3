"""Errors are those of channels: a large channel does not hide the others, and sound models have
no outliers.
"""

from __future__ import annotations

import numpy as np

from nnpipe.analysis.channel_errors import ErrorSums, TensorError, find_outliers


def test_sums_over_samples_are_those_of_all_samples_together() -> None:
    rng = np.random.default_rng(0)
    expected = rng.normal(size=(6, 4, 5, 5))
    found = expected + rng.normal(scale=0.01, size=expected.shape)
    at_once, one_by_one = ErrorSums(), ErrorSums()
    at_once.add(expected, found, axis=1)
    for number in range(6):
        one_by_one.add(expected[number : number + 1], found[number : number + 1], axis=1)
    ours, theirs = (each.error("a", "a", "a", "Conv") for each in (at_once, one_by_one))
    np.testing.assert_allclose(ours.channels, theirs.channels)
    assert abs(ours.median - 40) < 1


def test_a_large_channel_hides_nothing_from_the_median() -> None:
    rng = np.random.default_rng(0)
    expected = rng.normal(size=(4, 8, 6, 6))
    expected[:, 2] *= 300
    step = np.ptp(expected) / 255
    found = np.round(expected / step) * step
    sums = ErrorSums()
    sums.add(expected, found, axis=1)
    error = sums.error("conv", "y", "conv", "Conv")
    assert error.whole > 25, "the whole tensor looks sound"
    assert error.median < 3
    assert 2 not in error.worst_channels


def error(name: str, median: float, lowest: float, kind: str = "Conv") -> TensorError:
    return TensorError(name, name, name, kind, median, lowest, median, (lowest, median, median))


def test_only_what_stands_out_is_outlying() -> None:
    sound = tuple(error(f"conv{n}", 38 + n % 5, 30 + n % 4) for n in range(12))
    assert find_outliers(sound) == ()
    assert find_outliers(()) == ()
    coarse = tuple(error(f"conv{n}", 9, 5) for n in range(12))
    assert find_outliers(coarse) == (), "a model of few bits throughout has no outlier"
    assert find_outliers((*sound, error("probabilities", 0, 0, "Softmax"))) == ()
    lost, channel = error("lost", 0.4, 0.1), error("channel", 38, 6)
    assert [each.operation for each in find_outliers((*sound, channel, lost))] == [
        "lost",
        "channel",
    ]
