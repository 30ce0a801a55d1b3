"""Quantiles of values that belong to samples with weights.

The estimate is that of F. E. Harrell and C. E. Davis, "A new distribution-free quantile estimator", Biometrika 69
(1982), 635-640: a mean of all ordered values, weighted by how likely each is to be the quantile.  Unlike a single
ordered value, it changes smoothly when samples are left out, so that the jackknife tells how sure it is, as the authors
propose.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from nnpipe.core.quality_metric import Floats, Statistic

_REACH = 9.0  # standard deviations of the rank beyond which weights are below 1e-15
_MARGIN = 0.02  # share of all values by which the rank may move when samples are left out, before all are looked at


def quantile_statistic(
    values: Floats, owners: npt.NDArray[np.integer], samples: int, share: float, fewest: int = 1
) -> Statistic:
    """Return a quantile as a function of the weights of samples.

    Parameters
    ----------
    values
        The values, ``(values,)``.
    owners
        The sample to which each belongs, ``(values,)`` integers; one may have any number of values.
    samples
        The number of samples.
    share
        The quantile, 0.99 for p99.
    fewest
        The number of values, weighted, below which it is not defined.

    Returns
    -------
    callable
        Takes ``(samples,)`` weights, and returns NaN if there are too few values.
    """
    order = np.argsort(values, kind="stable")
    ordered, of = values[order], owners[order]
    number = len(ordered)
    reach = math.ceil(_deviations(number, share) + _MARGIN * number)
    first = max(0, math.floor(share * number) - reach)
    last = min(number, math.ceil(share * number) + reach)
    counts = np.bincount(of, minlength=samples).astype(np.float64)
    before = np.bincount(of[:first], minlength=samples).astype(np.float64)
    near, near_of = ordered[first:last], of[first:last]

    def statistic(weights: Floats) -> float:
        total = float(weights @ counts)
        if total < fewest:
            return math.nan
        if not (weights == 1).all():
            return _quantile(weights, total)
        return _weighted(near, float(first), np.ones(last - first), total, share)

    def _quantile(weights: Floats, total: float) -> float:
        below, beside = float(weights @ before), weights[near_of]
        around = _deviations(total, share) + 1
        enough = below <= share * total - around or first == 0
        if enough and (below + float(beside.sum()) >= share * total + around or last == number):
            return _weighted(near, below, beside, total, share)
        return _weighted(ordered, 0.0, weights[of], total, share)

    return statistic


def _deviations(total: float, share: float) -> float:
    """Return how far from its place, in values, the quantile may be."""
    return _REACH * math.sqrt(share * (1 - share) * total) + _REACH**2


def _weighted(values: Floats, below: float, weights: Floats, total: float, share: float) -> float:
    """Return the mean of ordered values, each weighted by the part of the beta distribution over its ranks."""
    alpha, beta = (total + 1) * share, (total + 1) * (1 - share)
    ends = below + np.concatenate([[0.0], np.cumsum(weights)])
    low = max(math.floor(below), math.floor(share * total - _deviations(total, share)), 0)
    high = min(math.ceil(ends[-1]), math.ceil(share * total + _deviations(total, share)), math.ceil(total))
    grid = np.arange(low, high + 1, dtype=np.float64)
    # The density in the middle of each rank; a constant factor does not matter.
    middles = (grid[:-1] + 0.5) / max(total, high)
    logarithm = (alpha - 1) * np.log(middles) + (beta - 1) * np.log1p(-middles)
    parts = np.exp(logarithm - logarithm.max())
    reached = np.concatenate([[0.0], np.cumsum(parts)])
    part = np.diff(np.interp(ends, grid, reached))
    return float(part @ values / part.sum())
