"""Find weights in a file that were altered: where they are, and which changes no conversion makes.

Converters scale a kernel by output channels (a normalisation folded into it) and by input channels (channel
alignment, SmoothQuant, https://arxiv.org/abs/2211.10438), so what is there may be the kernel times a factor for each
of both.  Whatever is left beyond that is damage.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import numpy.typing as npt

Reals = npt.NDArray[np.float64]

_LIKE = 0.7  # correlation from which on a place is a channel's
_TRIED = 8  # channels that are looked for
_MOST = 1 << 22  # numbers that are looked through
_LARGEST = 1e6  # whatever is larger, or not finite, is no weight
_SWEEPS = 20


def nearest(values: npt.NDArray[np.generic], rows: npt.NDArray[np.generic], last: bool) -> Reals | None:
    """Return the numbers in the place of a kernel whose channels are alike at most.

    Parameters
    ----------
    values
        All numbers, ``(n,)``.
    rows
        The kernel by channels, ``(channels, weights)``.
    last
        Whether channels alternate from number to number; otherwise one follows the other.

    Returns
    -------
    array or None
        As ``rows``; ``None`` if most channels that were tried lie nowhere, or not beside each other.
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
    """Return how far what is there lies above what no factors of output and input channels explain.

    Parameters
    ----------
    rows, there
        Weights by output channels, ``(channels, weights)``.
    shape
        Lengths of the axes behind the channels'; each may be that of the input channels.

    Returns
    -------
    array
        Decibels of each channel, ``(channels,)``; of the axis that explains most.
    """
    own, best = rows.astype(np.float64), np.full(len(rows), -np.inf)
    for axis in range(len(shape)):
        ours = np.moveaxis(own.reshape(-1, *shape), axis + 1, 1).reshape(len(own), shape[axis], -1)
        theirs = np.moveaxis(there.reshape(-1, *shape), axis + 1, 1).reshape(len(own), shape[axis], -1)
        if ours.shape[2] == 1:  # with a factor for each weight, anything could be explained
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
