"""Every task of nnpipe keeps the contract of tasks."""

from __future__ import annotations

import numpy as np
import pytest

from nnpipe.core.tensors import Batch, DatasetSpec
from nnpipe.tasks import (
    AnomalyDetection,
    AnomalyMaps,
    Classification,
    Detection,
    EmbeddingSearch,
    Forecast,
    Generation,
    InstanceSegmentation,
    Pose,
    Regression,
    Segmentation,
    SeriesAnomaly,
)
from nnpipe.tasks.instance_segmentation.run_lengths import encode_mask_runs, pad_runs
from nnpipe.testing.task import TaskContract


def random() -> np.random.Generator:
    """Return draws that do not depend on the order of tests."""
    return np.random.default_rng(3)


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
        scores = random().normal(size=(70, 7))
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
        return {"value": random().normal(1000, 1, (40, 2)).astype(np.float32)}

    @pytest.fixture
    def predictions(self, truth: Batch) -> Batch:
        return {"value": truth["value"] + random().normal(0, 0.5, (40, 2)).astype(np.float32)}


class TestSegmentation(TaskContract):
    @pytest.fixture
    def task(self) -> Segmentation:
        return Segmentation()

    @pytest.fixture
    def spec(self) -> DatasetSpec:
        return DatasetSpec(Segmentation.name, (), (), ("ground", "disc", "square"))

    @pytest.fixture
    def truth(self) -> Batch:
        return {"mask": random().integers(0, 3, (12, 6, 5))}

    @pytest.fixture
    def predictions(self, truth: Batch) -> Batch:
        return {"mask": np.where(random().random((12, 6, 5)) < 0.3, 0, truth["mask"])}


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
        return {"score": (truth["anomalous"] + random().integers(-2, 3, 60)).astype(np.float32)}


class TestAnomalyMaps(TaskContract):
    @pytest.fixture
    def task(self) -> AnomalyMaps:
        return AnomalyMaps()

    @pytest.fixture
    def spec(self) -> DatasetSpec:
        return DatasetSpec(AnomalyMaps.name, (), ())

    @pytest.fixture
    def truth(self) -> Batch:
        mask = np.zeros((24, 9, 8), np.int8)
        mask[::3, 2:5, 3:7] = mask[::4, 7:, :2] = 1
        return {"mask": mask, "anomalous": mask.any(axis=(1, 2)).astype(np.int64)}

    @pytest.fixture
    def predictions(self, truth: Batch) -> Batch:
        return {"map": (truth["mask"] + random().integers(-2, 3, (24, 9, 8))).astype(np.float32)}


class TestDetection(TaskContract):
    @pytest.fixture
    def task(self) -> Detection:
        return Detection(protocol="pascal")

    @pytest.fixture
    def spec(self) -> DatasetSpec:
        return DatasetSpec(Detection.name, (), (), ("cat", "dog"))

    @pytest.fixture
    def truth(self) -> Batch:
        boxes = random().uniform(20, 200, (16, 3, 4))
        return {"boxes": boxes, "class": random().integers(-1, 2, (16, 3))}

    @pytest.fixture
    def predictions(self, truth: Batch) -> Batch:
        draws = random()
        moved = draws.normal(0, 12, truth["boxes"].shape) * (draws.random((16, 3, 1)) < 0.6)
        return {
            "boxes": truth["boxes"] + moved,
            "class": truth["class"],
            "scores": draws.random((16, 3)),
        }


