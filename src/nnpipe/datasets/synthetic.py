"""Synthetic data sets, one for each task, that small models can learn, for tests and first experiments.

All samples are drawn from ``data_seed``; no files are needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from nnpipe.core.arguments import argument
from nnpipe.core.dataset_spec import DatasetSpec
from nnpipe.core.tensors import TensorSpec
from nnpipe.datasets.in_memory import InMemoryDataset, Samples
from nnpipe.tasks.anomaly.task import AnomalyDetection
from nnpipe.tasks.regression.task import Regression
from nnpipe.tasks.segmentation.task import Segmentation


class SyntheticDataset(InMemoryDataset):
    """Base of synthetic data sets."""

    abstract = True

    num_samples: int = argument(1000, help="number of samples", minimum=1)
    data_seed: int = argument(0, help="seed of the samples", minimum=0)

    def download(self) -> None:
        """Do nothing: the samples are generated."""

    def origin(self) -> Mapping[str, Any]:
        """Return that the data are synthetic."""
        return {"name": f"made by {type(self).__name__}", "licence": "none needed"}


class SyntheticImagesDataset(SyntheticDataset):
    """Image classification: each class has its own pattern, with random shift, brightness and noise."""

    num_classes: int = argument(4, help="number of classes", minimum=2, maximum=1000)
    image_size: tuple[int, int] = argument((16, 16), help="height and width of the images", minimum=4)
    channels: int = argument(1, help="channels of the images", minimum=1, maximum=4)
    noise: float = argument(0.1, help="standard deviation of the noise, as a fraction of the full range", minimum=0.0)

    def load(self) -> Samples:
        """Return random images, uint8, and their labels."""
        rng = np.random.default_rng(self.data_seed)
        height, width = self.image_size
        patterns = _smooth(rng.standard_normal((self.num_classes, height, width, self.channels)))
        labels = np.arange(self.num_samples, dtype=np.int64) % self.num_classes
        rng.shuffle(labels)
        images = np.empty((self.num_samples, height, width, self.channels), np.uint8)
        for image, label in zip(images, labels, strict=True):
            shifted = np.roll(patterns[label], rng.integers(-1, 2, 2), axis=(0, 1)) * rng.uniform(0.7, 1.0)
            noisy = 0.5 + 0.5 * shifted + self.noise * rng.standard_normal(shifted.shape)
            image[:] = np.clip(np.rint(255 * noisy), 0, 255)
        return Samples({"image": images}, {"label": labels}, _class_names(self.num_classes))


class SyntheticVectorsDataset(SyntheticDataset):
    """Vector classification: each class is a cluster around its own centre."""

    num_classes: int = argument(3, help="number of classes", minimum=2, maximum=1000)
    num_features: int = argument(8, help="length of the vectors", minimum=1)
    noise: float = argument(
        0.3, help="standard deviation of the clusters; their centres are about 1 apart", minimum=0.0
    )

    def load(self) -> Samples:
        """Return random vectors, float32, and their labels."""
        rng = np.random.default_rng(self.data_seed)
        centres = rng.standard_normal((self.num_classes, self.num_features))
        labels = np.arange(self.num_samples, dtype=np.int64) % self.num_classes
        rng.shuffle(labels)
        vectors = centres[labels] + self.noise * rng.standard_normal((self.num_samples, self.num_features))
        return Samples({"vector": vectors.astype(np.float32)}, {"label": labels}, _class_names(self.num_classes))


class SyntheticRegressionDataset(SyntheticDataset):
    """Regression: two numbers computed from a vector by a sine, a product and a sum, with noise."""

    num_features: int = argument(4, help="length of the vectors", minimum=2)
    noise: float = argument(0.05, help="standard deviation of the noise", minimum=0.0)

    @property
    def spec(self) -> DatasetSpec:
        """Vectors ``(n, num_features)`` and values ``(n, 2)``."""
        return DatasetSpec(
            Regression.name,
            inputs=(TensorSpec("vector", (None, self.num_features), "float32"),),
            targets=(TensorSpec("value", (None, 2), "float32"),),
        )

    def load(self) -> Samples:
        """Return random vectors and their values, all float32."""
        rng = np.random.default_rng(self.data_seed)
        vectors = rng.uniform(-1, 1, (self.num_samples, self.num_features))
        weights = rng.standard_normal(self.num_features)
        values = np.stack([np.sin(3 * vectors[:, 0]) + vectors[:, 0] * vectors[:, 1], vectors @ weights], axis=1)
        values += self.noise * rng.standard_normal(values.shape)
        return Samples({"vector": vectors.astype(np.float32)}, {"value": values.astype(np.float32)})


class SyntheticSegmentationDataset(SyntheticDataset):
    """Segmentation: a bright disc and a dark square on a noisy background."""

    image_size: tuple[int, int] = argument((24, 24), help="height and width of the images", minimum=8)
    noise: float = argument(0.1, help="standard deviation of the noise, as a fraction of the full range", minimum=0.0)

    @property
    def spec(self) -> DatasetSpec:
        """Grey images and a mask with the class of each pixel."""
        return DatasetSpec(
            Segmentation.name,
            inputs=(TensorSpec("image", (None, *self.image_size, 1), "uint8"),),
            targets=(TensorSpec("mask", (None, *self.image_size), "int64"),),
            class_names=("ground", "disc", "square"),
        )

    def load(self) -> Samples:
        """Return random images, uint8, and the class of each pixel, int64."""
        rng = np.random.default_rng(self.data_seed)
        height, width = self.image_size
        rows, columns = np.mgrid[:height, :width]
        masks = np.zeros((self.num_samples, height, width), np.int64)
        least = min(height, width)
        for mask in masks:
            radius, side = rng.uniform(least / 8, least / 4), rng.integers(least // 4, least // 2)
            row, column = rng.uniform(0, height), rng.uniform(0, width)
            mask[(rows - row) ** 2 + (columns - column) ** 2 <= radius**2] = 1
            top, left = rng.integers(0, height - side + 1), rng.integers(0, width - side + 1)
            mask[top : top + side, left : left + side] = 2
        brightness = np.array([0.5, 0.9, 0.1])[masks] + self.noise * rng.standard_normal(masks.shape)
        images = np.clip(np.rint(255 * brightness), 0, 255).astype(np.uint8)
        return Samples({"image": images[..., None]}, {"mask": masks}, self.spec.class_names)


class SyntheticAnomaliesDataset(SyntheticDataset):
    """Anomaly detection: sections of a wave, a tenth of them with a spike or a change of frequency."""

    length: int = argument(64, help="values per section", minimum=16)
    noise: float = argument(0.05, help="standard deviation of the noise; the wave's amplitude is 1", minimum=0.0)

    @property
    def spec(self) -> DatasetSpec:
        """Sections of one channel, and whether they are anomalous."""
        return DatasetSpec(
            AnomalyDetection.name,
            inputs=(TensorSpec("series", (None, self.length, 1), "float32"),),
            targets=(TensorSpec("anomalous", (None,), "int64"),),
            class_names=("usual", "anomalous"),
        )

    def load(self) -> Samples:
        """Return random sections, float32, and whether they are anomalous, int64."""
        rng = np.random.default_rng(self.data_seed)
        anomalous = (np.arange(self.num_samples) % 10 == 9).astype(np.int64)
        rng.shuffle(anomalous)
        time = np.arange(self.length)
        phase = rng.uniform(0, 2 * np.pi, (self.num_samples, 1))
        kind = rng.integers(0, 2, self.num_samples)
        pace = np.where((anomalous == 1) & (kind == 1), 1.8, 1.0)[:, None]
        series = np.sin(2 * np.pi * pace * time / 16 + phase)
        series += self.noise * rng.standard_normal(series.shape)
        spiked = np.flatnonzero((anomalous == 1) & (kind == 0))
        series[spiked, rng.integers(0, self.length, len(spiked))] += rng.choice([-3.0, 3.0], len(spiked))
        return Samples({"series": series[..., None].astype(np.float32)}, {"anomalous": anomalous})


def _class_names(count: int) -> tuple[str, ...]:
    return tuple(f"class {number}" for number in range(count))


def _smooth(noise: np.ndarray) -> np.ndarray:
    """Return white noise smoothed over a few pixels and scaled to the range from -1 to 1."""
    for axis in (1, 2):
        noise = (np.roll(noise, -1, axis) + noise + np.roll(noise, 1, axis)) / 3
    return np.asarray(noise / np.abs(noise).max(axis=(1, 2, 3), keepdims=True))
