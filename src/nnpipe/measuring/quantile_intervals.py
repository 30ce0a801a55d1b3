"""Confidence intervals of quantiles and means: by order statistics, and when calls depend on
each other.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.core.argument_checks import check_call
from nnpipe.core.distributions import incomplete_beta, student_quantile
from nnpipe.core.operation_times import OperationTimes

Floats = npt.NDArray[np.float64]

CONFIDENCE = 0.95
"""The default confidence of intervals."""


def count_samples_needed(share: float, confidence: float = CONFIDENCE) -> int:
    """Return the least number of samples whose extremes enclose a quantile with this confidence.

    With fewer samples, no two-sided interval of observed values exists.  At 95 %,
    the numbers are 6 for the median, 29 for p90, 299 for p99 and 2,995 for p99.9.
    The extremes enclose the quantile unless all samples lie on one side of it; the
    probability is 1 - share^n - (1 - share)^n (H. A. David and H. N. Nagaraja,
    "Order Statistics", 3rd edition, 2003, section 7.1).
    """
    check_call(count_samples_needed, locals())
    number = 1
    while 1 - share**number - (1 - share) ** number < confidence:
        number += 1
    return number


def find_interval_ranks(
    samples: int, share: float, confidence: float = CONFIDENCE
) -> tuple[int, int]:
    """Return the positions (from 0) of the order statistics that enclose a quantile with at least
    this confidence.

    The number B of samples below the quantile is binomial, so the l-th and u-th
    smallest samples enclose it with probability P(l <= B <= u - 1).  Of all
    sufficient pairs, the narrowest is returned, and among those the most central.

    Raises
    ------
    ValueError
        If there are fewer than :func:`count_samples_needed` samples.
    """
    centre, reach = samples * share, 8 * math.sqrt(samples * share * (1 - share)) + 8
    first, last = max(0, math.floor(centre - reach)), min(samples, math.ceil(centre + reach))
    below = np.arange(first, last + 1)
    below_cdf = np.cumsum(_compute_binomial(below, samples, share))
    # The lower rank l (from 1) excludes B < l, the upper rank u excludes B >= u; both must be from
    # 1 to n.
    lower = np.arange(max(first, 1), last + 1)
    left_out = np.where(lower > first, below_cdf[np.maximum(lower - first - 1, 0)], 0.0)
    ends = np.searchsorted(below_cdf, left_out + confidence - 1e-12)
    upper = first + ends + 1
    possible = (ends < len(below)) & (upper <= samples)
    if not possible.any():
        raise ValueError(f"{samples} samples do not support an interval for the {share} quantile")
    lower, upper = lower[possible], upper[possible]
    best = np.lexsort((np.abs(lower + upper - 1 - 2 * centre), upper - lower))[0]
    return int(lower[best]) - 1, int(upper[best]) - 1


def _compute_binomial(successes: npt.NDArray[Any], trials: int, share: float) -> Floats:
    # Compute lgamma once, and then each logarithm of a factorial from its neighbour.
    start = int(successes[0])
    log_first = (
        math.lgamma(trials + 1)
        - math.lgamma(start + 1)
        - math.lgamma(trials - start + 1)
        + start * math.log(share)
        + (trials - start) * math.log(1 - share)
    )
    following = successes[1:]
    ratios = np.log((trials - following + 1) / following * (share / (1 - share)))
    probabilities: Floats = np.exp(log_first + np.concatenate([[0.0], np.cumsum(ratios)]))
    return probabilities


# Confidence intervals of quantiles and means when calls depend on each other.
#
# Neighbouring calls share the clock rate, the caches and the other load of the
# machine.  If one is slow, the next one is likely to be slow, too, and n calls
# contain as much information as n / tau independent ones; tau is the
# *autocorrelation time*.  Intervals that assume independence may then cover the
# true value only a third of the time instead of 95 %.
#
# The method:
#
# 1. At the quantile q of probability p, the indicator "at most q" has the mean p.
#    Its mean over batches of neighbouring calls varies more than it would for
#    independent calls; the ratio of the variances is tau (batch means: P. W.
#    Glynn and D. L. Iglehart, Mathematics of Operations Research 15 (1990)).
#    Several batch lengths are tried and the largest tau is used, so that both
#    short-range and long-range dependence are seen.
# 2. The *effective* number of samples is n / tau, reduced once more because tau
#    is itself an estimate (E. L. Korn and B. I. Graubard, Survey Methodology 24
#    (1998), 193-201).
# 3. Order statistics enclose the quantile as often as the binomial distribution
#    with the effective number says (R. S. Woodruff, Journal of the American
#    Statistical Association 47 (1952), 635-646).  Each end is tested with the
#    tau of its own indicator: slow calls come in bursts when fast ones do not.
#
# ``benchmarks/measurement_truth.py`` shows that the intervals cover the true values of simulations
# at their level.  They need about ten times the number of calls over which calls depend on each
# other; a run cannot show dependence as long as itself.

_BATCHES = (64, 32, 16, 8)
_FREEDOM = 11
"""Degrees of freedom of the largest of those estimates; 8 batches alone have 7, 16 have 15.
Chosen by simulation.
"""

_FEWEST = 2 * min(_BATCHES)  # with fewer values, the dependence cannot be estimated


def compute_autocorrelation_time(values: npt.NDArray[Any]) -> float:
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
    return (
        max(1.0, _compute_long_run_variance(*_compute_batch_sums(numbers)) / variance)
        if variance > 0
        else 1.0
    )


def count_effective_samples(
    values: npt.NDArray[Any], share: float = 0.5, confidence: float = CONFIDENCE
) -> float:
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
    return Sample(values).count_effective(share, confidence)


def compute_quantile_interval(
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
        # Store the batch of each rank, and how many values of each batch are among the first 1, 2,
        # 3 ... blocks of ranks.  Then the batch sums of an indicator need one block instead of the
        # whole sample.
        samples = len(values)
        if samples >= _FEWEST:
            number, self._size = _choose_batches(samples)
            left = samples - number * self._size  # the first few values, which belong to no batch
            batch = np.where(order < left, number, (order - left) // self._size)
            self._block = max(1, math.isqrt(samples))
            blocks = np.arange(samples) // self._block
            counts = np.bincount(
                blocks * (number + 1) + batch, minlength=(blocks[-1] + 1) * (number + 1)
            )
            self._batch = batch.astype(np.min_scalar_type(number))
            self._counts = np.cumsum(counts.reshape(-1, number + 1), axis=0)

    def __len__(self) -> int:
        return len(self.ordered)

    def count_effective(self, share: float, confidence: float = CONFIDENCE) -> float:
        """Return how many independent samples these are worth for a quantile."""
        return self._count_effective(
            self._compute_autocorrelation_time(_compute_rank(len(self), share)), confidence
        )

    def interval(self, share: float, confidence: float = CONFIDENCE) -> tuple[float, float] | None:
        """Return a confidence interval of a quantile, as :func:`compute_quantile_interval` does."""
        samples = len(self)
        if samples < _FEWEST:
            if samples < count_samples_needed(share, confidence):
                return None
            low, high = find_interval_ranks(samples, share, confidence)
            return float(self.ordered[low]), float(self.ordered[high])
        centre = _compute_rank(samples, share)
        least_time = self._compute_autocorrelation_time(centre)

        def count_below(rank: int) -> tuple[float, float]:
            trials = self._count_effective(
                max(least_time, self._compute_autocorrelation_time(rank)), confidence
            )
            successes = rank * trials / samples
            return successes, trials - successes

        def compute_miss_above(rank: int) -> float:
            faster, slower = count_below(rank)
            return incomplete_beta(share, faster, slower + 1)

        def compute_miss_below(rank: int) -> float:
            faster, slower = count_below(rank)
            return incomplete_beta(1 - share, slower + 1, faster)

        # If one end must be the extreme value, it may use more than half of the error, and the
        # other end the rest.
        left_out = 1 - confidence
        least_above, least_below = compute_miss_above(samples), compute_miss_below(1)
        if least_above + least_below > left_out:
            return None
        above = max(least_above, min(left_out / 2, left_out - least_below))
        beneath = max(least_below, min(left_out / 2, left_out - least_above))
        high = _search_first(lambda rank: compute_miss_above(rank) <= above, centre, samples)
        low = -_search_first(lambda rank: compute_miss_below(-rank) <= beneath, -centre, -1)
        return float(self.ordered[low - 1]), float(self.ordered[high - 1])

    def _compute_autocorrelation_time(self, rank: int) -> float:
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
        return (
            max(1.0, _compute_long_run_variance(sums[:-1], self._size) / variance)
            if variance > 0
            else 1.0
        )

    def _count_effective(self, time: float, confidence: float) -> float:
        samples = len(self)
        return (
            samples / time * _compute_shrinkage(confidence)
            if samples >= _FEWEST
            else float(samples)
        )


def compute_correlated_mean_interval(
    values: npt.NDArray[Any], confidence: float = CONFIDENCE
) -> tuple[float, float] | None:
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
    spread = max(
        _compute_long_run_variance(*_compute_batch_sums(numbers)), float(np.var(numbers, ddof=1))
    )
    half = student_quantile((1 + confidence) / 2, _FREEDOM) * math.sqrt(spread / len(numbers))
    return mean - half, mean + half


def _choose_batches(samples: int) -> tuple[int, int]:
    """Return the greatest number of batches and the samples in each; the first few samples may
    be in no batch.
    """
    number = next(batches for batches in _BATCHES if samples // batches >= 2)
    return number, samples // number


def _compute_batch_sums(values: Floats) -> tuple[Floats, int]:
    number, size = _choose_batches(len(values))
    return values[len(values) - number * size :].reshape(number, size).sum(axis=1), size


def _compute_long_run_variance(sums: npt.NDArray[Any], size: int) -> float:
    """Return n times the variance of the mean by batch means, the largest over several numbers
    of batches.
    """
    found = 0.0
    while len(sums) >= min(_BATCHES):
        # The same as np.mean and np.var, which take several times as long for so few values.
        away = (sums - sums.sum() / len(sums)) / size
        found = max(found, float(away @ away) / (len(sums) - 1) * size)
        sums, size = sums[0::2] + sums[1::2], 2 * size
    return found


def _compute_rank(samples: int, share: float) -> int:
    """Return the rank (from 1) of the sample's own quantile."""
    return min(max(math.ceil(samples * share), 1), samples)


