"""How much each factor matters for reaching the best values: PED-ANOVA.

The best tenth of the samples is compared with all of them, in one factor at a time: the Pearson divergence of the two
densities of the factor is its importance (Watanabe, Bansal and Hutter 2023, "PED-ANOVA: Efficiently quantifying
hyperparameter importance in arbitrary subspaces").  A factor that does not exist in all samples counts by how much
oftener it exists among the best ones (Terashima et al. 2026, "Conditional PED-ANOVA").  Densities are sums of normal
distributions on a grid, with the width of Scott's rule (Scott 1992, "Multivariate density estimation").

As all densities are on a grid, they follow from counts, and resampling costs little.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.analysis.main_effects import Factor
from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import SpecMismatch

BEST = 0.1
"""The share of samples that count as the best ones."""

_POINTS = 50  # of the grid, at most
_RESAMPLES = 100
_BLOCKS = 200
_FEWEST = 2  # samples with a factor
_NARROWEST = 0.5 / 1.64  # 90 % of a normal distribution are within one point of the grid then
_TINY = 1e-12

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class BestShare:
    """A factor's share of the importance of all factors, with a 95 % interval."""

    name: str
    share: float
    low: float
    high: float


def ped_anova(factors: Sequence[Factor], losses: npt.ArrayLike) -> tuple[BestShare, ...]:
    """Return how much the best tenth of samples differs from all samples in each factor, greatest share first.

    Parameters
    ----------
    factors
        The factors, each with a position for every sample.
    losses
        Shape (samples,), finite floats: less is better.

    Raises
    ------
    SpecMismatch
        If lengths differ, or losses are not finite.

    Notes
    -----
    Intervals are those of 100 bootstrap samples, of 200 blocks of samples if there are more than 200 samples; which
    samples are the best ones is not drawn again.
    """
    check_call(ped_anova, locals())
    values = np.asarray(losses, np.float64)
    if values.ndim != 1 or not np.isfinite(values).all():
        raise SpecMismatch("losses must be finite and have the shape (samples,)")
    for factor in factors:
        if factor.positions.shape != values.shape:
            raise SpecMismatch(f"{factor.name}: {factor.positions.shape} positions for {values.shape} losses")
    if len(values) < _FEWEST:
        return tuple(BestShare(factor.name, 0.0, 0.0, 0.0) for factor in factors)
    best = values <= np.sort(values)[math.ceil(BEST * len(values)) - 1]
    blocks = min(_BLOCKS, len(values))
    random = np.random.default_rng(0)
    drawn = random.multinomial(blocks, np.full(blocks, 1 / blocks), _RESAMPLES)
    weights = np.concatenate([np.ones((1, blocks)), drawn.astype(np.float64)])
    found = np.array([_divergences(factor, best, weights) for factor in factors]).reshape(len(factors), len(weights))
    totals = found.sum(axis=0)
    shares = np.divide(found, totals, out=np.zeros_like(found), where=totals > 0)
    low, high = np.quantile(shares[:, 1:], (0.025, 0.975), axis=1)
    rows = [
        BestShare(factor.name, float(share), float(min(one, share)), float(max(other, share)))
        for factor, share, one, other in zip(factors, shares[:, 0], low, high, strict=True)
    ]
    return tuple(sorted(rows, key=lambda row: -row.share))


def _divergences(factor: Factor, best: npt.NDArray[np.bool_], weights: Floats) -> Floats:
    """Return the importance of a factor, before it is divided by the sum of all, for each row of weights of blocks."""
    known = ~np.isnan(factor.positions)
    if factor.categories is not None:
        points = factor.categories
        places = np.where(known, factor.positions, 0).astype(np.int64)
    else:
        points = min(factor.values or _POINTS, _POINTS)
        nearest = np.ceil(np.where(known, factor.positions, 0.0) * (points - 1) - 0.5).astype(np.int64)
        places = np.clip(nearest, 0, points - 1)
    if points < 2:
        return np.zeros(len(weights))
    among_all, among_best = (
        weights @ _counts(places, chosen, points, weights.shape[1]) for chosen in (known, known & best)
    )
    density = _listed if factor.categories is not None else _smooth
    of_all, of_best = density(among_all) + _TINY, density(among_best) + _TINY
    divergence = np.sum(of_all * (of_best / of_all - 1) ** 2, axis=1)
    there, there_best = among_all.sum(axis=1), among_best.sum(axis=1)
    # The shares of samples in which the factor exists: of the best ones, and of all.
    every, every_best = weights @ _sums(np.ones(len(best)), weights), weights @ _sums(best, weights)
    alpha = there_best / np.maximum(every_best, 1.0)
    beta = there / np.maximum(every, 1.0)
    counts = (there >= _FEWEST) & (there_best > 0)
    found: Floats = np.where(counts, alpha**2 / np.maximum(beta, _TINY) * divergence, 0.0)
    return found


