"""The base of data sets of sound files."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from nnpipe.core.arguments import argument
from nnpipe.core.errors import ConfigError, DatasetError, MissingDependency
from nnpipe.core.tensors import Batch, DatasetSpec, TensorSpec
from nnpipe.datasets._class_folders import Listing, list_class_files
from nnpipe.datasets.in_memory import check_indices
from nnpipe.datasets.listed_files import ClassifiedFilesDataset
from nnpipe.tasks.classification.task import Classification

_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE
_KNOWN = {(_PCM, 8), (_PCM, 16), (_PCM, 24), (_PCM, 32), (_FLOAT, 32), (_FLOAT, 64)}
_MOST_BYTES = 1 << 29  # that are read at once; as float32 they take up to four times as much
_MOST_CHANNELS, _MOST_CHUNKS, _HIGHEST_RATE = 256, 1000, 10_000_000


@dataclass(frozen=True)
class WavHeader:
    """What the header of a wav file says.

    Parameters
    ----------
    sample_rate, channels, bits
        Frames per second, samples per frame, and bits per sample.
    is_float
        Whether samples are floats, not integers.
    frames
        The number of frames.
    start
        The place of the first frame in the file, in bytes.
    """

    sample_rate: int
    channels: int
    bits: int
    is_float: bool
    frames: int
    start: int

    @property
    def frame_bytes(self) -> int:
        """The size of a frame in bytes."""
        return self.channels * self.bits // 8


def read_wav(
    path: Path, first: int = 0, most: int | None = None
) -> tuple[WavHeader, npt.NDArray[np.float32]]:
    """Return the header and some frames of a wav file.

    Parameters
    ----------
    path
        The file.
    first, most
        The first frame to read, and the greatest number of frames.

    Returns
    -------
    header, samples
        ``samples`` are float32 from -1 to 1, ``(frames, channels)``; integers are divided by their
        greatest magnitude, as ``tf.audio.decode_wav`` and ``soundfile`` do.

    Raises
    ------
    DatasetError
        If the file is missing, damaged, or of a kind that is not read; the message names it.
    """
    try:
        with open(path, "rb") as file:
            size = file.seek(0, 2)
            header = _read_header(path, file, size)
            left = max(0, header.frames - first)
            count = left if most is None else min(most, left)
            if count * header.frame_bytes > _MOST_BYTES:
                raise DatasetError(
                    f"{path} claims {header.sample_rate:,} samples a second of "
                    f"{header.frame_bytes:,} bytes; what is asked for takes more than "
                    f"{_MOST_BYTES >> 20:,} MiB; give fewer --seconds"
                )
            file.seek(header.start + min(first, header.frames) * header.frame_bytes)
            content = file.read(count * header.frame_bytes)
    except FileNotFoundError:
        raise DatasetError(f"{path} is not there; put it back") from None
    except OSError as error:
        raise DatasetError(f"{path} cannot be read: {error.strerror or error}") from None
    if len(content) != count * header.frame_bytes:
        raise DatasetError(f"{path} was shortened while it was read")
    samples = _decode_samples(content, header).reshape(count, header.channels)
    if header.is_float and not np.isfinite(samples).all():
        raise DatasetError(f"{path} holds samples that are infinite or no numbers; write it again")
    return header, samples


def _read_header(path: Path, file: BinaryIO, size: int) -> WavHeader:
    file.seek(0)
    head = file.read(12)
    if len(head) < 12 or head[:4] != b"RIFF" or head[8:] != b"WAVE":
        raise DatasetError(f"{path} is no wav file: it does not begin with RIFF and WAVE")
    layout: tuple[int, int, int, int] | None = None
    for _ in range(_MOST_CHUNKS):
        chunk = file.read(8)
        if len(chunk) < 8:
            break
        name, length = chunk[:4], struct.unpack("<I", chunk[4:])[0]
        start = file.tell()
        if start + length > size:
            raise DatasetError(
                f"{path} says that its part {name.decode('latin-1')!r} has {length:,} bytes, and "
                f"{size - start:,} are "
                "there: it was cut off, or its length was never written; write it again"
            )
        if name == b"fmt ":
            layout = _parse_layout(path, file.read(min(length, 40)))
        elif name == b"data":
            if layout is None:
                raise DatasetError(
                    f"{path} has samples before it says what they are; write it again"
                )
            kind, channels, rate, bits = layout
            frames, rest = divmod(length, channels * bits // 8)
            if rest:
                raise DatasetError(
                    f"{path} ends within a frame: {length:,} bytes of {channels * bits // 8} each"
                )
            return WavHeader(rate, channels, bits, kind == _FLOAT, frames, start)
        file.seek(start + length + length % 2)
    raise DatasetError(f"{path} has no samples: the part 'data' is missing")


def _parse_layout(path: Path, part: bytes) -> tuple[int, int, int, int]:
    """Return kind, channels, rate and bits."""
    if len(part) < 16:
        raise DatasetError(f"{path} does not say what its samples are; write it again")
    kind, channels, rate, _, block, bits = struct.unpack("<HHIIHH", part[:16])
    if kind == _EXTENSIBLE and len(part) >= 26:
        kind = struct.unpack("<H", part[24:26])[0]  # the first bytes of the format's GUID
    if (kind, bits) not in _KNOWN:
        raise DatasetError(
            f"{path} has samples of kind {kind} with {bits} bits; PCM of 8, 16, 24 or 32 bits and "
            f"floats of 32 or 64 "
            "are read: convert it, for example with ffmpeg -i IN.wav -c:a pcm_s16le OUT.wav"
        )
    if not (
        0 < channels <= _MOST_CHANNELS
        and 0 < rate <= _HIGHEST_RATE
        and block == channels * bits // 8
    ):
        raise DatasetError(
            f"{path} claims {channels:,} channels, {rate:,} samples a second and frames of "
            f"{block:,} bytes; "
            "write it again"
        )
    return kind, channels, rate, bits


def _decode_samples(content: bytes, header: WavHeader) -> npt.NDArray[np.float32]:
    if header.is_float:
        with np.errstate(over="ignore", invalid="ignore"):  # such numbers are refused
            return np.asarray(np.frombuffer(content, f"<f{header.bits // 8}"), np.float32)
    if header.bits == 8:  # the only width without a sign
        return np.asarray((np.frombuffer(content, np.uint8) - 128.0) / 128.0, np.float32)
    if header.bits == 24:
        padded = np.zeros((len(content) // 3, 4), np.uint8)
        padded[:, 1:] = np.frombuffer(content, np.uint8).reshape(-1, 3)
        return (padded.reshape(-1).view("<i4") / 2.0**31).astype(np.float32)
    return np.asarray(
        np.frombuffer(content, f"<i{header.bits // 8}") / 2.0 ** (header.bits - 1), np.float32
    )


SUFFIXES = frozenset({".wav", ".wave"})
"""Suffixes of sound files, compared in lower case."""

_MOST_SAMPLES = 1 << 28  # of a clip: 1 GiB
_LARGEST_FACTOR = 100_000  # of the resampling, whose filter is 20 times as long


class WavFilesDataset(ClassifiedFilesDataset):
    """Base of classification data sets of wav files, which are read when they are asked for.

    A subclass writes :meth:`list_files`.  Clips become one channel (the mean of all), are resampled
    by a polyphase filter, and are cut, or padded with zeros, at the end."""

    sample_rate: int = argument(
        16000, help="samples per second to which sounds are resampled", minimum=1
    )
    seconds: float = argument(
        1.0,
        help="length to which sounds are cut, or padded with silence",
        minimum=0.001,
        maximum=3600,
    )

    def validate(self) -> None:
        """Check that a clip fits into memory."""
        if not 0 < self.clip_length <= _MOST_SAMPLES:
            raise ConfigError(
                f"{self.seconds:g} seconds at {self.sample_rate} a second: clips are from 1 to "
                f"{_MOST_SAMPLES:,} samples long"
            )

    @property
    def clip_length(self) -> int:
        """The number of samples of a clip."""
        return round(self.seconds * self.sample_rate)

    @property
    def spec(self) -> DatasetSpec:
        """Sounds ``(n, samples)``, float32 from -1 to 1, and the classes."""
        return make_sound_classification_spec(
            self.clip_length, self.files.class_names, self.sample_rate
        )

    def read(self, indices: npt.NDArray[np.integer]) -> tuple[Batch, Batch]:
        """Return some samples: sounds and their labels."""
        indices = check_indices(indices, len(self))
        clips = np.empty((len(indices), self.clip_length), np.float32)
        for place, index in zip(clips, indices, strict=True):
            place[:] = read_clip(self.files.paths[index], self.sample_rate, self.clip_length)
        return {"sound": clips}, {"label": self.files.labels[indices]}


def make_sound_classification_spec(
    samples: int, class_names: tuple[str, ...], sample_rate: int
) -> DatasetSpec:
    """Return the spec of sounds ``"sound"``, float32 ``(None, samples)``, with a class
    ``"label"``.
    """
    return DatasetSpec(
        Classification.name,
        inputs=(TensorSpec("sound", (None, samples), "float32"),),
        targets=(TensorSpec("label", (None,), "int64"),),
        class_names=class_names,
        sample_rates={"sound": sample_rate},
    )


def read_clip(path: Path, sample_rate: int, length: int, start: int = 0) -> npt.NDArray[np.float32]:
    """Return a part of a sound file: one channel, resampled, padded with zeros behind the file's
    end.

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
        sound = _to_mono(frames)
    else:
        common = math.gcd(header.sample_rate, sample_rate)
        up, down = sample_rate // common, header.sample_rate // common
        if max(up, down) > _LARGEST_FACTOR:
            raise DatasetError(
                f"{path} has {header.sample_rate:,} samples a second, which share no divisor with "
                f"{sample_rate:,}: give another --sample-rate"
            )
        # Input samples on both sides that the filter of `resample_poly` looks at.
        reach = 10 * max(up, down) // up + 2
        # a sample that is one of the result, too
        first = max(0, start * down // up - reach) // down * down
        last = -(-(start + length) * down // up) + reach
        part = _to_mono(read_wav(path, first, last - first)[1])
        sound = _resample(part, up, down)[start - first * up // down :]
    kept = min(length, len(sound))
    found[:kept] = sound[:kept]
    return found


def _to_mono(frames: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    return frames[:, 0] if frames.shape[1] == 1 else frames.mean(axis=1, dtype=np.float32)


def _resample(sound: npt.NDArray[np.float32], up: int, down: int) -> npt.NDArray[np.float32]:
    try:
        from scipy.signal import resample_poly
    except ImportError:
        raise MissingDependency(
            "sounds with another sample rate are resampled by SciPy: pip install 'nnpipe[data]', "
            "or give the files' own --sample-rate"
        ) from None
    return np.asarray(resample_poly(sound, up, down), np.float32) if len(sound) else sound


class WavFolderDataset(WavFilesDataset):
    """Your own sounds: one folder of wav files per class, optionally below train, validation and
    test.

    With ``ROOT/CLASS/*.wav``, the split follows the fractions.  With ``ROOT/train/CLASS/*.wav`` and
    so on, the folders define it.  Class names are sorted; ``class_list`` names the file with the
    model's classes and their order, if it has others.  Files are PCM of 8 to 32 bits or floats, of
    any sample rate and number of channels.
    """

    class_list: Path | None = argument(
        None,
        help="text file with all classes of the model, one per line in order of number; folders "
        "then have these names or numbers",
    )

    def list_files(self) -> Listing:
        """Return the sound files in the folders."""
        return list_class_files(self.dataset_root, SUFFIXES, "wav files", self.class_list)
