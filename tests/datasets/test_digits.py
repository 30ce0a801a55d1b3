"""The digits that come with nnpipe."""

from __future__ import annotations

import numpy as np
import pytest

from nnpipe.datasets.digits import DigitsDataset
from nnpipe.testing.dataset import DatasetContract


class TestDigitsDataset(DatasetContract):
    needs_files = False

    @pytest.fixture
    def dataset(self):
        return DigitsDataset(split_seed=3, validation_fraction=0.15, test_fraction=0.25)


def test_they_are_those_of_scikit_learn():
    published = pytest.importorskip(
        "sklearn.datasets", reason="scikit-learn is not installed"
    ).load_digits()
    inputs, truth = DigitsDataset().read(np.arange(1797))
    assert inputs["image"].dtype == np.uint8
    np.testing.assert_array_equal(inputs["image"][..., 0], published.images)
    np.testing.assert_array_equal(truth["label"], published.target)


def test_the_default_split_keeps_a_fifth_for_testing():
    digits = DigitsDataset()
    assert [len(digits.split(name)) for name in ("train", "validation", "test")] == [1294, 144, 359]
    labels = digits.read(digits.split("test"))[1]["label"]
    shares = np.bincount(labels) / np.bincount(digits.read(np.arange(1797))[1]["label"])
    assert np.all(np.abs(shares - 0.2) < 1 / 170)


def test_asking_to_download_them_does_no_harm(tmp_path):
    DigitsDataset(dataset_root=tmp_path / "absent", download_dataset=True).prepare()
    assert list(tmp_path.iterdir()) == []
