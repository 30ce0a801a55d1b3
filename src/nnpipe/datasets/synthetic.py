"""Synthetic data sets, one for each task, that small models can learn, for tests and first
experiments.

All samples are drawn from ``data_seed``; no files are needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np

from nnpipe.core.arguments import argument
from nnpipe.core.category_code import encode_category
from nnpipe.core.tensors import DatasetSpec, TensorSpec
from nnpipe.datasets.in_memory import InMemoryDataset, Samples
from nnpipe.datasets.tabular import FEATURES, Column, TabularDataset
from nnpipe.datasets.wav_files import make_sound_classification_spec
from nnpipe.tasks.anomaly.task import AnomalyDetection
from nnpipe.tasks.classification.task import Classification
from nnpipe.tasks.forecast.task import Forecast
from nnpipe.tasks.regression.task import Regression
from nnpipe.tasks.segmentation.task import Segmentation
from nnpipe.tasks.series_anomaly.task import SeriesAnomaly


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
    """Image classification: each class has its own pattern, with random shift, brightness and
    noise.
    """

    num_classes: int = argument(4, help="number of classes", minimum=2, maximum=1000)
    image_size: tuple[int, int] = argument(
        (16, 16), help="height and width of the images", minimum=4
    )
    channels: int = argument(1, help="channels of the images", minimum=1, maximum=4)
    noise: float = argument(
        0.1, help="standard deviation of the noise, as a fraction of the full range", minimum=0.0
    )

    def load(self) -> Samples:
        """Return random images, uint8, and their labels."""
        rng = np.random.default_rng(self.data_seed)
        height, width = self.image_size
        patterns = _smooth_noise(
            rng.standard_normal((self.num_classes, height, width, self.channels))
        )
        labels = np.arange(self.num_samples, dtype=np.int64) % self.num_classes
        rng.shuffle(labels)
        images = np.empty((self.num_samples, height, width, self.channels), np.uint8)
        for image, label in zip(images, labels, strict=True):
            shifted = np.roll(patterns[label], rng.integers(-1, 2, 2), axis=(0, 1)) * rng.uniform(
                0.7, 1.0
            )
            noisy = 0.5 + 0.5 * shifted + self.noise * rng.standard_normal(shifted.shape)
            image[:] = np.clip(np.rint(255 * noisy), 0, 255)
        return Samples({"image": images}, {"label": labels}, _make_class_names(self.num_classes))


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
        vectors = centres[labels] + self.noise * rng.standard_normal(
            (self.num_samples, self.num_features)
        )
        return Samples(
            {"vector": vectors.astype(np.float32)},
            {"label": labels},
            _make_class_names(self.num_classes),
        )


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
        values = np.stack(
            [np.sin(3 * vectors[:, 0]) + vectors[:, 0] * vectors[:, 1], vectors @ weights], axis=1
        )
        values += self.noise * rng.standard_normal(values.shape)
        return Samples({"vector": vectors.astype(np.float32)}, {"value": values.astype(np.float32)})


class SyntheticSegmentationDataset(SyntheticDataset):
    """Segmentation: a bright disc and a dark square on a noisy background."""

    image_size: tuple[int, int] = argument(
        (24, 24), help="height and width of the images", minimum=8
    )
    noise: float = argument(
        0.1, help="standard deviation of the noise, as a fraction of the full range", minimum=0.0
    )

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
        brightness = np.array([0.5, 0.9, 0.1])[masks] + self.noise * rng.standard_normal(
            masks.shape
        )
        images = np.clip(np.rint(255 * brightness), 0, 255).astype(np.uint8)
        return Samples({"image": images[..., None]}, {"mask": masks}, self.spec.class_names)


class SyntheticAnomaliesDataset(SyntheticDataset):
    """Anomaly detection: sections of a wave, a tenth of them with a spike or a change of
    frequency.
    """

    length: int = argument(64, help="values per section", minimum=16)
    noise: float = argument(
        0.05, help="standard deviation of the noise; the wave's amplitude is 1", minimum=0.0
    )

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
        series[spiked, rng.integers(0, self.length, len(spiked))] += rng.choice(
            [-3.0, 3.0], len(spiked)
        )
        return Samples({"series": series[..., None].astype(np.float32)}, {"anomalous": anomalous})


def _make_class_names(count: int) -> tuple[str, ...]:
    return tuple(f"class {number}" for number in range(count))


def _smooth_noise(noise: np.ndarray) -> np.ndarray:
    """Return white noise smoothed over a few pixels and scaled to the range from -1 to 1."""
    for axis in (1, 2):
        noise = (np.roll(noise, -1, axis) + noise + np.roll(noise, 1, axis)) / 3
    return np.asarray(noise / np.abs(noise).max(axis=(1, 2, 3), keepdims=True))


_SOUNDS = ("low", "high", "rising", "falling")
_LOWEST_HZ, _HIGHEST_HZ = 300.0, 1500.0


class SyntheticSoundsDataset(SyntheticDataset):
    """Sound classification: low, high, rising and falling tones in noise."""

    sample_rate: int = argument(8000, help="samples per second", minimum=4000)
    seconds: float = argument(0.5, help="length of a sound", minimum=0.01, maximum=60)
    noise: float = argument(
        0.1, help="standard deviation of the noise; tones have half the full range", minimum=0.0
    )

    @property
    def spec(self) -> DatasetSpec:
        """Sounds ``(n, samples)``, float32 from -1 to 1, and four classes."""
        return make_sound_classification_spec(
            round(self.seconds * self.sample_rate), _SOUNDS, self.sample_rate
        )

    def load(self) -> Samples:
        """Return random sounds, float32, and their labels."""
        rng = np.random.default_rng(self.data_seed)
        labels = np.arange(self.num_samples, dtype=np.int64) % len(_SOUNDS)
        rng.shuffle(labels)
        length = round(self.seconds * self.sample_rate)
        first = np.where(np.isin(labels, (0, 2)), _LOWEST_HZ, _HIGHEST_HZ)
        last = np.where(np.isin(labels, (0, 3)), _LOWEST_HZ, _HIGHEST_HZ)
        pace = rng.uniform(0.9, 1.1, (self.num_samples, 1))
        pitch = pace * (first[:, None] + (last - first)[:, None] * np.linspace(0, 1, length))
        phase = (
            2
            * np.pi
            * (
                np.cumsum(pitch, axis=1) / self.sample_rate
                + rng.uniform(0, 1, (self.num_samples, 1))
            )
        )
        sounds = 0.5 * rng.uniform(0.5, 1, (self.num_samples, 1)) * np.sin(phase)
        sounds += self.noise * rng.standard_normal(sounds.shape)
        return Samples(
            {"sound": np.clip(sounds, -1, 1).astype(np.float32)}, {"label": labels}, _SOUNDS
        )


class SyntheticSeriesDataset(SyntheticDataset):
    """Forecast: windows of two waves with a trend and noise, and the values behind each."""

    window: int = argument(24, help="rows that the model is given", minimum=2)
    horizon: int = argument(4, help="rows to be forecast", minimum=1)
    season: int = argument(12, help="rows of the longer wave", minimum=4)
    noise: float = argument(
        0.05,
        help="standard deviation of the noise; the waves' amplitudes are 1 and 0.5",
        minimum=0.0,
    )

    @property
    def spec(self) -> DatasetSpec:
        """Windows of one column, and what is behind them."""
        return DatasetSpec(
            Forecast.name,
            inputs=(TensorSpec("series", (None, self.window, 1), "float32"),),
            targets=(
                TensorSpec("value", (None, self.horizon, 1), "float32"),
                TensorSpec("scale", (None, 1), "float32"),
                TensorSpec("block", (None,), "int64"),
            ),
        )

    def load(self) -> Samples:
        """Return all windows of one series, split by time."""
        rng = np.random.default_rng(self.data_seed)
        length = self.window + self.horizon
        time = np.arange(self.num_samples + length - 1)
        start = rng.uniform(0, 2 * np.pi, 2)
        series = np.sin(2 * np.pi * time / self.season + start[0])
        series += 0.5 * np.sin(2 * np.pi * time / (self.season * 0.37) + start[1]) + time / len(
            time
        )
        series += self.noise * rng.standard_normal(len(time))
        rows = np.lib.stride_tricks.sliding_window_view(series.astype(np.float32), length)
        first = np.arange(self.num_samples)
        test = self.num_samples - round(self.num_samples * self.test_fraction)
        validation = test - round(test * self.validation_fraction)
        known = series[: max(2, validation + length - 1)]
        scale = np.full((self.num_samples, 1), np.abs(np.diff(known)).mean(), np.float32)
        return Samples(
            {"series": rows[:, : self.window, None]},
            {"value": rows[:, self.window :, None], "scale": scale, "block": first // length},
            official=(first >= validation).astype(np.int8) + (first >= test),
        )


class SyntheticSeriesAnomaliesDataset(SyntheticDataset):
    """Anomalies in series: a wave whose pace changes for some stretches; a sample for each
    point.
    """

    num_series: int = argument(4, help="number of series", minimum=1)
    num_windows: int = argument(2, help="anomalies of each series", minimum=0)
    window: int = argument(24, help="rows that the model is given for a point", minimum=1)
    noise: float = argument(
        0.05, help="standard deviation of the noise; the wave's amplitude is 1", minimum=0.0
    )
    training_samples: int = argument(
        0,
        help="points of one more series without anomalies, to train on; all others are for testing",
        minimum=0,
    )

    @property
    def spec(self) -> DatasetSpec:
        """The rows up to a point, and the number of its window and of its series."""
        return DatasetSpec(
            SeriesAnomaly.name,
            inputs=(TensorSpec("points", (None, self.window, 1), "float32"),),
            targets=(
                TensorSpec("window", (None,), "int64"),
                TensorSpec("series", (None,), "int64"),
            ),
        )

    def load(self) -> Samples:
        """Return the points of all series, float32, in the order of time; those to train on come
        last.
        """
        rng = np.random.default_rng(self.data_seed)
        tested, total = self.num_samples, self.num_samples + self.training_samples
        owners = np.full(total, self.num_series, np.int64)
        owners[:tested] = np.sort(np.arange(tested) % self.num_series)
        windows = np.full(total, -1, np.int64)
        inputs = np.empty((total, self.window, 1), np.float32)
        for number in np.unique(owners):
            points = np.flatnonzero(owners == number)
            count = len(points)
            pace = np.ones(count)
            stretch = max(1, count // (4 * (self.num_windows + 1)))
            for place in range(self.num_windows if number < self.num_series else 0):
                # One in each part of the series behind its first fifth, which does not count.
                low = count // 5 + place * (count - count // 5) // self.num_windows
                left = min(low + int(rng.integers(0, stretch + 1)), count - 1)
                pace[left : left + stretch] = 2.5
                windows[points[left : left + stretch]] = place
            values = np.sin(np.cumsum(pace) * 2 * np.pi / 16 + rng.uniform(0, 6))
            values += self.noise * rng.standard_normal(count)
            rows = np.maximum(np.arange(count)[:, None] + np.arange(1 - self.window, 1), 0)
            inputs[points] = values[rows][..., None]
        split = np.where(np.arange(total) < tested, 2, 0).astype(np.int8)
        return Samples({"points": inputs}, {"window": windows, "series": owners}, official=split)


_COLOURS = ("red", "green", "blue", "grey")


class SyntheticTabularDataset(TabularDataset):
    """Rows of three numbers of different sizes and a category, with gaps, in two classes.

    The class depends on thresholds, of which that of the first number is another one for each
    category: trees learn it from the columns, a linear model cannot.
    """

    num_samples: int = argument(1000, help="number of samples", minimum=1)
    data_seed: int = argument(0, help="seed of the samples", minimum=0)
    gaps: float = argument(
        0.05, help="part of the cells that are missing", minimum=0.0, maximum=0.9
    )

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """Three columns of numbers, and one of categories."""
        return (
            *(Column(name) for name in ("age", "income", "share")),
            Column("colour", {encode_category(text): text for text in _COLOURS}),
        )

    @property
    def table_task(self) -> str:
        """Classification."""
        return Classification.name

    def load(self) -> Samples:
        """Return random rows, float64, and their classes."""
        rng = np.random.default_rng(self.data_seed)
        age = rng.uniform(18, 90, self.num_samples)
        income = rng.lognormal(10, 0.5, self.num_samples)
        share = rng.random(self.num_samples)
        colour = rng.integers(0, len(_COLOURS), self.num_samples)
        bound = np.array([30, 45, 60, 75])[colour]
        label = ((age > bound) ^ (share > 0.8)).astype(np.int64)
        codes = np.array([encode_category(text) for text in _COLOURS])[colour]
        rows = np.stack([age, income, share, codes], axis=1)
        rows[rng.random(rows.shape) < self.gaps] = np.nan
        return Samples({FEATURES: rows}, {"label": label}, ("no", "yes"))

    def origin(self) -> Mapping[str, Any]:
        """Return that the data are synthetic."""
        return {"name": f"made by {type(self).__name__}", "licence": "none needed"}
