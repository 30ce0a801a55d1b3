"""Made-up sounds and series can be learnt."""

from __future__ import annotations

import numpy as np
import pytest
from synthetic_contract import SyntheticContract

from nnpipe.datasets.synthetic import (
    SyntheticSeriesAnomaliesDataset,
    SyntheticSeriesDataset,
    SyntheticSoundsDataset,
)
from nnpipe.transforms import MFCC


class TestSyntheticSounds(SyntheticContract):
    @pytest.fixture
    def dataset(self):
        return SyntheticSoundsDataset(num_samples=60, seconds=0.1, data_seed=1)


class TestSyntheticSeries(SyntheticContract):
    @pytest.fixture
    def dataset(self):
        return SyntheticSeriesDataset(num_samples=60, data_seed=1)

    def perfect(self, dataset, truth):
        return {"value": truth["value"]}


class TestSyntheticSeriesAnomalies(SyntheticContract):
    @pytest.fixture
    def dataset(self):
        return SyntheticSeriesAnomaliesDataset(num_samples=60, data_seed=1)

    def perfect(self, dataset, truth):
        return {"score": (truth["window"] >= 0).astype(np.float64)}


def test_the_nearest_mean_of_cepstral_coefficients_tells_sounds():
    dataset = SyntheticSoundsDataset(num_samples=200)
    transform = MFCC(sample_rate=8000, frame_length=256, frame_step=256)
    (samples, labels), (tests, wanted) = (
        (transform.apply(inputs["sound"]).reshape(len(truth["label"]), -1), truth["label"])
        for inputs, truth in (dataset.read(dataset.split(name)) for name in ("train", "test"))
    )
    means = np.stack([samples[labels == label].mean(0) for label in range(4)])
    found = ((tests[:, None] - means) ** 2).sum(-1).argmin(1)
    assert np.mean(found == wanted) > 0.9


def test_a_linear_fit_forecasts_better_than_the_last_value():
    dataset = SyntheticSeriesDataset(num_samples=400)

    def rows(split):
        inputs, truth = dataset.read(dataset.split(split))
        table = inputs["series"][..., 0]
        return np.concatenate([table, np.ones((len(table), 1))], axis=1), truth

    fit = np.linalg.lstsq(rows("train")[0], rows("train")[1]["value"][..., 0], rcond=None)[0]
    table, truth = rows("test")
    learnt = dataset.task.primary.compute(
        dataset.evaluate({"value": (table @ fit)[..., None]}, truth)
    )
    naive = dataset.task.primary.compute(
        dataset.evaluate({"value": np.repeat(table[:, -2:-1], 4, axis=1)[..., None]}, truth)
    )
    assert learnt < 0.5 * naive


def test_a_broken_rule_tells_anomalies():
    dataset = SyntheticSeriesAnomaliesDataset(num_samples=2000)
    inputs, truth = dataset.read(dataset.split("test"))
    series = inputs["points"][..., 0].astype(np.float64)
    error = np.abs(series[:, 2:] + series[:, :-2] - 2 * np.cos(2 * np.pi / 16) * series[:, 1:-1])[
        :, -4:
    ].max(axis=1)
    assert len(np.unique(truth["series"] * 10 + truth["window"])) == 4 * 3
    assert dataset.task.primary.compute(dataset.evaluate({"score": error}, truth)) > 50


def test_points_to_train_on_have_no_anomalies_and_leave_the_others_as_they_are():
    alone = SyntheticSeriesAnomaliesDataset(num_samples=200)
    dataset = SyntheticSeriesAnomaliesDataset(num_samples=200, training_samples=50)
    usual = np.concatenate([dataset.split("train"), dataset.split("validation")])
    assert len(usual) == 50
    assert (dataset.read(usual)[1]["window"] == -1).all()
    for one, other in zip(
        alone.read(alone.split("test")), dataset.read(dataset.split("test")), strict=True
    ):
        for name, values in one.items():
            np.testing.assert_array_equal(other[name], values)
