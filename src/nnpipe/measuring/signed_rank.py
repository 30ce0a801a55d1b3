"""A centre with an exact interval, from differences that are as likely to fall short of it as to exceed it.

That symmetry is all that is assumed, and it comes by itself where two
candidates are alike but for a constant and take turns in random order: swapping
the two changes the sign of a difference and nothing else.  No distribution is
assumed; one wild value moves the centre no further than any other.
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
    """Where differences centre.

    Attributes
    ----------
    value
        The Hodges-Lehmann estimate: the median of the means of all pairs.
    interval
        What encloses the centre at the confidence asked for; ``None`` where
        there are fewer values than ``needed``.
    number, needed
        How many values there were, and how many an interval takes.
    """

    value: float
    interval: tuple[float, float] | None
    number: int
    needed: int

    @property
    def reach(self) -> float:
        """Half of the interval's width; infinite where there is none."""
        return math.inf if self.interval is None else (self.interval[1] - self.interval[0]) / 2


def centre(values: npt.ArrayLike, confidence: float) -> Centre:
    """Estimate the centre of a symmetric distribution, by inverting Wilcoxon's signed-rank test.

    M. Hollander, D. A. Wolfe and E. Chicken, "Nonparametric Statistical
    Methods", 3rd edition, 2014, sections 3.2 and 3.3.

    Parameters
    ----------
    values
        (n,), at least one, finite.
    confidence
        At least this share of such intervals encloses the centre.

    Raises
    ------
    ValueError
        If there is no value, or a confidence that is none.
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
    """Return the means of all pairs of values, each with itself too (Walsh averages), ascending: (n (n + 1) / 2,)."""
    first, second = np.triu_indices(len(values))
    return np.sort((values[first] + values[second]) / 2)


@lru_cache(maxsize=512)
def _left_out(number: int, confidence: float) -> int:
    """Count the pair means that may be left out at each end: the largest k with 2 P(W < k + 1) <= 1 - confidence."""
    below = np.cumsum(_signed_rank(number))
    most = int(np.searchsorted(2 * below, (1 - confidence) * (1 + 1e-9), side="right")) - 1
    return max(0, most)


@lru_cache(maxsize=256)
def _signed_rank(number: int) -> Floats:
    """Return the probability of each sum of positive ranks, 0 to n (n + 1) / 2, if all signs are tosses of a coin."""
    found = np.zeros(number * (number + 1) // 2 + 1)
    found[0] = 1.0
    for rank in range(1, number + 1):
        found[rank:] = (found[rank:] + found[:-rank]) / 2
        found[:rank] /= 2
    return found
