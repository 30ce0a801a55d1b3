"""Decide whether a percentile is known well enough, by the early-stopping rules of MLPerf.

A run may end early when it is unlikely that its latencies kept a bound by
chance.  At the percentile p, a query is *over-latency* with probability 1 - p, so
the number of such queries among n independent ones is binomial.  The numbers
equal those of LoadGen (``loadgen/early_stopping.cc`` and ``results.cc`` of
mlcommons/inference).  As there, queries are assumed to be independent; for
dependent ones, see :mod:`nnpipe.measuring.quantile_intervals`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.core.distributions import incomplete_beta

CONFIDENCE = 0.99
TOLERANCE = 0.0


@dataclass(frozen=True)
class EarlyStoppingEstimate:
    """The estimate of a percentile with MLPerf's confidence.

    Parameters
    ----------
    share
        The percentile, 0.9 for p90.
    samples, needed
        The number of samples, and the least number that supports an estimate.
    value
        The estimate, at least as large as the percentile with the given confidence; ``None`` if
        there are too few samples.
    discarded
        The number of samples above ``value``.
    """

    share: float
    samples: int
    needed: int
    value: float | None
    discarded: int


def compute_least_samples(
    percentile: float,
    over_latency: int,
    confidence: float = CONFIDENCE,
    tolerance: float = TOLERANCE,
) -> int:
    """Return the least total number of samples that allows ``over_latency`` slow ones.

    With h samples within the bound and t over it, the probability of t or fewer,
    I(p - d; h, t + 1), must be at most 1 - c.

    Parameters
    ----------
    percentile
        The share p of samples that must be within the bound, such as 0.99.
    over_latency
        The number t of samples over the bound.
    confidence, tolerance
        The confidence c and the tolerance d.

    Raises
    ------
    ValueError
        If a share is not between 0 and 1, or the count is negative.
    """
    share = _compute_share(percentile, confidence, tolerance)
    if over_latency < 0:
        raise ValueError(f"{over_latency} samples cannot be over-latency")
    low, high = 0, max(1, math.ceil((over_latency + 1) / (1 - share)))
    while not _has_enough(high, over_latency, share, confidence):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (
            (low, middle)
            if _has_enough(middle, over_latency, share, confidence)
            else (middle, high)
        )
    return high + over_latency


def compute_early_stopping_estimate(
    latencies: npt.NDArray[Any],
    percentile: float,
    confidence: float = CONFIDENCE,
    tolerance: float = TOLERANCE,
) -> EarlyStoppingEstimate:
    """Return an upper estimate of a percentile with this confidence.

    If the number of samples allows at most t over-latency samples, the t - 1
    highest are discarded, and the highest of the rest is the estimate.

    Parameters
    ----------
    latencies
        ``(samples,)`` in any order and unit.
    percentile, confidence, tolerance
        As for :func:`compute_least_samples`.
    """
    share = _compute_share(percentile, confidence, tolerance)
    samples = len(latencies)
    needed = compute_least_samples(percentile, 1, confidence, tolerance)
    if samples < needed:
        return EarlyStoppingEstimate(percentile, samples, needed, None, 0)
    # The largest t for which h = samples - t is enough; it is somewhat below the expected number.
    low, high = 1, samples
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (
            (middle, high)
            if _has_enough(samples - middle, middle, share, confidence)
            else (low, middle)
        )
    place = samples - low
    return EarlyStoppingEstimate(
        percentile, samples, needed, float(np.partition(latencies, place)[place]), low - 1
    )


def _compute_share(percentile: float, confidence: float, tolerance: float) -> float:
    if not 0 < percentile < 1 or not 0 < confidence < 1 or not 0 <= tolerance < percentile:
        raise ValueError(
            f"percentile {percentile}, confidence {confidence} and tolerance {tolerance} are to be "
            f"between 0 and 1, "
            "and the tolerance less than the percentile"
        )
    return percentile - tolerance


def _has_enough(in_time: int, over_latency: int, share: float, confidence: float) -> bool:
    return in_time > 0 and incomplete_beta(share, in_time, over_latency + 1) <= 1 - confidence
