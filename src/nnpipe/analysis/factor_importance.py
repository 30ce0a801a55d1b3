"""How much each factor of an experiment matters: for a measured value, and for reaching its best
values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import SpecMismatch

# How much each factor of an experiment explains of a measured value: an additive model with smooth
# effects.
#
# The value is fitted as a sum of one function for each factor (Hastie and Tibshirani 1986,
# "Generalized additive models"; smooth functions as P-splines, Eilers and Marx 1996, "Flexible
# smoothing with B-splines and penalties"). A factor's share is the variance of its function over
# all of the factor's values, equally weighted, as a share of the whole variance: that of the sum,
# and of what the sum leaves unexplained in samples that were not fitted, which is joint effects and
# noise (the main effects of functional ANOVA; Sobol 1993, Hooker 2007).
#
# Samples that crowd in one corner, as those of an adaptive search do, estimate the same functions
# with wider intervals; regression trees, in contrast, do not extrapolate and rank factors wrongly
# then.

_KNOTS = 8
_POINTS = 64  # at which a smooth function's variance is computed
_PENALTIES = tuple(10.0**power for power in range(-4, 5))
_RIDGE = 1e-6  # keeps the equations solvable where samples say nothing
_ABSENCE = 10.0  # how much dearer the level of an absent factor is than that of a category
_BLOCKS = 20
_LEAST_PER_BLOCK = 2
_RESAMPLES = 200
_MOST_FEATURES = 2000

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Factor:
    """A factor, and its value in each sample.

    Parameters
    ----------
    name
        Its name.
    positions
        Shape (samples,), floats: where the value lies among all of the factor's values, from 0 to
        1, or with ``categories`` the number of the category; NaN where the factor does not exist.
    categories
        The number of categories, for a factor whose values have no order; ``None`` for one with an
        order.
    values
        The number of values of a factor with an order; ``None`` if they are real numbers, or not
        counted.
    """

    name: str
    positions: npt.NDArray[Any]
    categories: int | None = None
    values: int | None = None


@dataclass(frozen=True)
class MainEffect:
    """A factor's share of the whole variance, with a 95 % interval."""

    name: str
    share: float
    low: float
    high: float


@dataclass(frozen=True)
class MainEffects:
    """The effects, greatest share first.

    Parameters
    ----------
    effects
        One for each factor.
    explained
        Share of the variance of samples that were not fitted which the sum of the effects explains
        (10-fold cross-validation); the rest are joint effects of several factors, and noise.  At
        most 1, and negative where the model is worse than the mean.
    """

    effects: tuple[MainEffect, ...]
    explained: float