def _counts(places: npt.NDArray[np.int64], chosen: npt.NDArray[np.bool_], points: int, blocks: int) -> Floats:
    """Return how often each point of the grid occurs in each block, (blocks, points)."""
    block = np.arange(len(places)) % blocks
    flat = np.bincount((block * points + places)[chosen], minlength=blocks * points)
    return flat.reshape(blocks, points).astype(np.float64)


def _sums(values: npt.NDArray[Any], weights: Floats) -> Floats:
    block = np.arange(len(values)) % weights.shape[1]
    return np.bincount(block, weights=values, minlength=weights.shape[1]).astype(np.float64)


def _listed(counts: Floats) -> Floats:
    """Return the density over categories, (rows, points), with one uniform observation added."""
    points = counts.shape[1]
    kinds = (counts > 0).sum(axis=1, keepdims=True) + 1.0
    # An observation of a category says a little about the others, too.
    spread = (1.0 / kinds) / (1.0 + points / kinds)
    total = counts.sum(axis=1, keepdims=True)
    found: Floats = (counts * (1.0 / (1.0 + points / kinds)) + spread * total + 1.0 / points) / (total + 1.0)
    return found


def _smooth(counts: Floats) -> Floats:
    """Return the density over a grid in order, (rows, points), with one very wide observation in the middle added."""
    points = counts.shape[1]
    grid = np.arange(points, dtype=np.float64)
    table = _cumulative(points, _widths(counts))
    steps = np.arange(points)
    apart = steps[np.newaxis, :] - steps[:, np.newaxis] + points
    inside = table[:, apart] - table[:, apart - 1]
    whole = table[:, 2 * points - 1 - steps] - table[:, points - 1 - steps]
    observed = np.einsum("rm,rmk->rk", counts / np.maximum(whole, _TINY), inside)
    middle, width = (points - 1) / 2, float(points)
    prior = np.array([_normal((x + 0.5 - middle) / width) - _normal((x - 0.5 - middle) / width) for x in grid])
    found: Floats = (observed + prior / prior.sum()) / (counts.sum(axis=1, keepdims=True) + 1.0)
    return found


def _widths(counts: Floats) -> Floats:
    """Return the standard deviation of each row's normal distributions, (rows,), by Scott's rule."""
    points = counts.shape[1]
    grid = np.arange(points)
    total = counts.sum(axis=1)
    mean = counts @ grid / np.maximum(total, 1.0)
    spread = np.sqrt(np.sum(counts * (grid - mean[:, np.newaxis]) ** 2, axis=1) / np.maximum(total - 1.0, 1.0))
    below = np.cumsum(counts, axis=1)
    lower = np.argmax((below >= np.maximum(total // 4, 1.0)[:, np.newaxis]) & (below > 0), axis=1)
    beyond = below > (3 * total // 4)[:, np.newaxis]
    last = points - 1 - np.argmax(counts[:, ::-1] > 0, axis=1)
    upper = np.where(beyond.any(axis=1), np.argmax(beyond, axis=1), last)
    narrow = np.minimum((upper - lower) / 1.34, spread)
    found: Floats = np.maximum(1.059 * narrow * np.maximum(total, 1.0) ** -0.2, _NARROWEST)
    return found


def _cumulative(points: int, widths: Floats) -> Floats:
    """Return the normal distribution function at d + 1/2 for each whole d from -points to points - 1, by width."""
    ends = (np.arange(-points, points) + 0.5) / widths[:, np.newaxis]
    found: Floats = np.vectorize(_normal, otypes=[np.float64])(ends)
    return found


def _normal(value: float) -> float:
    return 0.5 * (1.0 + math.erf(value / math.sqrt(2.0)))
