"""How much each parameter matters for an objective: by an additive model, by PED-ANOVA, and by
fANOVA.
"""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from nnpipe.analysis.factor_importance import (
    BestShare,
    Factor,
    MainEffect,
    MainEffects,
    compute_main_effects,
    ped_anova,
)
from nnpipe.core.errors import ConfigError, SpecMismatch
from nnpipe.searching.objectives import Objectives
from nnpipe.searching.parameters import SearchParameter
from nnpipe.searching.space import SearchSpace
from nnpipe.searching.trial_mirror import export_study, get_position_within, to_ordered_parameter
from nnpipe.searching.trial_store import SearchTrial

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.study import Study
    from optuna.trial import FrozenTrial

log = logging.getLogger("nnpipe")

OptunaMethod = Literal["ped-anova", "fanova"]

_SHOWN = 20  # parameters without an additive model
_SURE = 0.5  # of the variance, below which single parameters explain little


@dataclass(frozen=True)
class Importance:
    """How much each parameter matters for an objective.

    Parameters
    ----------
    objective
        The name of the objective.
    effects
        The shares by an additive model, with 95 % intervals; see
        :func:`~nnpipe.analysis.factor_importance.compute_main_effects`.
    ped_anova
        The shares by PED-ANOVA, greatest first, with 95 % intervals: how much the best tenth of
        trials differs from all in a parameter alone; see
        :func:`~nnpipe.analysis.factor_importance.ped_anova`.
    trials
        How many trials they are from.
    """

    objective: str
    effects: MainEffects
    ped_anova: tuple[BestShare, ...]
    trials: int

    def __str__(self) -> str:
        best = {row.name: row for row in self.ped_anova}
        names = [effect.name for effect in self.effects.effects] or list(best)[:_SHOWN]
        effects = {effect.name: effect for effect in self.effects.effects}
        width = max((len(name) for name in names), default=0)
        lines = [
            f"importance for {self.objective} (additive model; PED-ANOVA; each with its 95 % "
            f"interval):"
        ]
        lines += [
            f"  {name:<{width}} {_format_share(effects.get(name))}   {_format_share(best[name])}"
            for name in names
        ]
        if self.remark:
            lines.append(f"  {self.remark}")
        return "\n".join(lines)

    @property
    def remark(self) -> str:
        """What is to be known before the shares are believed; empty if there is nothing."""
        if self.effects.explained >= _SURE:
            return ""
        return (
            f"single parameters explain {max(self.effects.explained, 0.0):.0%} of the variance; "
            "the rest are joint effects, or noise"
        )


def _format_share(row: MainEffect | BestShare | None) -> str:
    return f"{'-':>23}" if row is None else f"{row.share:6.1%} {row.low:6.1%} to {row.high:6.1%}"


def compute_importance(
    space: SearchSpace, objectives: Objectives, trials: Sequence[SearchTrial], objective: str
) -> Importance:
    """Return how much each parameter matters for an objective, from the finished trials."""
    found = [
        trial
        for trial in trials
        if trial.state == "finished"
        and objective in trial.values
        and space.fits(trial.configuration or {})
    ]
    factors = [build_factor(name, parameter, found) for name, parameter in space.parameters.items()]
    values = np.array([trial.values[objective] for trial in found], np.float64)
    try:
        effects = compute_main_effects(factors, values)
    except SpecMismatch as error:
        log.warning("no additive model: %s", error)
        effects = MainEffects((), 1.0)
    sign = -1.0 if objectives.by_name[objective] == "maximize" else 1.0
    return Importance(objective, effects, ped_anova(factors, sign * values), len(found))


def build_factor(name: str, parameter: SearchParameter, trials: Sequence[SearchTrial]) -> Factor:
    """Return a parameter's positions in trials; NaN where it does not exist."""
    values = [(trial.configuration or {}).get(name, np.nan) for trial in trials]
    known = [name in (trial.configuration or {}) for trial in trials]
    if parameter.in_order:
        found = [
            parameter.position(value) if there else np.nan
            for value, there in zip(values, known, strict=True)
        ]
        return Factor(name, np.array(found, np.float64), values=parameter.count)
    choices = {choice: place for place, choice in enumerate(parameter.choices())}
    places = [
        choices[value] if there else np.nan for value, there in zip(values, known, strict=True)
    ]
    return Factor(name, np.array(places, np.float64), categories=len(choices))


