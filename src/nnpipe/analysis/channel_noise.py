"""Signal and noise of a tensor, channel by channel.

A whole tensor's figure hides a channel: with two of 64 swapped it still says
15 dB.  So signal and noise are powers of single channels, and a tensor is told
by the median and by the lowest of them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

FAINT = 0.01
"""Part of the mean channel's power below which a channel is measured against this part."""

_MOST = 200.0  # decibels: more is told as this, also where there is no noise at all
_MOST_AXES = 5  # beyond that, axes are not tried in other orders
_MOST_LEVELS = 256  # values that an 8-bit integer can take
_CUT = 0.02  # part of all values that may lie beyond the range of a calibration


def rows_of(array: npt.NDArray[np.generic], axis: int) -> Array:
    """Return ``(channels, values)``; a tensor without an axis of channels is one channel."""
    values = np.asarray(array, np.float64)
    if values.ndim < 2:
        return values.reshape(1, -1)
    axis = min(axis % values.ndim, values.ndim - 1)
    return np.moveaxis(values, axis, 0).reshape(values.shape[axis], -1)


def power(values: Array) -> Array:
    """Mean square along the last axis; infinite where something is not finite."""
    with np.errstate(over="ignore", invalid="ignore"):
        found: Array = np.mean(np.square(values), axis=-1)
    return np.where(np.isfinite(found), found, np.inf)


def noise_to_signal(expected: Array, found: Array) -> float:
    """Power of the difference over that of what was expected, of all values together."""
    signal, noise = float(power(expected.ravel())), float(power((found - expected).ravel()))
    if noise == 0:
        return 0.0
    return noise / signal if signal > 0 else np.inf


def decibels(signal: npt.ArrayLike, noise: npt.ArrayLike) -> Array:
    """Ten times the logarithm of their ratio; infinite where there is no noise."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio: Array = 10 * np.log10(np.asarray(signal, np.float64) / np.asarray(noise, np.float64))
    return np.where(np.asarray(noise) == 0, np.inf, np.where(np.isnan(ratio), -np.inf, ratio))


def bounded(signal: npt.ArrayLike, noise: npt.ArrayLike) -> Array:
    """Return :func:`decibels` between -200 and 200."""
    return np.clip(decibels(signal, noise), -_MOST, _MOST)


def step_of(values: npt.NDArray[np.generic]) -> float:
    """Return the distance of neighbouring levels, where values lie on no more than 8 bits have; else 0.

    Quantised tensors are told by their values alone, whatever framework computes them.
    """
    flat = np.asarray(values, np.float64).ravel()
    levels = np.unique(flat[: 1 << 18])
    if not 2 <= len(levels) <= _MOST_LEVELS or len(levels) > len(flat) / 4:
        return 0.0
    gaps = np.diff(levels)
    step = float(gaps.min())
    # Levels of one scale are whole numbers of steps apart; few values that happen to repeat are not.
    even = np.abs(gaps / step - np.rint(gaps / step)) < 0.02 * np.maximum(1, gaps / step) if step > 0 else np.array([])
    return step if even.size and even.all() else 0.0


def within_range(expected: Array, found: Array) -> Array:
    """Return what was expected, cut off at the ends of what integers can hold, where few values lie beyond.

    An integer's range is that of the samples that a conversion was calibrated
    with; others go beyond it now and then, however right the conversion is.
    """
    if not step_of(found):
        return expected
    cut = np.clip(expected, found.min(), found.max())
    return cut if float(np.mean(cut != expected)) <= _CUT else expected


def arrangements(shape: tuple[int, ...], wanted: tuple[int, ...]) -> Iterator[tuple[int, ...] | None]:
    """Return the orders of axes by which a tensor of one shape becomes one of another.

    ``None`` stands for its elements as they lie, where the shapes differ by
    axes of length 1.  The usual orders come first: as it is, channels moved
    from the second place to the last, and back.
    """
    if shape == wanted:
        yield tuple(range(len(shape)))
    rank = len(shape)
    if rank == len(wanted) and 3 <= rank <= _MOST_AXES:
        first, last = (0, *range(2, rank), 1), (0, rank - 1, *range(1, rank - 1))
        for order in (last, first):
            if tuple(shape[axis] for axis in order) == wanted and order != tuple(range(rank)):
                yield order
    elif tuple(n for n in shape if n != 1) == tuple(n for n in wanted if n != 1):
        yield None


def arranged(array: npt.NDArray[np.generic], order: tuple[int, ...] | None, shape: tuple[int, ...]) -> Array:
    """Bring a tensor into another's shape, by one of its :func:`arrangements`."""
    turned = np.asarray(array, np.float64)
    return turned.reshape(shape) if order is None else turned.transpose(order)
