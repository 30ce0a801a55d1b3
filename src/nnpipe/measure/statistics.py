"""Statistics of latencies, and how sure they are.

Nothing here assumes a normal distribution: latencies have none.  Intervals
assume that samples are independent.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

CONFIDENCE = 0.95
SHARES = (0.5, 0.9, 0.99, 0.999)


@dataclass(frozen=True)
class Percentile:
    """A percentile of a sample; ``value`` and ``interval`` are ``None`` if ``needed`` samples were not there."""

    share: float
    needed: int
    value: float | None
    interval: tuple[float, float] | None

    @property
    def name(self) -> str:
        """``median``, ``p90``, ``p99.9``."""
        return "median" if self.share == 0.5 else f"p{100 * self.share:g}"


@dataclass(frozen=True, eq=False)
class Summary:
    """What a series of latencies comes down to, in nanoseconds.

    ``deviation`` is the sample's standard deviation (divided by n - 1), or
    ``None`` for a single value; ``ordered`` (samples,) is the series, ascending.
    """

    ordered: Floats
    mean: float
    deviation: float | None
    percentiles: tuple[Percentile, ...]

    @classmethod
    def of(cls, values: npt.NDArray[Any]) -> Summary:
        """Summarise ``values`` (samples,), of which there is at least one."""
        ordered = np.sort(np.asarray(values, np.float64))
        return cls(
            ordered,
            float(ordered.mean()),
            float(ordered.std(ddof=1)) if len(ordered) > 1 else None,
            tuple(percentile(ordered, share) for share in SHARES),
        )

    def __len__(self) -> int:
        return len(self.ordered)

    @property
    def least(self) -> float:
        """The fastest."""
        return float(self.ordered[0])

    @property
    def greatest(self) -> float:
        """The slowest."""
        return float(self.ordered[-1])

    @property
    def median(self) -> float:
        """The middle, which any number of samples has."""
        return self.quantile(0.5)

    def quantile(self, share: float) -> float:
        """Give a quantile without asking whether the sample supports it: to draw, not to state."""
        return float(np.quantile(self.ordered, share))

    def percentile(self, share: float) -> Percentile:
        """Give one of ``percentiles``."""
        return next(found for found in self.percentiles if found.share == share)


def samples_needed(share: float, confidence: float = CONFIDENCE) -> int:
    """Give the least number of samples whose extremes enclose a quantile with this confidence.

    With fewer, no two-sided interval made of observed values exists, and the
    quantile is anybody's guess: 6 for the median, 29 for p90, 299 for p99,
    2,995 for p99.9 at 95 %.  They enclose it unless all samples lie on one
    side: 1 - share^n - (1 - share)^n (H. A. David and H. N. Nagaraja, "Order
    Statistics", 3rd edition, 2003, section 7.1).
    """
    number = 1
    while 1 - share**number - (1 - share) ** number < confidence:
        number += 1
    return number


def percentile(ordered: Floats, share: float) -> Percentile:
    """Give a quantile of an ascending sample, with its interval, or neither if the sample is too small."""
    needed = samples_needed(share)
    if len(ordered) < needed:
        return Percentile(share, needed, None, None)
    low, high = interval_ranks(len(ordered), share)
    return Percentile(share, needed, float(np.quantile(ordered, share)), (float(ordered[low]), float(ordered[high])))


def interval_ranks(samples: int, share: float, confidence: float = CONFIDENCE) -> tuple[int, int]:
    """Give the places (from 0) of the order statistics that enclose a quantile with at least this confidence.

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