class TestEmbedding(TaskContract):
    @pytest.fixture
    def task(self) -> EmbeddingSearch:
        return EmbeddingSearch()

    @pytest.fixture
    def spec(self) -> DatasetSpec:
        return DatasetSpec(EmbeddingSearch.name, (), (), tuple("abcdef"))

    @pytest.fixture
    def truth(self) -> Batch:
        return {"label": np.arange(90) % 6, "role": np.arange(90) // 6 % 3}

    @pytest.fixture
    def predictions(self, truth: Batch) -> Batch:
        draws = random()
        centres = draws.normal(size=(6, 3))
        return {
            "embedding": (centres[truth["label"]] + draws.normal(size=(90, 3))).astype(np.float32)
        }


class TestForecast(TaskContract):
    @pytest.fixture
    def task(self) -> Forecast:
        return Forecast()

    @pytest.fixture
    def spec(self) -> DatasetSpec:
        return DatasetSpec(Forecast.name, (), ())

    @pytest.fixture
    def truth(self) -> Batch:
        scale = np.ones((24, 2), np.float32)
        return {
            "value": random().normal(size=(24, 3, 2)),
            "scale": scale,
            "block": np.arange(24) // 6,
        }

    @pytest.fixture
    def predictions(self, truth: Batch) -> Batch:
        return {"value": truth["value"] + random().normal(size=(24, 3, 2))}


class TestGeneration(TaskContract):
    @pytest.fixture
    def task(self) -> Generation:
        return Generation()

    @pytest.fixture
    def spec(self) -> DatasetSpec:
        return DatasetSpec(Generation.name, (), ())

    @pytest.fixture
    def truth(self) -> Batch:
        names = [str(number) for number in range(30)]
        return {"sample": np.arange(30), "answer": np.array(names, object)}

    @pytest.fixture
    def predictions(self, truth: Batch) -> Batch:
        times = random().gamma(4, 1e6, (30, 12)).astype(np.int64)
        times[::3, 7:] = -1
        text = truth["answer"].copy()
        text[::2] = "another"
        return {
            "text": text,
            "tokens": np.where(times < 0, -1, 5),
            "token_ns": times,
            "request_ns": np.where(times < 0, 0, times).sum(axis=1),
            "prompt_tokens": np.arange(30),
            "reference_tokens": np.full(30, 3),
            "reference_log_likelihood": -np.arange(30.0),
        }


class TestSeriesAnomaly(TaskContract):
    @pytest.fixture
    def task(self) -> SeriesAnomaly:
        return SeriesAnomaly(thresholds=(0.5,))

    @pytest.fixture
    def spec(self) -> DatasetSpec:
        return DatasetSpec(SeriesAnomaly.name, (), ())

    @pytest.fixture
    def truth(self) -> Batch:
        window = np.full(400, -1)
        for number, start in enumerate((40, 90, 150, 230, 350)):
            window[start : start + 12] = number
        return {"window": window, "series": np.arange(400) // 100}

    @pytest.fixture
    def predictions(self, truth: Batch) -> Batch:
        score = random().random(400) ** 8
        score[[45, 235]] = 0.9
        return {"score": score}


class TestPose(TaskContract):
    @pytest.fixture
    def task(self) -> Pose:
        return Pose()

    @pytest.fixture
    def spec(self) -> DatasetSpec:
        return DatasetSpec(Pose.name, (), (), ("head", "hand", "foot"))

    @pytest.fixture
    def truth(self) -> Batch:
        points = random().uniform(20, 200, (16, 2, 3, 3)).astype(np.float32)
        points[..., 2] = random().integers(1, 3, (16, 2, 3))
        count, size = random().integers(0, 3, 16), np.full((16, 2), 240)
        return {
            "points": points,
            "count": count,
            "size": size,
            "area": random().uniform(2000, 20000, (16, 2)),
        }

    @pytest.fixture
    def predictions(self, truth: Batch) -> Batch:
        draws = random()
        moved = draws.normal(0, 40, truth["points"].shape) * (draws.random((16, 2, 1, 1)) < 0.6)
        scores = draws.random((16, 2))
        return {"points": truth["points"] + moved, "count": truth["count"], "scores": scores}


class TestInstanceSegmentation(TaskContract):
    @pytest.fixture
    def task(self) -> InstanceSegmentation:
        return InstanceSegmentation()

    @pytest.fixture
    def spec(self) -> DatasetSpec:
        return DatasetSpec(InstanceSegmentation.name, (), (), ("cat", "dog"))

    @pytest.fixture
    def truth(self) -> Batch:
        masks = np.zeros((36, 150, 140))
        for mask, (top, left, side) in zip(masks, random().integers(0, 110, (36, 3)), strict=True):
            mask[top : top + side + 9, left : left + 20] = 1
        runs = pad_runs([encode_mask_runs(mask) for mask in masks]).reshape(12, 3, -1)
        size = np.tile([150, 140], (12, 1))
        area = random().uniform(20, 20000, (12, 3))
        return {
            "runs": runs,
            "class": random().integers(-1, 2, (12, 3)),
            "size": size,
            "area": area,
        }

    @pytest.fixture
    def predictions(self, truth: Batch) -> Batch:
        draws = random()
        runs = truth["runs"].copy()
        runs[..., 0] += (
            moved := np.where(draws.random((12, 3)) < 0.6, np.minimum(3, runs[..., 2]), 0)
        )
        runs[..., 2] -= moved
        swapped = draws.random((12, 3)) < 0.4
        return {
            "runs": runs,
            "class": np.where(swapped & (truth["class"] >= 0), 1 - truth["class"], truth["class"]),
            "scores": draws.random((12, 3)),
        }
