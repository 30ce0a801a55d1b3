"""The digits as a worn scanner gives them."""

from __future__ import annotations

import numpy as np
import pytest

from nnpipe.core.dataset import Dataset
from nnpipe.datasets.digits import DigitsDataset, WornDigitsDataset
from nnpipe.testing.dataset import DatasetContract

ALL = np.arange(1797)


class TestWornDigitsDataset(DatasetContract):
    needs_files = False

    @pytest.fixture
    def dataset(self) -> Dataset:
        return WornDigitsDataset(split_seed=3, noise=1.0, faintest=0.5, test_fraction=0.25)


def test_a_scan_is_the_digit_somewhere_on_a_larger_sheet() -> None:
    clean, worn = DigitsDataset().read(ALL), WornDigitsDataset(noise=0, faintest=1).read(ALL)
    np.testing.assert_array_equal(worn[1]["label"], clean[1]["label"])
    places = set()
    for digit, sheet in zip(clean[0]["image"][..., 0], worn[0]["image"][..., 0], strict=True):
        windows = np.lib.stride_tricks.sliding_window_view(sheet, digit.shape)
        found = np.argwhere((windows == digit).all(axis=(2, 3)))
        assert len(found) > 0
        assert sheet.sum() == digit.sum()
        places.add(tuple(found[0]))
    assert len(places) >= 25  # of 5 x 5; empty edges fit in other places, too


def test_scans_are_fainter_and_noisy_and_always_the_same() -> None:
    worn = WornDigitsDataset(noise=0.0, faintest=0.2).read(ALL)[0]["image"]
    brightest = worn.max(axis=(1, 2, 3))
    assert brightest.min() in (3, 4)
    assert brightest.max() == 16
    noisy = WornDigitsDataset().read(ALL)[0]["image"]
    assert noisy.dtype == np.uint8
    assert noisy.max() == 16
    assert np.mean(noisy[:, 0, 0] > 0) > 0.3  # where digits seldom are
    np.testing.assert_array_equal(noisy, WornDigitsDataset().read(ALL)[0]["image"])
