"""How much each factor of an experiment explains of a measured value: an additive model with smooth effects.

The value is fitted as a sum of one function for each factor (Hastie and Tibshirani 1986, "Generalized additive
models"; smooth functions as P-splines, Eilers and Marx 1996, "Flexible smoothing with B-splines and penalties").
A factor's share is the variance of its function over all of the factor's values, equally weighted, as a share of the
whole variance: that of the sum, and of what the sum leaves unexplained in samples that were not fitted, which is joint
effects and noise (the main effects of functional ANOVA; Sobol 1993, Hooker 2007).

Samples that crowd in one corner, as those of an adaptive search do, estimate the same functions with wider intervals;
regression trees, in contrast, do not extrapolate and rank factors wrongly then.
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
        Shape (samples,), floats: where the value lies among all of the factor's values, from 0 to 1, or with
        ``categories`` the number of the category; NaN where the factor does not exist.
    categories
        The number of categories, for a factor whose values have no order; ``None`` for one with an order.
    values
        The number of values of a factor with an order; ``None`` if they are real numbers, or not counted.
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
        Share of the variance of samples that were not fitted which the sum of the effects explains (10-fold
        cross-validation); the rest are joint effects of several factors, and noise.  At most 1, and negative where
        the model is worse than the mean.
    """

    effects: tuple[MainEffect, ...]
    explained: float


def main_effects(factors: Sequence[Factor], values: npt.ArrayLike) -> MainEffects:
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
    check_call(main_effects, locals())
    target = np.asarray(values, dtype=np.float64)
    if target.ndim != 1 or not np.isfinite(target).all():
        raise SpecMismatch("values must be finite and have the shape (samples,)")
    for factor in factors:
        if factor.positions.shape != target.shape:
            raise SpecMismatch(f"{factor.name}: {factor.positions.shape} positions for {target.shape} values")
    if sum(factor.categories or _KNOTS for factor in factors) > _MOST_FEATURES:
        raise SpecMismatch(f"{len(factors)} factors with all their categories are too many for one model")
    effects = [effect for effect in map(_Effect.of, factors) if effect is not None]
    blocks = min(_BLOCKS, len(target) // _LEAST_PER_BLOCK)
    scale = float(np.std(target)) if len(target) else 0.0
    if not effects or blocks < 2 or scale <= 1e-12 * float(np.max(np.abs(target))):
        return MainEffects(tuple(MainEffect(factor.name, 0.0, 0.0, 0.0) for factor in factors), 0.0)
    model = _Model(effects, (target - target.mean()) / scale, blocks)
    penalty, explained = model.best_penalty()
    left = 1.0 - max(explained, 0.0)
    shares = model.shares(model.solve(np.ones(blocks), penalty), left)
    random = np.random.default_rng(0)
    draws = [random.multinomial(blocks, np.full(blocks, 1 / blocks)).astype(np.float64) for _ in range(_RESAMPLES)]
    resampled = np.array([model.shares(model.solve(weights, penalty), left) for weights in draws])
    low, high = np.quantile(resampled, (0.025, 0.975), axis=0)
    found = {
        effect.name: MainEffect(effect.name, *(float(part) for part in row))
        for effect, *row in zip(effects, shares, np.minimum(low, shares), np.maximum(high, shares), strict=True)
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
    def of(cls, factor: Factor) -> _Effect | None:
        """Return the columns of a factor; ``None`` for one that never varies."""
        positions = np.asarray(factor.positions, dtype=np.float64)
        absent = np.isnan(positions)
        if len(np.unique(positions[~absent])) + bool(absent.any()) < 2:
            return None
        known = np.where(absent, 0.0, positions)
        if factor.categories is None:
            knots = _KNOTS
            columns, points = _hats(known, knots), _hats((np.arange(_POINTS) + 0.5) / _POINTS, knots)
            bends = np.diff(np.eye(knots), n=2, axis=0)
            penalty = bends.T @ bends * knots
        else:
            knots = factor.categories
            columns, points = np.eye(knots)[known.astype(np.int64)], np.eye(knots)
            penalty = np.eye(knots) / knots
        columns = np.where(absent[:, np.newaxis], 0.0, columns)
        if not absent.any():
            return cls(factor.name, columns, penalty, points)
        # Where the factor does not exist, the effect is a level of its own, weighted by how often that is so.
        share = max(1, round(len(points) * float(absent.mean()) / max(1.0 - float(absent.mean()), 1e-6)))
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
    """The sums of products of all columns, block by block, from which any weighting of the blocks is solved."""

    def __init__(self, effects: Sequence[_Effect], target: Floats, blocks: int) -> None:
        self.effects = effects
        ends = np.cumsum([effect.width for effect in effects])
        self.places = [slice(end - effect.width, end) for effect, end in zip(effects, ends, strict=True)]
        table = np.column_stack([effect.columns for effect in effects])
        table = np.column_stack([table, np.ones(len(table)), target])
        # Neighbouring samples of an adaptive search are alike: a block has samples from all of its time.
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
        return np.asarray(np.linalg.lstsq(normal, total[:width, width], rcond=None)[0], dtype=np.float64)

    def best_penalty(self) -> tuple[float, float]:
        """Return the penalty with the least error on blocks that were left out, and the share that it explains."""
        blocks = len(self.counts)
        folds = np.arange(blocks) % min(10, blocks)
        errors = [sum(self._error(folds == fold, penalty) for fold in range(folds.max() + 1)) for penalty in _PENALTIES]
        best = int(np.argmin(errors))
        spread = float(self.products[:, -1, -1].sum())
        return _PENALTIES[best], min(1.0 - errors[best] / spread, 1.0)

    def _error(self, out: npt.NDArray[np.bool_], penalty: float) -> float:
        found = np.append(self.solve((~out).astype(np.float64), penalty), -1.0)
        return float(found @ self.products[out].sum(axis=0) @ found)

    def shares(self, coefficients: Floats, unexplained: float) -> Floats:
        """Return each effect's share of the sum of their variances and the unexplained one."""
        variances = np.array([
            float(np.var(effect.points @ coefficients[place]))
            for place, effect in zip(self.places, self.effects, strict=True)
        ])  # fmt: skip
        total = float(variances.sum()) + unexplained
        return variances / total if total > 0 and math.isfinite(total) else np.zeros(len(variances))


def _hats(positions: Floats, knots: int) -> Floats:
    """Return piecewise linear functions, each 1 at its knot and 0 at the others, at some positions."""
    distance = np.abs(positions[:, np.newaxis] * (knots - 1) - np.arange(knots))
    return np.maximum(1.0 - distance, 0.0)
