"""Synthetic data sets of sounds and series that small models can learn; no files are needed."""

from __future__ import annotations

import numpy as np

from nnpipe.core.arguments import argument
from nnpipe.core.dataset_spec import DatasetSpec
from nnpipe.core.tensors import TensorSpec
from nnpipe.datasets.in_memory import Samples
from nnpipe.datasets.synthetic import SyntheticDataset
from nnpipe.datasets.wav_files import sound_classification
from nnpipe.tasks.forecast.task import Forecast
from nnpipe.tasks.series_anomaly.task import SeriesAnomaly

_SOUNDS = ("low", "high", "rising", "falling")
_LOWEST_HZ, _HIGHEST_HZ = 300.0, 1500.0


class SyntheticSoundsDataset(SyntheticDataset):
    """Sound classification: low, high, rising and falling tones in noise."""

    sample_rate: int = argument(8000, help="samples per second", minimum=4000)
    seconds: float = argument(0.5, help="length of a sound", minimum=0.01, maximum=60)
    noise: float = argument(0.1, help="standard deviation of the noise; tones have half the full range", minimum=0.0)

    @property
    def spec(self) -> DatasetSpec:
        """Sounds ``(n, samples)``, float32 from -1 to 1, and four classes."""
        return sound_classification(round(self.seconds * self.sample_rate), _SOUNDS, self.sample_rate)

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
        phase = 2 * np.pi * (np.cumsum(pitch, axis=1) / self.sample_rate + rng.uniform(0, 1, (self.num_samples, 1)))
        sounds = 0.5 * rng.uniform(0.5, 1, (self.num_samples, 1)) * np.sin(phase)
        sounds += self.noise * rng.standard_normal(sounds.shape)
        return Samples({"sound": np.clip(sounds, -1, 1).astype(np.float32)}, {"label": labels}, _SOUNDS)


class SyntheticSeriesDataset(SyntheticDataset):
    """Forecast: windows of two waves with a trend and noise, and the values behind each."""

    window: int = argument(24, help="rows that the model is given", minimum=2)
    horizon: int = argument(4, help="rows to be forecast", minimum=1)
    season: int = argument(12, help="rows of the longer wave", minimum=4)
    noise: float = argument(
        0.05, help="standard deviation of the noise; the waves' amplitudes are 1 and 0.5", minimum=0.0
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
        series += 0.5 * np.sin(2 * np.pi * time / (self.season * 0.37) + start[1]) + time / len(time)
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
    """Anomalies in series: a wave whose pace changes for some stretches; a sample for each point."""

    num_series: int = argument(4, help="number of series", minimum=1)
    num_windows: int = argument(2, help="anomalies of each series", minimum=0)
    window: int = argument(24, help="rows that the model is given for a point", minimum=1)
    noise: float = argument(0.05, help="standard deviation of the noise; the wave's amplitude is 1", minimum=0.0)
    training_samples: int = argument(
        0, help="points of one more series without anomalies, to train on; all others are for testing", minimum=0
    )

    @property
    def spec(self) -> DatasetSpec:
        """The rows up to a point, and the number of its window and of its series."""
        return DatasetSpec(
            SeriesAnomaly.name,
            inputs=(TensorSpec("points", (None, self.window, 1), "float32"),),
            targets=(TensorSpec("window", (None,), "int64"), TensorSpec("series", (None,), "int64")),
        )

    def load(self) -> Samples:
        """Return the points of all series, float32, in the order of time; those to train on come last."""
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
