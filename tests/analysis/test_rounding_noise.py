"""The noise of 8 bits is judged by most channels, not by the largest one."""

from __future__ import annotations

import numpy as np
import pytest

from nnpipe.analysis.channel_errors import RoundingNoise


def ranking(**tensors: np.ndarray) -> dict[str, float]:
    noise = RoundingNoise()
    noise.observe(tensors)
    noise.add(tensors)
    return dict(noise.rank_tensors())


def test_a_large_channel_leaves_nothing_of_the_others() -> None:
    values = np.random.default_rng(0).standard_normal((4, 8, 16, 16))
    uneven = values * np.where(np.arange(8) == 3, 300.0, 1.0)[:, None, None]
    found = ranking(even=values, uneven=uneven)
    assert list(found) == ["uneven", "even"]
    assert found["uneven"] < 3
    assert found["even"] > 30


def test_the_noise_of_an_even_tensor_is_that_of_its_step() -> None:
    values = np.random.default_rng(0).uniform(0, 1, (2, 4, 4000))
    assert ranking(x=values)["x"] == pytest.approx(
        10 * np.log10((1 / 3) / ((1 / 255) ** 2 / 12)), abs=0.1
    )


def test_channels_without_signal_and_tensors_without_range_do_not_count() -> None:
    values = np.random.default_rng(0).standard_normal((1, 4, 100))
    values[:, 1:] = 0
    found = ranking(x=values, zero=np.zeros((1, 4, 4)), whole=np.ones((1, 4, 4), np.int64))
    assert list(found) == ["x"]
    assert found["x"] > 30
