"""Every task of nnpipe keeps the contract of tasks."""

from __future__ import annotations

import numpy as np
import pytest

from nnpipe.core.dataset_spec import DatasetSpec
from nnpipe.core.tensors import Batch
from nnpipe.tasks import AnomalyDetection, Classification, Regression, Segmentation
from nnpipe.testing.task import TaskContract

RANDOM = np.random.default_rng(3)


class TestClassification(TaskContract):
    @pytest.fixture
    def task(self) -> Classification:
        return Classification()

    @pytest.fixture
    def spec(self) -> DatasetSpec:
        return DatasetSpec(Classification.name, (), (), tuple("abcdefg"))

    @pytest.fixture
    def truth(self) -> Batch:
        return {"label": np.arange(70) % 7}

    @pytest.fixture
    def predictions(self, truth: Batch) -> Batch:
        scores = RANDOM.normal(size=(70, 7))
        scores[np.arange(70), truth["label"]] += 1
        return {"scores": scores.astype(np.float32)}


class TestRegression(TaskContract):
    @pytest.fixture
    def task(self) -> Regression:
        return Regression()

    @pytest.fixture
    def spec(self) -> DatasetSpec:
        return DatasetSpec(Regression.name, (), ())

    @pytest.fixture
    def truth(self) -> Batch:
        return {"value": RANDOM.normal(1000, 1, (40, 2)).astype(np.float32)}

    @pytest.fixture
    def predictions(self, truth: Batch) -> Batch:
        return {"value": truth["value"] + RANDOM.normal(0, 0.5, (40, 2)).astype(np.float32)}


class TestSegmentation(TaskContract):
    @pytest.fixture
    def task(self) -> Segmentation:
        return Segmentation()

    @pytest.fixture
    def spec(self) -> DatasetSpec:
        return DatasetSpec(Segmentation.name, (), (), ("ground", "disc", "square"))

    @pytest.fixture
    def truth(self) -> Batch:
        return {"mask": RANDOM.integers(0, 3, (12, 6, 5))}

    @pytest.fixture
    def predictions(self, truth: Batch) -> Batch:
        return {"mask": np.where(RANDOM.random((12, 6, 5)) < 0.3, 0, truth["mask"])}


class TestAnomalyDetection(TaskContract):
    @pytest.fixture
    def task(self) -> AnomalyDetection:
        return AnomalyDetection()

    @pytest.fixture
    def spec(self) -> DatasetSpec:
        return DatasetSpec(AnomalyDetection.name, (), ())

    @pytest.fixture
    def truth(self) -> Batch:
        return {"anomalous": np.arange(60) % 3 // 2}

    @pytest.fixture
    def predictions(self, truth: Batch) -> Batch:
        return {"score": (truth["anomalous"] + RANDOM.integers(-2, 3, 60)).astype(np.float32)}
