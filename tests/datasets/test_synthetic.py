"""Made-up data sets: reproducible, of the shapes promised, and possible to learn."""

from __future__ import annotations

import numpy as np
import pytest
from synthetic_contract import SyntheticContract

from nnpipe.datasets.synthetic import (
    SyntheticAnomaliesDataset,
    SyntheticImagesDataset,
    SyntheticRegressionDataset,
    SyntheticSegmentationDataset,
    SyntheticVectorsDataset,
)


class TestSyntheticImages(SyntheticContract):
    @pytest.fixture
    def dataset(self):
        return SyntheticImagesDataset(
            num_samples=60, num_classes=3, image_size=(10, 12), channels=3, data_seed=1
        )


class TestSyntheticVectors(SyntheticContract):
    @pytest.fixture
    def dataset(self):
        return SyntheticVectorsDataset(
            num_samples=60, num_classes=4, num_features=5, noise=0.2, data_seed=1
        )


class TestSyntheticRegression(SyntheticContract):
    @pytest.fixture
    def dataset(self):
        return SyntheticRegressionDataset(num_samples=60, num_features=3, noise=0.1, data_seed=1)

    def perfect(self, dataset, truth):
        return truth


class TestSyntheticSegmentation(SyntheticContract):
    @pytest.fixture
    def dataset(self):
        return SyntheticSegmentationDataset(num_samples=60, image_size=(16, 20), data_seed=1)

    def perfect(self, dataset, truth):
        return truth


class TestSyntheticAnomalies(SyntheticContract):
    @pytest.fixture
    def dataset(self):
        return SyntheticAnomaliesDataset(num_samples=60, length=32, data_seed=1)

    def perfect(self, dataset, truth):
        return {"score": truth["anomalous"].astype(np.float32)}


def everything(dataset, split):
    inputs, truth = dataset.read(dataset.split(split))
    return next(iter(inputs.values())).astype(np.float64), next(iter(truth.values()))


@pytest.mark.parametrize("dataset", [SyntheticImagesDataset(), SyntheticVectorsDataset()])
def test_the_nearest_class_mean_is_right_most_of_the_time(dataset):
    samples, labels = everything(dataset, "train")
    tests, wanted = everything(dataset, "test")
    means = np.stack(
        [
            samples[labels == label].reshape(np.sum(labels == label), -1).mean(0)
            for label in np.unique(labels)
        ]
    )
    distances = ((tests.reshape(len(tests), 1, -1) - means) ** 2).sum(-1)
    accuracy = np.mean(distances.argmin(1) == wanted)
    assert accuracy > 0.9


def test_classes_are_balanced():
    labels = SyntheticImagesDataset(num_samples=100, num_classes=3).samples.targets["label"]
    assert sorted(np.bincount(labels)) == [33, 33, 34]


def test_a_linear_fit_explains_the_linear_number_and_not_the_other():
    dataset = SyntheticRegressionDataset()
    samples, values = everything(dataset, "train")
    tests, wanted = everything(dataset, "test")
    fit = np.linalg.lstsq(samples, values, rcond=None)[0]
    unexplained = np.mean((tests @ fit - wanted) ** 2, axis=0) / np.var(wanted, axis=0)
    assert unexplained[1] < 0.02
    assert 0.05 < unexplained[0] < 0.9


def test_brightness_alone_finds_most_pixels():
    dataset = SyntheticSegmentationDataset(num_samples=50)
    images, masks = everything(dataset, "train")
    guess = np.where(images[..., 0] > 180, 1, np.where(images[..., 0] < 76, 2, 0))
    assert np.mean(guess == masks) > 0.9
    assert set(np.unique(masks)) == {0, 1, 2}


def test_anomalies_are_a_tenth_and_can_be_told():
    dataset = SyntheticAnomaliesDataset()
    series, anomalous = everything(dataset, "train")
    assert 0.05 < anomalous.mean() < 0.15
    # A wave obeys x[t+1] + x[t-1] = 2 cos(w) x[t]; what breaks the rule is strange.
    flat = series[..., 0]
    error = np.abs(flat[:, 2:] + flat[:, :-2] - 2 * np.cos(2 * np.pi / 16) * flat[:, 1:-1]).max(
        axis=1
    )
    strange, usual = error[anomalous == 1], error[anomalous == 0]
    assert np.median(strange) > 2 * np.median(usual)