def compute_optuna_importance(
    space: SearchSpace,
    objectives: Objectives,
    trials: Sequence[SearchTrial],
    objective: str,
    method: OptunaMethod,
) -> dict[str, float]:
    """Return the share of each parameter by a method of Optuna, greatest first; empty without two
    trials.

    ``fanova`` (Hutter et al. 2014) is wrong on samples of adaptive samplers, and slow: it is warned
    of.

    Raises
    ------
    ConfigError
        If there is no such method.
    """
    from optuna.importance import (
        FanovaImportanceEvaluator,
        PedAnovaImportanceEvaluator,
        get_param_importances,
    )

    if method == "fanova":
        log.warning(
            "fANOVA's regression trees rank parameters wrongly where trials crowd together, as "
            "those of all samplers but random and grid do, and take a minute for 1,000 trials; the "
            "additive model does neither"
        )
    elif method != "ped-anova":
        raise ConfigError(f"method: expected ped-anova or fanova, found {method!r}")
    if len(trials) < 2:
        return {}
    study = export_study(space, objectives, trials, None, "importance", places=True)
    place = objectives.names.index(objective)
    sign = -1.0 if objectives.by_name[objective] == "maximize" else 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a parameter with few trials may be inaccurate
        evaluator = (
            PedAnovaImportanceEvaluator()
            if method == "ped-anova"
            else FanovaImportanceEvaluator(seed=0)
        )
        found = get_param_importances(
            study, evaluator=evaluator, target=lambda trial: sign * trial.values[place]
        )
    return {name: float(share) for name, share in found.items()}


_FEWEST = 4  # trials, for a model


class AdditiveImportanceEvaluator:
    """Shares of the variance by an additive model: see
    :func:`~nnpipe.analysis.factor_importance.compute_main_effects`.

    It is an :class:`optuna.importance.BaseImportanceEvaluator`::

        optuna.importance.get_param_importances(study, evaluator=AdditiveImportanceEvaluator())

    Parameters that do not exist in every trial count, too.  Of several objectives without a target,
    the mean of the shares is returned.  For fewer than four trials, shares are those of the squared
    correlations.
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
        targets = (
            [_get_target(place) for place in range(len(study.directions))]
            if target is None
            else [target]
        )
        each = [
            _compute_shares({name: found[name] for name in names}, trials, one) for one in targets
        ]
        shares = {name: float(np.mean([one[name] for one in each])) for name in names}
        return dict(sorted(shares.items(), key=lambda item: -item[1]))


def _get_target(place: int) -> Callable[[FrozenTrial], float]:
    return lambda trial: trial.values[place]


def _compute_shares(
    distributions: dict[str, BaseDistribution],
    trials: Sequence[FrozenTrial],
    target: Callable[[FrozenTrial], float],
) -> dict[str, float]:
    values = [float(target(trial)) for trial in trials]
    kept = [trial for trial, value in zip(trials, values, strict=True) if math.isfinite(value)]
    wanted = np.array([value for value in values if math.isfinite(value)])
    free = {name: each for name, each in distributions.items() if not each.single()}
    factors = [_build_factor(name, each, kept) for name, each in free.items()]
    if len(kept) < _FEWEST:
        squares = {
            factor.name: _compute_squared_correlation(factor.positions, wanted)
            for factor in factors
        }
        total = sum(squares.values())
        found = {name: square / total for name, square in squares.items()} if total > 0 else squares
    else:
        found = {
            effect.name: effect.share for effect in compute_main_effects(factors, wanted).effects
        }
    return {name: found.get(name, 0.0) for name in distributions}


def _build_factor(
    name: str, distribution: BaseDistribution, trials: Sequence[FrozenTrial]
) -> Factor:
    def compute_position(value: Any) -> float:
        if categories is not None:
            return float(distribution.to_internal_repr(value))
        low, high = distribution.low, distribution.high  # type: ignore[attr-defined]
        return get_position_within(distribution, min(max(value, low), high))

    ordered = to_ordered_parameter(distribution) is not None
    categories = None if ordered else len(distribution.choices)  # type: ignore[attr-defined]
    positions = [
        compute_position(trial.params[name]) if name in trial.params else np.nan for trial in trials
    ]
    return Factor(name, np.array(positions, np.float64), categories)


def _compute_squared_correlation(
    positions: np.ndarray[Any, Any], values: np.ndarray[Any, Any]
) -> float:
    there = ~np.isnan(positions)
    if there.sum() < 2 or np.ptp(positions[there]) == 0 or np.ptp(values[there]) == 0:
        return 0.0
    return float(np.corrcoef(positions[there], values[there])[0, 1] ** 2)