@functools.lru_cache(maxsize=64)
def _compute_shrinkage(confidence: float) -> float:
    point = (1 + confidence) / 2
    return (NormalDist().inv_cdf(point) / student_quantile(point, _FREEDOM)) ** 2


def _search_first(holds: Callable[[int], bool], low: int, high: int) -> int:
    """Return the least number above ``low`` for which ``holds`` is true, by bisection; it is
    true for ``high``.
    """
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def compute_usual_times(times: OperationTimes) -> tuple[Floats, Floats, Floats]:
    """Return the time of each step in a usual run, and the lower and upper ends of its 95 %
    interval.

    Each array is ``(steps + 1,)`` in nanoseconds; the last value is that of the part that belongs
    to no step.  A time is the mean over the runs whose wall time is in the middle half.  So the
    times add up to the mean wall time of these runs, and single slow runs do not matter.  The
    interval is that of the median by order statistics, widened to include the time; with fewer than
    six runs, its ends are the extremes.
    """
    table = np.vstack([times.table_ns, times.unattributed_ns])
    usual: Floats = table[:, select_middle_half(times.wall_ns)].mean(axis=1)
    ordered = np.sort(table, axis=1)
    low, high = (
        find_interval_ranks(times.runs, 0.5)
        if times.runs >= count_samples_needed(0.5)
        else (0, times.runs - 1)
    )
    return usual, np.minimum(usual, ordered[:, low]), np.maximum(usual, ordered[:, high])