def compute_main_effects(factors: Sequence[Factor], values: npt.ArrayLike) -> MainEffects:
    """Return what each factor explains of the values.

    Parameters
    ----------
    factors
        The factors, each with a position for every sample.
    values
        Shape (samples,), finite floats.

    Raises
    ------
    SpecMismatch
        If lengths differ, values are not finite, or there are too many factors for one model.

    Notes
    -----
    The strength of smoothing is chosen by cross-validation.  Intervals are those of 200 bootstrap samples of 20
    blocks of samples, so that their cost does not depend on the number of samples.
    """
    check_call(compute_main_effects, locals())
    target = np.asarray(values, dtype=np.float64)
    if target.ndim != 1 or not np.isfinite(target).all():
        raise SpecMismatch("values must be finite and have the shape (samples,)")
    for factor in factors:
        if factor.positions.shape != target.shape:
            raise SpecMismatch(
                f"{factor.name}: {factor.positions.shape} positions for {target.shape} values"
            )
    if sum(factor.categories or _KNOTS for factor in factors) > _MOST_FEATURES:
        raise SpecMismatch(
            f"{len(factors)} factors with all their categories are too many for one model"
        )
    effects = [effect for effect in map(_Effect.from_factor, factors) if effect is not None]
    blocks = min(_BLOCKS, len(target) // _LEAST_PER_BLOCK)
    scale = float(np.std(target)) if len(target) else 0.0
    if not effects or blocks < 2 or scale <= 1e-12 * float(np.max(np.abs(target))):
        return MainEffects(tuple(MainEffect(factor.name, 0.0, 0.0, 0.0) for factor in factors), 0.0)
    model = _Model(effects, (target - target.mean()) / scale, blocks)
    penalty, explained = model.find_best_penalty()
    left = 1.0 - max(explained, 0.0)
    shares = model.shares(model.solve(np.ones(blocks), penalty), left)
    random = np.random.default_rng(0)
    draws = [
        random.multinomial(blocks, np.full(blocks, 1 / blocks)).astype(np.float64)
        for _ in range(_RESAMPLES)
    ]
    resampled = np.array([model.shares(model.solve(weights, penalty), left) for weights in draws])
    low, high = np.quantile(resampled, (0.025, 0.975), axis=0)
    found = {
        effect.name: MainEffect(effect.name, *(float(part) for part in row))
        for effect, *row in zip(
            effects, shares, np.minimum(low, shares), np.maximum(high, shares), strict=True
        )
    }
    rows = [found.get(factor.name, MainEffect(factor.name, 0.0, 0.0, 0.0)) for factor in factors]
    return MainEffects(tuple(sorted(rows, key=lambda row: -row.share)), explained)


@dataclass(frozen=True)
class _Effect:
    """The columns of one factor in the model."""

    name: str
    columns: Floats
    penalty: Floats
    """Shape (width, width): what of the coefficients is kept small."""
    points: Floats
    """Shape (points, width): the columns at all values of the factor, equally weighted."""

    @property
    def width(self) -> int:
        return int(self.columns.shape[1])

    @classmethod
    def from_factor(cls, factor: Factor) -> _Effect | None:
        """Return the columns of a factor; ``None`` for one that never varies."""
        positions = np.asarray(factor.positions, dtype=np.float64)
        absent = np.isnan(positions)
        if len(np.unique(positions[~absent])) + bool(absent.any()) < 2:
            return None
        known = np.where(absent, 0.0, positions)
        if factor.categories is None:
            knots = _KNOTS
            columns, points = (
                _compute_hat_functions(known, knots),
                _compute_hat_functions((np.arange(_POINTS) + 0.5) / _POINTS, knots),
            )
            bends = np.diff(np.eye(knots), n=2, axis=0)
            penalty = bends.T @ bends * knots
        else:
            knots = factor.categories
            columns, points = np.eye(knots)[known.astype(np.int64)], np.eye(knots)
            penalty = np.eye(knots) / knots
        columns = np.where(absent[:, np.newaxis], 0.0, columns)
        if not absent.any():
            return cls(factor.name, columns, penalty, points)
        # Where the factor does not exist, the effect is a level of its own, weighted by how often
        # that is so.
        share = max(
            1, round(len(points) * float(absent.mean()) / max(1.0 - float(absent.mean()), 1e-6))
        )
        share = min(share, 50 * len(points))
        wide = np.zeros((knots + 1, knots + 1))
        wide[:knots, :knots] = penalty
        # Whether it exists may follow from another factor, which then has the effect.
        wide[knots, knots] = _ABSENCE
        rows = np.zeros((len(points) + share, knots + 1))
        rows[: len(points), :knots] = points
        rows[len(points) :, knots] = 1.0
        return cls(factor.name, np.column_stack([columns, absent]), wide, rows)


class _Model:
    """The sums of products of all columns, block by block, from which any weighting of the
    blocks is solved.
    """

    def __init__(self, effects: Sequence[_Effect], target: Floats, blocks: int) -> None:
        self.effects = effects
        ends = np.cumsum([effect.width for effect in effects])
        self.places = [
            slice(end - effect.width, end) for effect, end in zip(effects, ends, strict=True)
        ]
        table = np.column_stack([effect.columns for effect in effects])
        table = np.column_stack([table, np.ones(len(table)), target])
        # Neighbouring samples of an adaptive search are alike: a block has samples from all of its
        # time.
        parts = [table[first::blocks] for first in range(blocks)]
        self.products = np.array([part.T @ part for part in parts])
        self.counts = np.array([len(part) for part in parts], dtype=np.float64)
        width = table.shape[1] - 1
        self.smooth = np.zeros((width, width))
        for place, effect in zip(self.places, effects, strict=True):
            self.smooth[place, place] = effect.penalty
        self.ridge = np.eye(width) * _RIDGE * len(table)
        self.ridge[-1, -1] = 0.0

    def solve(self, weights: Floats, penalty: float) -> Floats:
        """Return the coefficients for a weighting of the blocks; the last one is the constant."""
        total = np.tensordot(weights, self.products, axes=1)
        width = len(self.smooth)
        normal = total[:width, :width] + penalty * self.smooth + self.ridge
        return np.asarray(
            np.linalg.lstsq(normal, total[:width, width], rcond=None)[0], dtype=np.float64
        )

    def find_best_penalty(self) -> tuple[float, float]:
        """Return the penalty with the least error on blocks that were left out, and the share
        that it explains.
        """
        blocks = len(self.counts)
        folds = np.arange(blocks) % min(10, blocks)
        errors = [
            sum(self._compute_error(folds == fold, penalty) for fold in range(folds.max() + 1))
            for penalty in _PENALTIES
        ]
        best = int(np.argmin(errors))
        spread = float(self.products[:, -1, -1].sum())
        return _PENALTIES[best], min(1.0 - errors[best] / spread, 1.0)

    def _compute_error(self, out: npt.NDArray[np.bool_], penalty: float) -> float:
        found = np.append(self.solve((~out).astype(np.float64), penalty), -1.0)
        return float(found @ self.products[out].sum(axis=0) @ found)

    def shares(self, coefficients: Floats, unexplained: float) -> Floats:
        """Return each effect's share of the sum of their variances and the unexplained one."""
        variances = np.array(
            [
                float(np.var(effect.points @ coefficients[place]))
                for place, effect in zip(self.places, self.effects, strict=True)
            ]
        )
        total = float(variances.sum()) + unexplained
        return variances / total if total > 0 and math.isfinite(total) else np.zeros(len(variances))


def _compute_hat_functions(positions: Floats, knots: int) -> Floats:
    """Return piecewise linear functions, each 1 at its knot and 0 at the others, at some
    positions.
    """
    distance = np.abs(positions[:, np.newaxis] * (knots - 1) - np.arange(knots))
    return np.maximum(1.0 - distance, 0.0)


# How much each factor matters for reaching the best values: PED-ANOVA.
#
# The best tenth of the samples is compared with all of them, in one factor at a time: the Pearson
# divergence of the two densities of the factor is its importance (Watanabe, Bansal and Hutter 2023,
# "PED-ANOVA: Efficiently quantifying hyperparameter importance in arbitrary subspaces").  A factor
# that does not exist in all samples counts by how much oftener it exists among the best ones
# (Terashima et al. 2026, "Conditional PED-ANOVA").  Densities are sums of normal distributions on a
# grid, with the width of Scott's rule (Scott 1992, "Multivariate density estimation").
#
# As all densities are on a grid, they follow from counts, and resampling costs little.

BEST = 0.1
"""The share of samples that count as the best ones."""

_GRID_POINTS = 50  # of the grid, at most
_BLOCK_RESAMPLES = 100
_MOST_BLOCKS = 200
_FEWEST = 2  # samples with a factor
_NARROWEST = 0.5 / 1.64  # 90 % of a normal distribution are within one point of the grid then
_TINY = 1e-12


@dataclass(frozen=True)
class BestShare:
    """A factor's share of the importance of all factors, with a 95 % interval."""

    name: str
    share: float
    low: float
    high: float


def ped_anova(factors: Sequence[Factor], losses: npt.ArrayLike) -> tuple[BestShare, ...]:
    """Return how much the best tenth of samples differs from all samples in each factor, greatest
    share first.

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
            raise SpecMismatch(
                f"{factor.name}: {factor.positions.shape} positions for {values.shape} losses"
            )
    if len(values) < _FEWEST:
        return tuple(BestShare(factor.name, 0.0, 0.0, 0.0) for factor in factors)
    best = values <= np.sort(values)[math.ceil(BEST * len(values)) - 1]
    blocks = min(_MOST_BLOCKS, len(values))
    random = np.random.default_rng(0)
    drawn = random.multinomial(blocks, np.full(blocks, 1 / blocks), _BLOCK_RESAMPLES)
    weights = np.concatenate([np.ones((1, blocks)), drawn.astype(np.float64)])
    found = np.array([_compute_divergences(factor, best, weights) for factor in factors]).reshape(
        len(factors), len(weights)
    )
    totals = found.sum(axis=0)
    shares = np.divide(found, totals, out=np.zeros_like(found), where=totals > 0)
    low, high = np.quantile(shares[:, 1:], (0.025, 0.975), axis=1)
    rows = [
        BestShare(factor.name, float(share), float(min(one, share)), float(max(other, share)))
        for factor, share, one, other in zip(factors, shares[:, 0], low, high, strict=True)
    ]
    return tuple(sorted(rows, key=lambda row: -row.share))


def _compute_divergences(factor: Factor, best: npt.NDArray[np.bool_], weights: Floats) -> Floats:
    """Return the importance of a factor, before it is divided by the sum of all, for each row of
    weights of blocks.
    """
    known = ~np.isnan(factor.positions)
    if factor.categories is not None:
        points = factor.categories
        places = np.where(known, factor.positions, 0).astype(np.int64)
    else:
        points = min(factor.values or _GRID_POINTS, _GRID_POINTS)
        nearest = np.ceil(np.where(known, factor.positions, 0.0) * (points - 1) - 0.5).astype(
            np.int64
        )
        places = np.clip(nearest, 0, points - 1)
    if points < 2:
        return np.zeros(len(weights))
    among_all, among_best = (
        weights @ _count_grid_points(places, chosen, points, weights.shape[1])
        for chosen in (known, known & best)
    )
    density = (
        _compute_categorical_density if factor.categories is not None else _compute_smooth_density
    )
    of_all, of_best = density(among_all) + _TINY, density(among_best) + _TINY
    divergence = np.sum(of_all * (of_best / of_all - 1) ** 2, axis=1)
    there, there_best = among_all.sum(axis=1), among_best.sum(axis=1)
    # The shares of samples in which the factor exists: of the best ones, and of all.
    every, every_best = (
        weights @ _compute_block_sums(np.ones(len(best)), weights),
        weights @ _compute_block_sums(best, weights),
    )
    alpha = there_best / np.maximum(every_best, 1.0)
    beta = there / np.maximum(every, 1.0)
    counts = (there >= _FEWEST) & (there_best > 0)
    found: Floats = np.where(counts, alpha**2 / np.maximum(beta, _TINY) * divergence, 0.0)
    return found


def _count_grid_points(
    places: npt.NDArray[np.int64], chosen: npt.NDArray[np.bool_], points: int, blocks: int
) -> Floats:
    """Return how often each point of the grid occurs in each block, (blocks, points)."""
    block = np.arange(len(places)) % blocks
    flat = np.bincount((block * points + places)[chosen], minlength=blocks * points)
    return flat.reshape(blocks, points).astype(np.float64)


def _compute_block_sums(values: npt.NDArray[Any], weights: Floats) -> Floats:
    block = np.arange(len(values)) % weights.shape[1]
    return np.bincount(block, weights=values, minlength=weights.shape[1]).astype(np.float64)


def _compute_categorical_density(counts: Floats) -> Floats:
    """Return the density over categories, (rows, points), with one uniform observation added."""
    points = counts.shape[1]
    kinds = (counts > 0).sum(axis=1, keepdims=True) + 1.0
    # An observation of a category says a little about the others, too.
    spread = (1.0 / kinds) / (1.0 + points / kinds)
    total = counts.sum(axis=1, keepdims=True)
    found: Floats = (counts * (1.0 / (1.0 + points / kinds)) + spread * total + 1.0 / points) / (
        total + 1.0
    )
    return found


def _compute_smooth_density(counts: Floats) -> Floats:
    """Return the density over a grid in order, (rows, points), with one very wide observation in
    the middle added.
    """
    points = counts.shape[1]
    grid = np.arange(points, dtype=np.float64)
    table = _compute_cdf_table(points, _compute_bandwidths(counts))
    steps = np.arange(points)
    apart = steps[np.newaxis, :] - steps[:, np.newaxis] + points
    inside = table[:, apart] - table[:, apart - 1]
    whole = table[:, 2 * points - 1 - steps] - table[:, points - 1 - steps]
    observed = np.einsum("rm,rmk->rk", counts / np.maximum(whole, _TINY), inside)
    middle, width = (points - 1) / 2, float(points)
    prior = np.array(
        [
            _normal_cdf((x + 0.5 - middle) / width) - _normal_cdf((x - 0.5 - middle) / width)
            for x in grid
        ]
    )
    found: Floats = (observed + prior / prior.sum()) / (counts.sum(axis=1, keepdims=True) + 1.0)
    return found


def _compute_bandwidths(counts: Floats) -> Floats:
    """Return the standard deviation of each row's normal distributions, (rows,), by Scott's
    rule.
    """
    points = counts.shape[1]
    grid = np.arange(points)
    total = counts.sum(axis=1)
    mean = counts @ grid / np.maximum(total, 1.0)
    spread = np.sqrt(
        np.sum(counts * (grid - mean[:, np.newaxis]) ** 2, axis=1) / np.maximum(total - 1.0, 1.0)
    )
    below = np.cumsum(counts, axis=1)
    lower = np.argmax((below >= np.maximum(total // 4, 1.0)[:, np.newaxis]) & (below > 0), axis=1)
    beyond = below > (3 * total // 4)[:, np.newaxis]
    last = points - 1 - np.argmax(counts[:, ::-1] > 0, axis=1)
    upper = np.where(beyond.any(axis=1), np.argmax(beyond, axis=1), last)
    narrow = np.minimum((upper - lower) / 1.34, spread)
    found: Floats = np.maximum(1.059 * narrow * np.maximum(total, 1.0) ** -0.2, _NARROWEST)
    return found


def _compute_cdf_table(points: int, widths: Floats) -> Floats:
    """Return the normal distribution function at d + 1/2 for each whole d from -points to points
    - 1, by width.
    """
    ends = (np.arange(-points, points) + 0.5) / widths[:, np.newaxis]
    found: Floats = np.vectorize(_normal_cdf, otypes=[np.float64])(ends)
    return found


def _normal_cdf(value: float) -> float:
    return 0.5 * (1.0 + math.erf(value / math.sqrt(2.0)))
