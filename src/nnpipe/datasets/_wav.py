"""Wav files: their header, and bounded reading of samples."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from nnpipe.core.errors import DatasetError

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


def read_wav(path: Path, first: int = 0, most: int | None = None) -> tuple[WavHeader, npt.NDArray[np.float32]]:
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
        ``samples`` are float32 from -1 to 1, ``(frames, channels)``; integers are divided by their greatest
        magnitude, as ``tf.audio.decode_wav`` and ``soundfile`` do.

    Raises
    ------
    DatasetError
        If the file is missing, damaged, or of a kind that is not read; the message names it.
    """
    try:
        with open(path, "rb") as file:
            size = file.seek(0, 2)
            header = _header(path, file, size)
            left = max(0, header.frames - first)
            count = left if most is None else min(most, left)
            if count * header.frame_bytes > _MOST_BYTES:
                raise DatasetError(
                    f"{path} claims {header.sample_rate:,} samples a second of {header.frame_bytes:,} bytes; what is "
                    f"asked for takes more than {_MOST_BYTES >> 20:,} MiB; give fewer --seconds"
                )
            file.seek(header.start + min(first, header.frames) * header.frame_bytes)
            content = file.read(count * header.frame_bytes)
    except FileNotFoundError:
        raise DatasetError(f"{path} is not there; put it back") from None
    except OSError as error:
        raise DatasetError(f"{path} cannot be read: {error.strerror or error}") from None
    if len(content) != count * header.frame_bytes:
        raise DatasetError(f"{path} was shortened while it was read")
    samples = _samples(content, header).reshape(count, header.channels)
    if header.is_float and not np.isfinite(samples).all():
        raise DatasetError(f"{path} holds samples that are infinite or no numbers; write it again")
    return header, samples


def _header(path: Path, file: BinaryIO, size: int) -> WavHeader:
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
                f"{path} says that its part {name.decode('latin-1')!r} has {length:,} bytes, and {size - start:,} are "
                "there: it was cut off, or its length was never written; write it again"
            )
        if name == b"fmt ":
            layout = _layout(path, file.read(min(length, 40)))
        elif name == b"data":
            if layout is None:
                raise DatasetError(f"{path} has samples before it says what they are; write it again")
            kind, channels, rate, bits = layout
            frames, rest = divmod(length, channels * bits // 8)
            if rest:
                raise DatasetError(f"{path} ends within a frame: {length:,} bytes of {channels * bits // 8} each")
            return WavHeader(rate, channels, bits, kind == _FLOAT, frames, start)
        file.seek(start + length + length % 2)
    raise DatasetError(f"{path} has no samples: the part 'data' is missing")


def _layout(path: Path, part: bytes) -> tuple[int, int, int, int]:
    """Return kind, channels, rate and bits."""
    if len(part) < 16:
        raise DatasetError(f"{path} does not say what its samples are; write it again")
    kind, channels, rate, _, block, bits = struct.unpack("<HHIIHH", part[:16])
    if kind == _EXTENSIBLE and len(part) >= 26:
        kind = struct.unpack("<H", part[24:26])[0]  # the first bytes of the format's GUID
    if (kind, bits) not in _KNOWN:
        raise DatasetError(
            f"{path} has samples of kind {kind} with {bits} bits; PCM of 8, 16, 24 or 32 bits and floats of 32 or 64 "
            "are read: convert it, for example with ffmpeg -i IN.wav -c:a pcm_s16le OUT.wav"
        )
    if not (0 < channels <= _MOST_CHANNELS and 0 < rate <= _HIGHEST_RATE and block == channels * bits // 8):
        raise DatasetError(
            f"{path} claims {channels:,} channels, {rate:,} samples a second and frames of {block:,} bytes; "
            "write it again"
        )
    return kind, channels, rate, bits


def _samples(content: bytes, header: WavHeader) -> npt.NDArray[np.float32]:
    if header.is_float:
        with np.errstate(over="ignore", invalid="ignore"):  # such numbers are refused
            return np.asarray(np.frombuffer(content, f"<f{header.bits // 8}"), np.float32)
    if header.bits == 8:  # the only width without a sign
        return np.asarray((np.frombuffer(content, np.uint8) - 128.0) / 128.0, np.float32)
    if header.bits == 24:
        padded = np.zeros((len(content) // 3, 4), np.uint8)
        padded[:, 1:] = np.frombuffer(content, np.uint8).reshape(-1, 3)
        return (padded.reshape(-1).view("<i4") / 2.0**31).astype(np.float32)
    return np.asarray(np.frombuffer(content, f"<i{header.bits // 8}") / 2.0 ** (header.bits - 1), np.float32)
