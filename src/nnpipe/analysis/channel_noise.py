"""Signal and noise of a tensor, channel by channel.

A value for the whole tensor hides single channels: with two of 64 exchanged, it is
still 15 dB.  So signal and noise are powers of single channels, and a tensor is
judged by the median and the lowest of their ratios.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

FAINT = 0.01
"""The least signal power of a channel, relative to the mean power of channels; weaker channels count as this."""

_MOST = 200.0  # decibels; larger ratios, also those without noise, are limited to this
_MOST_AXES = 5  # with more axes, other orders are not tried
_MOST_LEVELS = 256  # values that an 8-bit integer can take
_CUT = 0.02  # share of values that may lie outside the range of a calibration
_CHANCE = 3.0  # standard deviations of their number


def rows_of(array: npt.NDArray[np.generic], axis: int) -> Array:
    """Return ``(channels, values)``; a tensor without an axis of channels is one channel."""
    values = np.asarray(array, np.float64)
    if values.ndim < 2:
        return values.reshape(1, -1)
    axis = min(axis % values.ndim, values.ndim - 1)
    return np.moveaxis(values, axis, 0).reshape(values.shape[axis], -1)


def power(values: Array) -> Array:
    """Return the mean square along the last axis; infinite if a value is not finite."""
    with np.errstate(over="ignore", invalid="ignore"):
        found: Array = np.mean(np.square(values), axis=-1)
    return np.where(np.isfinite(found), found, np.inf)


def noise_to_signal(expected: Array, found: Array) -> float:
    """Return the power of the difference divided by that of the expected values, for all values together."""
    signal, noise = float(power(expected.ravel())), float(power((found - expected).ravel()))
    if noise == 0:
        return 0.0
    return noise / signal if signal > 0 else np.inf


def decibels(signal: npt.ArrayLike, noise: npt.ArrayLike) -> Array:
    """Return the ratio in decibels; infinite without noise."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio: Array = 10 * np.log10(np.asarray(signal, np.float64) / np.asarray(noise, np.float64))
    return np.where(np.asarray(noise) == 0, np.inf, np.where(np.isnan(ratio), -np.inf, ratio))


def bounded(signal: npt.ArrayLike, noise: npt.ArrayLike) -> Array:
    """Return :func:`decibels`, limited to the range from -200 to 200."""
    return np.clip(decibels(signal, noise), -_MOST, _MOST)


def step_of(values: npt.NDArray[np.generic]) -> float:
    """Return the quantisation step of values that have at most as many levels as 8 bits; otherwise 0.

    Quantised tensors are recognised by their values alone, for any framework.
    """
    flat = np.asarray(values, np.float64).ravel()
    levels = np.unique(flat[: 1 << 18])
    if not 2 <= len(levels) <= _MOST_LEVELS or len(levels) > len(flat) / 4:
        return 0.0
    gaps = np.diff(levels)
    step = float(gaps.min())
    # Distances of quantised levels are multiples of the step; those of values that repeat by chance are not.
    even = np.abs(gaps / step - np.rint(gaps / step)) < 0.02 * np.maximum(1, gaps / step) if step > 0 else np.array([])
    return step if even.size and even.all() else 0.0


def within_range(expected: Array, found: Array) -> Array:
    """Return the expected values, clipped to the range of the found ones if only few values lie outside.

    The range of a quantised tensor is that of the calibration samples.  Values of
    other samples may exceed it even if the conversion is correct.
    """
    if not step_of(found):
        return expected
    cut = np.clip(expected, found.min(), found.max())
    usual = _CUT * cut.size
    # Of few values, some more may lie outside by chance.
    return cut if np.count_nonzero(cut != expected) <= usual + _CHANCE * np.sqrt(usual) else expected


def rounded_to_8_bits(values: Array) -> Array:
    """Return values rounded to the 256 steps of a range that has all of them and 0, as of dynamic quantisation."""
    step = (max(float(values.max()), 0.0) - min(float(values.min()), 0.0)) / (_MOST_LEVELS - 1)
    return np.rint(values / step) * step if step > 0 and np.isfinite(step) else values


def arrangements(shape: tuple[int, ...], wanted: tuple[int, ...]) -> Iterator[tuple[int, ...] | None]:
    """Yield the orders of axes that convert a tensor of one shape to another.

    ``None`` stands for reshaping, if the shapes differ only by axes of length 1.
    The usual orders come first: unchanged, channels from the second to the last
    axis, and back.
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
    """Convert a tensor to another shape, by one of its :func:`arrangements`."""
    turned = np.asarray(array, np.float64)
    return turned.reshape(shape) if order is None else turned.transpose(order)
