"""Confidence intervals of quantiles and means when calls depend on each other.

Neighbouring calls share the clock rate, the caches and the other load of the
machine.  If one is slow, the next one is likely to be slow, too, and n calls
contain as much information as n / tau independent ones; tau is the
*autocorrelation time*.  Intervals that assume independence may then cover the
true value only a third of the time instead of 95 %.

The method:

1. At the quantile q of probability p, the indicator "at most q" has the mean p.
   Its mean over batches of neighbouring calls varies more than it would for
   independent calls; the ratio of the variances is tau (batch means: P. W.
   Glynn and D. L. Iglehart, Mathematics of Operations Research 15 (1990)).
   Several batch lengths are tried and the largest tau is used, so that both
   short-range and long-range dependence are seen.
2. The *effective* number of samples is n / tau, reduced once more because tau
   is itself an estimate (E. L. Korn and B. I. Graubard, Survey Methodology 24
   (1998), 193-201).
3. Order statistics enclose the quantile as often as the binomial distribution
   with the effective number says (R. S. Woodruff, Journal of the American
   Statistical Association 47 (1952), 635-646).  Each end is tested with the
   tau of its own indicator: slow calls come in bursts when fast ones do not.

``benchmarks/measurement_truth.py`` shows that the intervals cover the true values
of simulations at their level.  They need about ten times the number of calls over
which calls depend on each other; a run cannot show dependence as long as itself.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.core.distributions import incomplete_beta, student_quantile
from nnpipe.measuring.order_statistics import CONFIDENCE, Floats, interval_ranks, samples_needed

_BATCHES = (64, 32, 16, 8)
_FREEDOM = 11
"""Degrees of freedom of the largest of those estimates; 8 batches alone have 7, 16 have 15.  Chosen by simulation."""

_FEWEST = 2 * min(_BATCHES)  # with fewer values, the dependence cannot be estimated


def autocorrelation_time(values: npt.NDArray[Any]) -> float:
    """Return how many neighbouring values are worth one independent value: at least 1.

    Parameters
    ----------
    values
        ``(samples,)`` numbers or booleans in the order of time.  For fewer
        than 16 values, the result is 1.
    """
    if len(values) < _FEWEST:
        return 1.0
    numbers = np.asarray(values, np.float64)
    variance = float(np.var(numbers))
    return max(1.0, _long_variance(*_batch_sums(numbers)) / variance) if variance > 0 else 1.0


def effective_samples(values: npt.NDArray[Any], share: float = 0.5, confidence: float = CONFIDENCE) -> float:
    """Return how many independent samples these are worth for a quantile.

    Parameters
    ----------
    values
        ``(samples,)`` in the order of time.
    share
        The quantile, 0.99 for p99.
    confidence
        The confidence of the interval for which the number is needed.
    """
    return Sample(values).effective(share, confidence)


def quantile_interval(
    values: npt.NDArray[Any], share: float, confidence: float = CONFIDENCE
) -> tuple[float, float] | None:
    """Return a confidence interval of a quantile; the values may depend on each other.

    Parameters
    ----------
    values
        ``(samples,)`` in the order of time, in any unit.
    share
        The quantile, 0.99 for p99.
    confidence
        The least probability that the interval covers the true quantile.

    Returns
    -------
    tuple or None
        Two of the values, or None if the sample, or its effective number, is
        too small for an interval.
    """
    return Sample(values).interval(share, confidence)


class Sample:
    """Values in the order of time, sorted once for several quantiles.

    Parameters
    ----------
    values
        ``(samples,)`` in any unit.

    Attributes
    ----------
    ordered
        The values in ascending order.
    """

    def __init__(self, values: npt.NDArray[Any]) -> None:
        order = np.argsort(values)
        self.ordered = np.asarray(values[order], np.float64)
        # Store the batch of each rank, and how many values of each batch are among the first 1, 2, 3 ... blocks of
        # ranks.  Then the batch sums of an indicator need one block instead of the whole sample.
        samples = len(values)
        if samples >= _FEWEST:
            number, self._size = _batches(samples)
            left = samples - number * self._size  # the first few values, which belong to no batch
            batch = np.where(order < left, number, (order - left) // self._size)
            self._block = max(1, math.isqrt(samples))
            blocks = np.arange(samples) // self._block
            counts = np.bincount(blocks * (number + 1) + batch, minlength=(blocks[-1] + 1) * (number + 1))
            self._batch = batch.astype(np.min_scalar_type(number))
            self._counts = np.cumsum(counts.reshape(-1, number + 1), axis=0)

    def __len__(self) -> int:
        return len(self.ordered)

    def effective(self, share: float, confidence: float = CONFIDENCE) -> float:
        """Return how many independent samples these are worth for a quantile."""
        return self._effective(self._time(_place(len(self), share)), confidence)

    def interval(self, share: float, confidence: float = CONFIDENCE) -> tuple[float, float] | None:
        """Return a confidence interval of a quantile, as :func:`quantile_interval` does."""
        samples = len(self)
        if samples < _FEWEST:
            if samples < samples_needed(share, confidence):
                return None
            low, high = interval_ranks(samples, share, confidence)
            return float(self.ordered[low]), float(self.ordered[high])
        centre = _place(samples, share)
        least_time = self._time(centre)

        def below(rank: int) -> tuple[float, float]:
            trials = self._effective(max(least_time, self._time(rank)), confidence)
            successes = rank * trials / samples
            return successes, trials - successes

        def missed_above(rank: int) -> float:
            faster, slower = below(rank)
            return incomplete_beta(share, faster, slower + 1)

        def missed_below(rank: int) -> float:
            faster, slower = below(rank)
            return incomplete_beta(1 - share, slower + 1, faster)

        # If one end must be the extreme value, it may use more than half of the error, and the other end the rest.
        left_out = 1 - confidence
        least_above, least_below = missed_above(samples), missed_below(1)
        if least_above + least_below > left_out:
            return None
        above = max(least_above, min(left_out / 2, left_out - least_below))
        beneath = max(least_below, min(left_out / 2, left_out - least_above))
        high = _first(lambda rank: missed_above(rank) <= above, centre, samples)
        low = -_first(lambda rank: missed_below(-rank) <= beneath, -centre, -1)
        return float(self.ordered[low - 1]), float(self.ordered[high - 1])

    def _time(self, rank: int) -> float:
        """Return the autocorrelation time of the indicator of values up to this rank (from 1)."""
        samples = len(self)
        if samples < _FEWEST:
            return 1.0
        # Equal values have one rank.
        rank = int(np.searchsorted(self.ordered, self.ordered[rank - 1], "right"))
        full = rank // self._block
        sums = np.bincount(self._batch[full * self._block : rank], minlength=self._counts.shape[1])
        if full:
            sums = sums + self._counts[full - 1]
        share = rank / samples
        variance = share * (1 - share)
        return max(1.0, _long_variance(sums[:-1], self._size) / variance) if variance > 0 else 1.0

    def _effective(self, time: float, confidence: float) -> float:
        samples = len(self)
        return samples / time * _shrinking(confidence) if samples >= _FEWEST else float(samples)


def mean_interval(values: npt.NDArray[Any], confidence: float = CONFIDENCE) -> tuple[float, float] | None:
    """Return a confidence interval of the mean; the values may depend on each other.

    The interval is Student's t of batch means.  It needs a finite variance: if
    single extreme calls dominate the mean, no interval from a sample holds.

    Parameters
    ----------
    values
        ``(samples,)`` in the order of time.
    confidence
        The probability that the interval covers the mean.

    Returns
    -------
    tuple or None
        Both ends, or None for fewer than 16 values.
    """
    if len(values) < _FEWEST:
        return None
    numbers = np.asarray(values, np.float64)
    mean = float(np.mean(numbers))
    spread = max(_long_variance(*_batch_sums(numbers)), float(np.var(numbers, ddof=1)))
    half = student_quantile((1 + confidence) / 2, _FREEDOM) * math.sqrt(spread / len(numbers))
    return mean - half, mean + half


def _batches(samples: int) -> tuple[int, int]:
    """Return the greatest number of batches and the samples in each; the first few samples may be in no batch."""
    number = next(batches for batches in _BATCHES if samples // batches >= 2)
    return number, samples // number


def _batch_sums(values: Floats) -> tuple[Floats, int]:
    number, size = _batches(len(values))
    return values[len(values) - number * size :].reshape(number, size).sum(axis=1), size


def _long_variance(sums: npt.NDArray[Any], size: int) -> float:
    """Return n times the variance of the mean by batch means, the largest over several numbers of batches."""
    found = 0.0
    while len(sums) >= min(_BATCHES):
        # The same as np.mean and np.var, which take several times as long for so few values.
        away = (sums - sums.sum() / len(sums)) / size
        found = max(found, float(away @ away) / (len(sums) - 1) * size)
        sums, size = sums[0::2] + sums[1::2], 2 * size
    return found


def _place(samples: int, share: float) -> int:
    """Return the rank (from 1) of the sample's own quantile."""
    return min(max(math.ceil(samples * share), 1), samples)


@functools.lru_cache(maxsize=64)
def _shrinking(confidence: float) -> float:
    point = (1 + confidence) / 2
    return (NormalDist().inv_cdf(point) / student_quantile(point, _FREEDOM)) ** 2


def _first(holds: Callable[[int], bool], low: int, high: int) -> int:
    """Return the least number above ``low`` for which ``holds`` is true, by bisection; it is true for ``high``."""
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
