"""The base of data sets of sound files."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import numpy.typing as npt

from nnpipe.core.arguments import argument
from nnpipe.core.dataset_spec import DatasetSpec
from nnpipe.core.errors import ConfigError, DatasetError, MissingDependency
from nnpipe.core.tensors import Batch, TensorSpec
from nnpipe.datasets._wav import read_wav
from nnpipe.datasets.in_memory import checked_indices
from nnpipe.datasets.listed_files import ClassifiedFilesDataset
from nnpipe.tasks.classification.task import Classification

SUFFIXES = frozenset({".wav", ".wave"})
"""Suffixes of sound files, compared in lower case."""

_MOST_SAMPLES = 1 << 28  # of a clip: 1 GiB
_LARGEST_FACTOR = 100_000  # of the resampling, whose filter is 20 times as long


class WavFilesDataset(ClassifiedFilesDataset):
    """Base of classification data sets of wav files, which are read when they are asked for.

    A subclass writes :meth:`listing`.  Clips become one channel (the mean of all), are resampled by a polyphase
    filter, and are cut, or padded with zeros, at the end.
    """

    sample_rate: int = argument(16000, help="samples per second to which sounds are resampled", minimum=1)
    seconds: float = argument(
        1.0, help="length to which sounds are cut, or padded with silence", minimum=0.001, maximum=3600
    )

    def validate(self) -> None:
        """Check that a clip fits into memory."""
        if not 0 < self.clip_length <= _MOST_SAMPLES:
            raise ConfigError(f"{self.seconds:g} seconds at {self.sample_rate} a second: clips are from 1 to "
                              f"{_MOST_SAMPLES:,} samples long")  # fmt: skip

    @property
    def clip_length(self) -> int:
        """The number of samples of a clip."""
        return round(self.seconds * self.sample_rate)

    @property
    def spec(self) -> DatasetSpec:
        """Sounds ``(n, samples)``, float32 from -1 to 1, and the classes."""
        return sound_classification(self.clip_length, self.files.class_names, self.sample_rate)

    def read(self, indices: npt.NDArray[np.integer]) -> tuple[Batch, Batch]:
        """Return some samples: sounds and their labels."""
        indices = checked_indices(indices, len(self))
        clips = np.empty((len(indices), self.clip_length), np.float32)
        for place, index in zip(clips, indices, strict=True):
            place[:] = clip(self.files.paths[index], self.sample_rate, self.clip_length)
        return {"sound": clips}, {"label": self.files.labels[indices]}


def sound_classification(samples: int, class_names: tuple[str, ...], sample_rate: int) -> DatasetSpec:
    """Return the spec of sounds ``"sound"``, float32 ``(None, samples)``, with a class ``"label"``."""
    return DatasetSpec(
        Classification.name,
        inputs=(TensorSpec("sound", (None, samples), "float32"),),
        targets=(TensorSpec("label", (None,), "int64"),),
        class_names=class_names,
        sample_rates={"sound": sample_rate},
    )


def clip(path: Path, sample_rate: int, length: int, start: int = 0) -> npt.NDArray[np.float32]:
    """Return a part of a sound file: one channel, resampled, padded with zeros behind the file's end.

    Parameters
    ----------
    path
        The file.
    sample_rate
        Samples per second of the result.
    length, start
        The length of the result and its first sample, both in samples of the result.

    Returns
    -------
    ndarray
        float32 ``(length,)``.

    Raises
    ------
    DatasetError
        If the file cannot be read; the message names it.
    MissingDependency
        If the file has another sample rate and SciPy, which resamples, is not installed.
    """
    found = np.zeros(length, np.float32)
    header, frames = read_wav(path, start, length)
    if header.sample_rate == sample_rate:
        sound = _one_channel(frames)
    else:
        common = math.gcd(header.sample_rate, sample_rate)
        up, down = sample_rate // common, header.sample_rate // common
        if max(up, down) > _LARGEST_FACTOR:
            raise DatasetError(f"{path} has {header.sample_rate:,} samples a second, which share no divisor with "
                               f"{sample_rate:,}: give another --sample-rate")  # fmt: skip
        # Input samples on both sides that the filter of `resample_poly` looks at.
        reach = 10 * max(up, down) // up + 2
        first = max(0, start * down // up - reach) // down * down  # a sample that is one of the result, too
        last = -(-(start + length) * down // up) + reach
        part = _one_channel(read_wav(path, first, last - first)[1])
        sound = _resampled(part, up, down)[start - first * up // down :]
    kept = min(length, len(sound))
    found[:kept] = sound[:kept]
    return found


def _one_channel(frames: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    return frames[:, 0] if frames.shape[1] == 1 else frames.mean(axis=1, dtype=np.float32)


def _resampled(sound: npt.NDArray[np.float32], up: int, down: int) -> npt.NDArray[np.float32]:
    try:
        from scipy.signal import resample_poly
    except ImportError:
        raise MissingDependency(
            "sounds with another sample rate are resampled by SciPy: pip install 'nnpipe[data]', or give the files' "
            "own --sample-rate"
        ) from None
    return np.asarray(resample_poly(sound, up, down), np.float32) if len(sound) else sound
