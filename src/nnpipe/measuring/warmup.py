"""Detect in the latencies how many calls at the beginning are warm-up.

The second half of a run is the reference, and each of the first calls is ranked
by the share of reference calls that are faster.  A beginning is significantly slow
if the ranks of its calls together are too high, by Fisher's combination of tail
probabilities (R. A. Fisher, "Statistical Methods for Research Workers", 1932,
section 21.1), with fewer degrees of freedom if calls depend on each other.  It
ends where the cumulative sum of the excess is highest (E. S. Page, Biometrika 41
(1954), 100-115).

Nothing is removed: a caller may show both the whole run and the part after the warm-up.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.measuring.autocorrelation import autocorrelation_time
from nnpipe.measuring.order_statistics import Floats

FEWEST = 40
"""With fewer calls, no warm-up is detected."""

_LEAST_EXCESS = 1.05  # a warm-up is at least this much slower than the rest
_MATTERS = 1e-3  # the least share of the total time that a warm-up must have cost
_CHANCE = 1e-4  # the probability of a false positive, for all tested beginnings together
_SLACK = 0.2  # how far above the middle the ranks must be for the warm-up to continue; noise averages to the middle


def warm_up_calls(values: npt.NDArray[Any]) -> int:
    """Return the number of calls at the beginning that were significantly slower; 0 without a sign of warm-up.

    Parameters
    ----------
    values
        ``(samples,)`` latencies in the order of time, in any unit.

    Returns
    -------
    int
        At most half of the calls: if the second half is still getting faster,
        it is a drift, not a warm-up.
    """
    samples = len(values)
    if samples < FEWEST:
        return 0
    half = samples // 2
    normal = np.sort(values[half:])
    ranks = _shares_below(values, normal)
    surprise = -np.log(np.maximum(1 - ranks, 0.5 / len(normal)))
    memory = autocorrelation_time(surprise[half:])
    sums = np.cumsum(surprise[:half])
    lengths = sorted({round(1.5**step) for step in range(1 + int(math.log(half, 1.5)))} | {half})
    found = any(_chance(length / memory, sums[length - 1] / memory) < _CHANCE / len(lengths) for length in lengths)
    if not found:
        return 0
    excess = np.cumsum(ranks[:half] - 0.5 - _SLACK)
    end = int(np.argmax(excess)) + 1
    usual = float(np.median(values[end:]))
    slower = float(np.median(values[:end])) > _LEAST_EXCESS * usual
    cost = float(np.sum(values[:end], dtype=np.float64)) - end * usual
    return end if slower and excess[end - 1] > 0 and cost > _MATTERS * samples * usual else 0


def _shares_below(values: npt.NDArray[Any], ordered: npt.NDArray[Any]) -> Floats:
    """Return for each value the share of ordered values that are less; equal ones count half."""
    order = np.argsort(values)  # searching for sorted values is many times faster
    rising = values[order]
    shares = np.empty(len(values))
    shares[order] = np.searchsorted(ordered, rising, "left") + np.searchsorted(ordered, rising, "right")
    return shares / (2.0 * len(ordered))


def _chance(shape: float, value: float) -> float:
    """Return Chernoff's upper bound of the probability that a gamma variate (this shape, scale 1) exceeds a value."""
    if value <= shape:
        return 1.0
    return math.exp(min(0.0, -(value - shape) + shape * math.log(value / shape)))
