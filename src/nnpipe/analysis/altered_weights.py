"""Find altered weights in a file: their position, and the changes that no conversion makes.

Converters scale a kernel by output channels (a normalisation folded into it) and by input channels (channel
alignment, SmoothQuant, https://arxiv.org/abs/2211.10438).  So the file may contain the kernel times a factor for each
output channel and each input channel.  Any other difference is damage.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import numpy.typing as npt

Reals = npt.NDArray[np.float64]

_LIKE = 0.7  # the least correlation of a channel with its position in the file
_TRIED = 8  # channels that are searched for
_MOST = 1 << 22  # numbers that are searched
_LARGEST = 1e6  # numbers that are larger, or not finite, are no weights
_FEWEST = 8  # channels that share factors for each weight, as entries of a table that is rounded to 8 bits have
_SWEEPS = 20


def nearest(values: npt.NDArray[np.generic], rows: npt.NDArray[np.generic], last: bool) -> Reals | None:
    """Return the numbers at the position of a kernel whose channels were altered.

    Parameters
    ----------
    values
        All numbers, ``(n,)``.
    rows
        The kernel by channels, ``(channels, weights)``.
    last
        Whether channels alternate from number to number; otherwise they are stored one after another.

    Returns
    -------
    array or None
        Numbers in the shape of ``rows``; ``None`` if most of the tried channels are not found, or not side by side.
    """
    count, length = rows.shape
    if len(values) > _MOST or length < 4:
        return None
    stride, step = (count, 1) if last else (1, length)
    reach = (length - 1) * stride + 1
    numbers = np.where(np.abs(values.astype(np.float64)) < _LARGEST, values, 0).astype(np.float64)
    if reach > len(numbers):
        return None
    own = rows.astype(np.float64)
    size = 1 << int(np.ceil(np.log2(len(numbers) + reach)))
    whole, places = np.fft.rfft(numbers, size), len(numbers) - reach + 1
    ones = np.zeros(reach)
    ones[::stride] = 1
    power = _correlated(np.fft.rfft(np.square(numbers), size), ones, size)[:places]
    power[power <= 1e-9 * power.max(initial=0)] = np.inf
    bases: Counter[int] = Counter()
    tried = np.argsort(-np.sum(np.square(own), axis=1))[:_TRIED].tolist()
    for channel in tried:
        dilated = np.zeros(reach)
        dilated[::stride] = own[channel]
        like = np.square(_correlated(whole, dilated, size)[:places]) / power
        for start in np.flatnonzero(like > _LIKE**2 * np.sum(np.square(own[channel]))).tolist():
            bases[start - channel * step] += 1
    base, agreeing = bases.most_common(1)[0] if bases else (-1, 0)
    if base < 0 or agreeing < 2 or 2 * agreeing <= len(tried) or base + own.size > len(numbers):
        return None
    there = numbers[base : base + own.size]
    found: Reals = there.reshape(length, count).T if last else there.reshape(count, length)
    return found


def unexplained(rows: npt.NDArray[np.generic], there: Reals, shape: tuple[int, ...]) -> Reals:
    """Return the ratio of signal to the part that factors of output and input channels do not explain.

    Parameters
    ----------
    rows, there
        Weights by output channels, ``(channels, weights)``.
    shape
        The lengths of the other axes; each of them may be the axis of input channels.

    Returns
    -------
    array
        Decibels of each channel, ``(channels,)``, for the axis that explains most.
    """
    own, best = rows.astype(np.float64), np.full(len(rows), -np.inf)
    for axis in range(len(shape)):
        ours = np.moveaxis(own.reshape(-1, *shape), axis + 1, 1).reshape(len(own), shape[axis], -1)
        theirs = np.moveaxis(there.reshape(-1, *shape), axis + 1, 1).reshape(len(own), shape[axis], -1)
        if ours.shape[2] == 1 and len(own) < _FEWEST:  # factors for each weight would explain nearly any difference
            continue
        cross, square = np.sum(ours * theirs, axis=2), np.sum(np.square(ours), axis=2)
        inner = np.ones(shape[axis])
        for _ in range(_SWEEPS):
            outer = (cross @ inner) / np.maximum(square @ np.square(inner), 1e-300)
            inner = (outer @ cross) / np.maximum(np.square(outer) @ square, 1e-300)
        best = np.maximum(best, _decibels(ours * outer[:, None, None] * inner[None, :, None], theirs))
    outer = np.sum(own * there, axis=1) / np.maximum(np.sum(np.square(own), axis=1), 1e-300)
    found: Reals = np.maximum(best, _decibels(own * outer[:, None], there))
    return found


def _decibels(wanted: Reals, there: Reals) -> Reals:
    axes = tuple(range(1, wanted.ndim))
    signal, noise = np.sum(np.square(there), axis=axes), np.sum(np.square(there - wanted), axis=axes)
    found: Reals = 10 * np.log10(np.maximum(signal, 1e-300) / np.maximum(noise, 1e-300))
    return found


def _correlated(whole: npt.NDArray[np.complex128], part: Reals, size: int) -> Reals:
    found: Reals = np.fft.irfft(whole * np.conj(np.fft.rfft(part, size)), size)
    return found
