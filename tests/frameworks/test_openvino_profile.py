"""Running averages are undone to the time of each run, as far as rounded numbers tell it."""

from __future__ import annotations

import numpy as np

from nnpipe.frameworks.openvino_profile import undone


def averages(times: np.ndarray) -> np.ndarray:
    """Return what OpenVINO gives after each run: the sum of whole microseconds divided by the runs, rounded down."""
    return np.cumsum(times, axis=1) // np.arange(1, times.shape[1] + 1)


def test_equal_times_come_back_exactly() -> None:
    times = np.repeat(np.array([[40], [7], [1200]]), 30, axis=1)
    np.testing.assert_array_equal(undone(averages(times)), times)


def test_a_slow_run_is_found_and_nothing_is_lost() -> None:
    rng = np.random.default_rng(0)
    times = rng.integers(90, 110, (20, 30))
    times[:, 0] = 900  # the first run allocates memory
    times[:, 17] = 5000
    found = undone(averages(times))
    assert (found >= 0).all()
    np.testing.assert_allclose(found[:, 17], 5000, atol=60)
    assert np.abs(found.sum(axis=1) - times.sum(axis=1)).max() < 30  # less than a microsecond a run
