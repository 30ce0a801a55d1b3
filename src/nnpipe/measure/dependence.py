"""How sure a quantile or a mean is when calls depend on each other.

Neighbouring calls share a clock rate, a cache and a neighbour on the machine.
Where one is slow the next one is likely to be, and n calls say as much as
n / tau independent ones; tau is the *autocorrelation time*.  Intervals that
assume independence then cover the truth a third of the time instead of 95 %.

How it is done:

1. A quantile q is where the indicator "at most q" has the mean p.  The
   indicator's mean over batches of neighbouring calls scatters more than it
   would for independent ones, and how much more is tau (batch means: P. W.
   Glynn and D. L. Iglehart, Mathematics of Operations Research 15 (1990)).
   Several lengths of batches are tried and the largest tau counts, so that
   both short and long memories are seen.
2. The *effective* number of samples is n / tau, reduced once more because tau
   is itself an estimate (E. L. Korn and B. I. Graubard, Survey Methodology 24
   (1998), 193-201).
3. Order statistics enclose the quantile as often as the binomial distribution
   with the effective number says (R. S. Woodruff, Journal of the American
   Statistical Association 47 (1952), 635-646).  Each end is tested with the
   tau of its own indicator: slow calls come in bursts when fast ones do not.

``benchmarks/measurement_truth.py`` shows that the intervals cover simulated
truths at their level.  They need some ten times the calls after which the
machine has forgotten; of a memory as long as the run no part of it tells.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.measure.intervals import incomplete_beta, student_quantile
from nnpipe.measure.ranks import CONFIDENCE, Floats, interval_ranks, samples_needed

_BATCHES = (64, 32, 16, 8)
_FREEDOM = 11
"""Degrees of freedom of the largest of those estimates; 8 batches alone have 7, 16 have 15.  Chosen by simulation."""

_FEWEST = 2 * min(_BATCHES)  # of fewer values nothing can be said about dependence


def autocorrelation_time(values: npt.NDArray[Any]) -> float:
    """Give how many neighbours say as much as one independent value: at least 1.

    Parameters
    ----------
    values
        ``(samples,)`` in the order of time; numbers or booleans.  Of fewer
        than 16 it cannot be told, and 1 is given.
    """
    if len(values) < _FEWEST:
        return 1.0
    numbers = values if values.dtype == np.bool_ else np.asarray(values, np.float64)
    variance = float(np.var(numbers))
    return max(1.0, _long_variance(numbers) / variance) if variance > 0 else 1.0


def effective_samples(
    values: npt.NDArray[Any], share: float = 0.5, confidence: float = CONFIDENCE, *, ordered: Floats | None = None
) -> float:
    """Give how many independent samples these are worth for a quantile.

    Parameters
    ----------
    values
        ``(samples,)`` in the order of time.
    share
        Which quantile, 0.99 for p99.
    confidence
        Of the interval that it is needed for.
    ordered
        The same values, ascending, where they are at hand.
    """
    ordered = np.sort(values) if ordered is None else ordered
    quantile = ordered[_place(len(values), share) - 1]
    return _effective(len(values), autocorrelation_time(values <= quantile), confidence)


def quantile_interval(
    values: npt.NDArray[Any], share: float, confidence: float = CONFIDENCE, *, ordered: Floats | None = None
) -> tuple[float, float] | None:
    """Enclose a quantile of the process that made these values, which may depend on each other.

    Parameters
    ----------
    values
        ``(samples,)`` in the order of time, in any unit.
    share
        Which quantile, 0.99 for p99.
    confidence
        How often the interval covers the true quantile, at least.
    ordered
        The same values, ascending, where they are at hand.

    Returns
    -------
    tuple or None
        Two of the values, or nothing where the sample, or its effective
        number, is too small for an interval.
    """
    ordered = np.sort(values) if ordered is None else ordered
    samples = len(ordered)
    if samples < _FEWEST:
        if samples < samples_needed(share, confidence):
            return None
        low, high = interval_ranks(samples, share, confidence)
        return float(ordered[low]), float(ordered[high])
    centre = _place(samples, share)
    least_time = autocorrelation_time(values <= ordered[centre - 1])

    def effective(rank: int) -> float:
        time = max(least_time, autocorrelation_time(values <= ordered[rank - 1]))
        return _effective(samples, time, confidence)

    def missed_above(rank: int) -> float:
        trials = effective(rank)
        below = rank * trials / samples
        return incomplete_beta(share, below, trials - below + 1)

    def missed_below(rank: int) -> float:
        trials = effective(rank)
        below = rank * trials / samples
        return incomplete_beta(1 - share, trials - below + 1, below)

    # Where one end must be the extreme, it may miss more than its half, and the other end has the rest.
    left_out = 1 - confidence
    above = max(missed_above(samples), left_out / 2)
    below = max(missed_below(1), left_out / 2)
    if above + below > left_out * (1 + 1e-9):
        above, below = min(above, left_out - missed_below(1)), min(below, left_out - missed_above(samples))
        if above < missed_above(samples) or below < missed_below(1):
            return None
    high = _first(lambda rank: missed_above(rank) <= above, centre, samples)
    low = -_first(lambda rank: missed_below(-rank) <= below, -centre, -1)
    return float(ordered[low - 1]), float(ordered[high - 1])


def mean_interval(values: npt.NDArray[Any], confidence: float = CONFIDENCE) -> tuple[float, float] | None:
    """Enclose the mean of the process that made these values, which may depend on each other.

    Student's t of batch means.  It needs a finite variance: where single
    calls carry the mean, no sample tells how large it is.

    Parameters
    ----------
    values
        ``(samples,)`` in the order of time.
    confidence
        How often the interval covers the mean.

    Returns
    -------
    tuple or None
        Nothing for fewer than 16 values.
    """
    if len(values) < _FEWEST:
        return None
    numbers = np.asarray(values, np.float64)
    mean = float(np.mean(numbers))
    spread = max(_long_variance(numbers), float(np.var(numbers, ddof=1)))
    half = student_quantile((1 + confidence) / 2, _FREEDOM) * math.sqrt(spread / len(numbers))
    return mean - half, mean + half


def _long_variance(values: npt.NDArray[Any]) -> float:
    """Give n times the variance of the mean, by batch means: the largest over the numbers of batches."""
    number = next(batches for batches in _BATCHES if len(values) // batches >= 2)
    size = len(values) // number
    sums = values[len(values) - number * size :].reshape(number, size).sum(axis=1, dtype=np.float64)
    found = 0.0
    while number >= min(_BATCHES):
        found = max(found, float(np.var(sums / size, ddof=1)) * size)
        number, size = number // 2, size * 2
        sums = sums.reshape(number, 2).sum(axis=1)
    return found


def _place(samples: int, share: float) -> int:
    """Give the rank (from 1) of the sample's own quantile."""
    return min(max(math.ceil(samples * share), 1), samples)


def _effective(samples: int, time: float, confidence: float) -> float:
    if samples < _FEWEST:
        return float(samples)
    return samples / time * _shrinking(confidence)


@functools.lru_cache(maxsize=64)
def _shrinking(confidence: float) -> float:
    point = (1 + confidence) / 2
    return (NormalDist().inv_cdf(point) / student_quantile(point, _FREEDOM)) ** 2


def _first(holds: Callable[[int], bool], low: int, high: int) -> int:
    """Give the least number after ``low`` for which this holds, as it does for ``high``."""
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
