"""Confidence intervals of quantiles by order statistics, and the number of samples that they need."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.core.argument_checks import check_call

Floats = npt.NDArray[np.float64]

CONFIDENCE = 0.95
"""The default confidence of intervals."""


def samples_needed(share: float, confidence: float = CONFIDENCE) -> int:
    """Return the least number of samples whose extremes enclose a quantile with this confidence.

    With fewer samples, no two-sided interval of observed values exists.  At 95 %,
    the numbers are 6 for the median, 29 for p90, 299 for p99 and 2,995 for p99.9.
    The extremes enclose the quantile unless all samples lie on one side of it; the
    probability is 1 - share^n - (1 - share)^n (H. A. David and H. N. Nagaraja,
    "Order Statistics", 3rd edition, 2003, section 7.1).
    """
    check_call(samples_needed, locals())
    number = 1
    while 1 - share**number - (1 - share) ** number < confidence:
        number += 1
    return number


def interval_ranks(samples: int, share: float, confidence: float = CONFIDENCE) -> tuple[int, int]:
    """Return the positions (from 0) of the order statistics that enclose a quantile with at least this confidence.

    The number B of samples below the quantile is binomial, so the l-th and u-th
    smallest samples enclose it with probability P(l <= B <= u - 1).  Of all
    sufficient pairs, the narrowest is returned, and among those the most central.

    Raises
    ------
    ValueError
        If there are fewer than :func:`samples_needed` samples.
    """
    centre, reach = samples * share, 8 * math.sqrt(samples * share * (1 - share)) + 8
    first, last = max(0, math.floor(centre - reach)), min(samples, math.ceil(centre + reach))
    below = np.arange(first, last + 1)
    below_cdf = np.cumsum(_binomial(below, samples, share))
    # The lower rank l (from 1) excludes B < l, the upper rank u excludes B >= u; both must be from 1 to n.
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


def _binomial(successes: npt.NDArray[Any], trials: int, share: float) -> Floats:
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
