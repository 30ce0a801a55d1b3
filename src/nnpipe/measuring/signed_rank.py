"""Estimate the centre of symmetrically distributed differences, with an exact confidence interval.

Symmetry is the only assumption.  It holds if two candidates differ by a constant
only and are run in turns in random order: exchanging the two then only changes
the sign of a difference.  No particular distribution is assumed, and an outlier
moves the centre no further than any other value.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Centre:
    """The centre of differences.

    Attributes
    ----------
    value
        The Hodges-Lehmann estimate: the median of the means of all pairs.
    interval
        The confidence interval of the centre; ``None`` if there are fewer values
        than ``needed``.
    number, needed
        The number of values, and the least number for an interval.
    """

    value: float
    interval: tuple[float, float] | None
    number: int
    needed: int

    @property
    def reach(self) -> float:
        """Half of the interval's width; infinite without an interval."""
        return math.inf if self.interval is None else (self.interval[1] - self.interval[0]) / 2


def centre(values: npt.ArrayLike, confidence: float) -> Centre:
    """Estimate the centre of a symmetric distribution, by inverting Wilcoxon's signed-rank test.

    M. Hollander, D. A. Wolfe and E. Chicken, "Nonparametric Statistical
    Methods", 3rd edition, 2014, sections 3.2 and 3.3.

    Parameters
    ----------
    values
        ``(n,)`` finite numbers, at least one.
    confidence
        The least probability that the interval encloses the centre.

    Raises
    ------
    ValueError
        If there is no value, or the confidence is not between 0 and 1.
    """
    found = np.asarray(values, np.float64)
    if found.ndim != 1 or not len(found):
        raise ValueError(f"a centre needs values in a row, these are of shape {found.shape}")
    needed = values_needed(confidence)
    means = pair_means(found)
    value = float(np.median(means))
    if len(found) < needed:
        return Centre(value, None, len(found), needed)
    left_out = _left_out(len(found), confidence)
    return Centre(value, (float(means[left_out]), float(means[-1 - left_out])), len(found), needed)


def values_needed(confidence: float) -> int:
    """Return the least number of values that support an interval: n with 2^(1 - n) <= 1 - confidence; 6 at 95 %."""
    if not 0 < confidence < 1:
        raise ValueError(f"a confidence lies between 0 and 1, {confidence} does not")
    return max(1, math.ceil(1 - math.log2(1 - confidence) - 1e-9))


def pair_means(values: Floats) -> Floats:
    """Return the sorted means of all pairs of values, including each with itself (Walsh averages): (n (n + 1) / 2,)."""
    first, second = np.triu_indices(len(values))
    return np.sort((values[first] + values[second]) / 2)


@lru_cache(maxsize=512)
def _left_out(number: int, confidence: float) -> int:
    """Return how many pair means to exclude at each end: the largest k with 2 P(W <= k) <= 1 - confidence."""
    below = np.cumsum(_signed_rank(number))
    most = int(np.searchsorted(2 * below, (1 - confidence) * (1 + 1e-9), side="right")) - 1
    return max(0, most)


@lru_cache(maxsize=256)
def _signed_rank(number: int) -> Floats:
    """Return the probability of each sum of positive ranks, 0 to n (n + 1) / 2, if both signs are equally likely."""
    found = np.zeros(number * (number + 1) // 2 + 1)
    found[0] = 1.0
    for rank in range(1, number + 1):
        found[rank:] = (found[rank:] + found[:-rank]) / 2
        found[:rank] /= 2
    return found
