"""How many calls at the beginning look like warm-up: found in the latencies, not assumed.

The second half of a run serves as what is normal, and each of the first calls
is judged by the share of normal calls that are faster.  A beginning is slow
beyond chance if its calls together are too far up there: Fisher's combination
of tail shares (R. A. Fisher, "Statistical Methods for Research Workers", 1932,
section 21.1), with fewer degrees of freedom where calls depend on each other.
It ends where the cumulative sum of the excess is at its highest (E. S. Page,
Biometrika 41 (1954), 100-115).

Nothing is removed: a caller may show both the whole and what comes after.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.measuring.autocorrelation import autocorrelation_time
from nnpipe.measuring.order_statistics import Floats

FEWEST = 40
"""Of fewer calls it cannot be told."""

_LEAST_EXCESS = 1.05  # a beginning that is less slower than the rest is not worth a word
_MATTERS = 1e-3  # of all time is what a warm-up must have cost to be one
_CHANCE = 1e-4  # of a false alarm, for all beginnings that are looked at together
_SLACK = 0.2  # how far above the middle the ranks must be for the warm-up to go on; noise alone is as often below


def warm_up_calls(values: npt.NDArray[Any]) -> int:
    """Return how many calls at the beginning were slower than chance explains; 0 if there is no sign of warm-up.

    Parameters
    ----------
    values
        ``(samples,)`` latencies in the order of time, in any unit.

    Returns
    -------
    int
        At most half of them: where the second half is still getting faster,
        this is no warm-up but a drift.
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
    """Return for each value the share of the ordered ones that are less; equal ones count half."""
    order = np.argsort(values)  # one after another, values are found many times faster
    rising = values[order]
    shares = np.empty(len(values))
    shares[order] = np.searchsorted(ordered, rising, "left") + np.searchsorted(ordered, rising, "right")
    return shares / (2.0 * len(ordered))


def _chance(shape: float, value: float) -> float:
    """Bound how probably a gamma variate of this shape and of scale 1 is greater: Chernoff's bound."""
    if value <= shape:
        return 1.0
    return math.exp(min(0.0, -(value - shape) + shape * math.log(value / shape)))
