"""Tests by computed values of whether a model computes with the weights that its file seems to have.

A converter may store other numbers and still compute the same: it multiplies the scale of a layer normalisation into
the next matrix, or adds a constant row to a table of positions.  Then the weights differ, but the values do not.

For the other model's inputs of an operation, let ``s`` be the result with the source's weight, ``a`` the result with
the other model's numbers in its place, and ``f`` the result that the other model has.  In
``f - s = c (a - s) + noise``, ``c`` is 1 if these numbers have their effect, and 0 if something else makes up for them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nnpipe.analysis.channel_noise import Array, bounded, power, rows_of
from nnpipe.analysis.suspect_operations import LEAST_OF_CHANNEL, LEAST_OF_TENSOR

_HALF = 0.5  # between an effect and none
_ERRORS = 5  # standard errors that must lie between a share and the half
_FEWEST = 4  # the least number of values of a channel for a factor and a constant that mean anything
_STEADY = 0.1  # deviation of an added constant, relative to it


def has_no_effect(expected: Array, adopted: Array, found: Array, axis: int) -> bool:
    """Return whether the values of a tensor show that a kernel's other numbers do not have the effect they should.

    Parameters
    ----------
    expected, adopted, found
        The result with the source's weight, with the other numbers, and that of the other model.
    axis
        The axis of channels; each channel, and each place along the last axis, must not show an effect.
    """
    share, error = _shares(*(each.reshape(1, -1) for each in (expected, adopted, found)))
    if share[0] + _ERRORS * error[0] >= _HALF:
        return False
    for each in {axis, -1}:
        shares, errors = _shares(*(rows_of(array, each) for array in (expected, adopted, found)))
        if np.any(shares - _ERRORS * errors > _HALF):
            return False
    return True


def has_no_effect_in(expected: Array, adopted: Array, found: Array, channels: tuple[int, ...], count: int) -> bool:
    """Return the same as :func:`has_no_effect` for some of the ``count`` numbers of a vector, each of them surely."""
    for axis in _axes(expected, count):
        shares, errors = _shares(*(rows_of(array, axis) for array in (expected, adopted, found)))
        if np.all((shares + _ERRORS * errors)[list(channels)] < _HALF):
            return True
    return False


def is_lost(expected: Array, adopted: Array, channels: tuple[int, ...], count: int) -> bool:
    """Return whether the other numbers of a vector, which is added, are lost in the rounding of floats."""
    for axis in _axes(expected, count):
        own, change = rows_of(expected, axis), rows_of(adopted - expected, axis)
        told = change[list(channels)]
        added = np.all(told.any(1)) and told.std(1).max() <= _STEADY * np.sqrt(np.mean(np.square(told.mean(1))))
        signal, noise = power(own), power(change)
        if (
            added
            and np.all(bounded(signal, noise) > LEAST_OF_CHANNEL["float"])
            and float(bounded(signal.mean(), noise.mean())) > LEAST_OF_TENSOR["float"]
        ):
            return True
    return False


def is_rescaled(numbers: Array, found: Array, rounding: Array) -> bool:
    """Return whether a kernel is the other one with a factor and a constant for each channel of one axis.

    Parameters
    ----------
    numbers, found
        The expected and the found numbers.
    rounding
        The largest error of each number by rounding, in their shape.
    """
    for axis in range(numbers.ndim):
        own, theirs, allowed = (np.moveaxis(each, axis, 0).reshape(numbers.shape[axis], -1)
                                for each in (numbers, found, rounding))  # fmt: skip
        if own.shape[1] < _FEWEST:
            continue
        centred, mean = own - own.mean(1, keepdims=True), theirs.mean(1, keepdims=True)
        square = np.sum(np.square(centred), axis=1, keepdims=True)
        factor = np.sum(centred * (theirs - mean), axis=1, keepdims=True) / np.where(square > 0, square, 1)
        if np.all(np.abs(theirs - mean - factor * centred) <= allowed) and np.all((factor != 0) | (square == 0)):
            return True
    return False


def _shares(expected: Array, adopted: Array, found: Array) -> tuple[Array, Array]:
    """Return ``c`` of each row with its standard error, which is infinite where the other numbers change nothing."""
    change, seen = adopted - expected, found - expected
    square = np.sum(np.square(change), axis=1)
    known = np.where(square > 0, square, 1.0)
    share = np.sum(seen * change, axis=1) / known
    rest = np.sqrt(power(seen - share[:, None] * change))
    error: Any = np.where((square > 0) & np.isfinite(rest), rest / np.sqrt(known), np.inf)
    return np.where(np.isfinite(share), share, 0.0), error


def _axes(values: Array, count: int) -> list[int]:
    """Return the axes that a vector of ``count`` numbers may belong to, but not that of samples."""
    return [axis for axis in range(1, values.ndim) if values.shape[axis] == count]
