"""The additive model of importance, as an evaluator for Optuna's studies."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nnpipe.analysis.main_effects import Factor, main_effects
from nnpipe.searching.optuna_values import ordered_parameter, position_within

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.study import Study
    from optuna.trial import FrozenTrial

_FEWEST = 4  # trials, for a model


class AdditiveImportanceEvaluator:
    """Shares of the variance by an additive model: see :func:`~nnpipe.analysis.main_effects.main_effects`.

    It is an :class:`optuna.importance.BaseImportanceEvaluator`::

        optuna.importance.get_param_importances(study, evaluator=AdditiveImportanceEvaluator())

    Parameters that do not exist in every trial count, too.  Of several objectives without a target, the mean of the
    shares is returned.  For fewer than four trials, shares are those of the squared correlations.
    """

    def __init__(self) -> None:
        from optuna.importance import BaseImportanceEvaluator

        BaseImportanceEvaluator.register(AdditiveImportanceEvaluator)

    def evaluate(
        self,
        study: Study,
        params: list[str] | None = None,
        *,
        target: Callable[[FrozenTrial], float] | None = None,
    ) -> dict[str, float]:
        """Return the share of each parameter, greatest first.

        Parameters
        ----------
        study
            The study.
        params
            The parameters that are assessed; by default all of them.
        target
            Returns the value of a trial; by default that of the objective.

        Raises
        ------
        ValueError
            If no finished trial has one of ``params``.
        """
        from optuna.trial import TrialState

        trials = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        found: dict[str, BaseDistribution] = {}
        for trial in trials:
            found |= trial.distributions
        for name in params or []:
            if name not in found:
                raise ValueError(f"no finished trial has the parameter {name!r}")
        names = list(found) if params is None else params
        targets = [_value(place) for place in range(len(study.directions))] if target is None else [target]
        each = [_shares({name: found[name] for name in names}, trials, one) for one in targets]
        shares = {name: float(np.mean([one[name] for one in each])) for name in names}
        return dict(sorted(shares.items(), key=lambda item: -item[1]))


def _value(place: int) -> Callable[[FrozenTrial], float]:
    return lambda trial: trial.values[place]


def _shares(
    distributions: dict[str, BaseDistribution], trials: Sequence[FrozenTrial], target: Callable[[FrozenTrial], float]
) -> dict[str, float]:
    values = [float(target(trial)) for trial in trials]
    kept = [trial for trial, value in zip(trials, values, strict=True) if math.isfinite(value)]
    wanted = np.array([value for value in values if math.isfinite(value)])
    free = {name: each for name, each in distributions.items() if not each.single()}
    factors = [_factor(name, each, kept) for name, each in free.items()]
    if len(kept) < _FEWEST:
        squares = {factor.name: _squared_correlation(factor.positions, wanted) for factor in factors}
        total = sum(squares.values())
        found = {name: square / total for name, square in squares.items()} if total > 0 else squares
    else:
        found = {effect.name: effect.share for effect in main_effects(factors, wanted).effects}
    return {name: found.get(name, 0.0) for name in distributions}


def _factor(name: str, distribution: BaseDistribution, trials: Sequence[FrozenTrial]) -> Factor:
    def place(value: Any) -> float:
        if categories is not None:
            return float(distribution.to_internal_repr(value))
        return position_within(distribution, min(max(value, distribution.low), distribution.high))  # type: ignore[attr-defined]

    ordered = ordered_parameter(distribution) is not None
    categories = None if ordered else len(distribution.choices)  # type: ignore[attr-defined]
    positions = [place(trial.params[name]) if name in trial.params else np.nan for trial in trials]
    return Factor(name, np.array(positions, np.float64), categories)


def _squared_correlation(positions: np.ndarray[Any, Any], values: np.ndarray[Any, Any]) -> float:
    there = ~np.isnan(positions)
    if there.sum() < 2 or np.ptp(positions[there]) == 0 or np.ptp(values[there]) == 0:
        return 0.0
    return float(np.corrcoef(positions[there], values[there])[0, 1] ** 2)