def select_middle_half(values: Floats) -> npt.NDArray[np.intp]:
    """Return the positions of the values between the quartiles."""
    order = np.argsort(values, kind="stable")
    cut = len(values) // 4
    return order[cut : len(values) - cut]


# Detect in the latencies how many calls at the beginning are warm-up.
#
# The second half of a run is the reference, and each of the first calls is ranked by the share of
# reference calls that are faster.  A beginning is significantly slow if the ranks of its calls
# together are too high, by Fisher's combination of tail probabilities (R. A. Fisher, "Statistical
# Methods for Research Workers", 1932, section 21.1), with fewer degrees of freedom if calls depend
# on each other.  It ends where the cumulative sum of the excess is highest (E. S. Page, Biometrika
# 41 (1954), 100-115).
#
# Nothing is removed: a caller may show both the whole run and the part after the warm-up.

FEWEST = 40
"""With fewer calls, no warm-up is detected."""

_LEAST_EXCESS = 1.05  # a warm-up is at least this much slower than the rest
_MATTERS = 1e-3  # the least share of the total time that a warm-up must have cost
_CHANCE = 1e-4  # the probability of a false positive, for all tested beginnings together
# how far above the middle the ranks must be for the warm-up to continue; noise averages to the
# middle
_SLACK = 0.2


def count_warm_up_calls(values: npt.NDArray[Any]) -> int:
    """Return the number of calls at the beginning that were significantly slower; 0 without a sign
    of warm-up.

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
    ranks = _compute_shares_below(values, normal)
    surprise = -np.log(np.maximum(1 - ranks, 0.5 / len(normal)))
    memory = compute_autocorrelation_time(surprise[half:])
    sums = np.cumsum(surprise[:half])
    lengths = sorted({round(1.5**step) for step in range(1 + int(math.log(half, 1.5)))} | {half})
    found = any(
        _compute_chernoff_bound(length / memory, sums[length - 1] / memory) < _CHANCE / len(lengths)
        for length in lengths
    )
    if not found:
        return 0
    excess = np.cumsum(ranks[:half] - 0.5 - _SLACK)
    end = int(np.argmax(excess)) + 1
    usual = float(np.median(values[end:]))
    slower = float(np.median(values[:end])) > _LEAST_EXCESS * usual
    cost = float(np.sum(values[:end], dtype=np.float64)) - end * usual
    return end if slower and excess[end - 1] > 0 and cost > _MATTERS * samples * usual else 0


def _compute_shares_below(values: npt.NDArray[Any], ordered: npt.NDArray[Any]) -> Floats:
    """Return for each value the share of ordered values that are less; equal ones count half."""
    order = np.argsort(values)  # searching for sorted values is many times faster
    rising = values[order]
    shares = np.empty(len(values))
    shares[order] = np.searchsorted(ordered, rising, "left") + np.searchsorted(
        ordered, rising, "right"
    )
    return shares / (2.0 * len(ordered))


def _compute_chernoff_bound(shape: float, value: float) -> float:
    """Return Chernoff's upper bound of the probability that a gamma variate (this shape, scale
    1) exceeds a value.
    """
    if value <= shape:
        return 1.0
    return math.exp(min(0.0, -(value - shape) + shape * math.log(value / shape)))
