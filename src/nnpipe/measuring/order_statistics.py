"""Which order statistics enclose a quantile, and how many samples that takes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.core.argument_checks import check_call

Floats = npt.NDArray[np.float64]

CONFIDENCE = 0.95
"""How often an interval covers the truth, where nothing else is said."""


def samples_needed(share: float, confidence: float = CONFIDENCE) -> int:
    """Return the least number of samples whose extremes enclose a quantile with this confidence.

    With fewer, no two-sided interval made of observed values exists, and the
    quantile is anybody's guess: 6 for the median, 29 for p90, 299 for p99,
    2,995 for p99.9 at 95 %.  They enclose it unless all samples lie on one
    side: 1 - share^n - (1 - share)^n (H. A. David and H. N. Nagaraja, "Order
    Statistics", 3rd edition, 2003, section 7.1).
    """
    check_call(samples_needed, locals())
    number = 1
    while 1 - share**number - (1 - share) ** number < confidence:
        number += 1
    return number


def interval_ranks(samples: int, share: float, confidence: float = CONFIDENCE) -> tuple[int, int]:
    """Return the places (from 0) of the order statistics that enclose a quantile with at least this confidence.

    The number of samples below the quantile is binomial, so the l-th to the
    u-th smallest enclose it with P(l <= B <= u - 1); of all such pairs this is
    the narrowest, and of those the one most central.

    Raises
    ------
    ValueError
        If there are fewer than :func:`samples_needed` samples.
    """
    centre, reach = samples * share, 8 * math.sqrt(samples * share * (1 - share)) + 8
    first, last = max(0, math.floor(centre - reach)), min(samples, math.ceil(centre + reach))
    below = np.arange(first, last + 1)
    below_cdf = np.cumsum(_binomial(below, samples, share))
    # Lower place l (from 1) leaves out B < l; upper place u leaves out B >= u; both must be samples: 1 to n.
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
    # Logarithms of factorials one from another: lgamma once, then the ratio of neighbours.
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
