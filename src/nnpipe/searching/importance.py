"""How much each parameter matters for an objective: by an additive model, by PED-ANOVA, and by fANOVA."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from nnpipe.analysis.main_effects import Factor, MainEffects, main_effects
from nnpipe.core.errors import ConfigError, SpecMismatch
from nnpipe.searching.objectives import Objectives
from nnpipe.searching.optuna_export import exported
from nnpipe.searching.parameters import SearchParameter
from nnpipe.searching.space import SearchSpace
from nnpipe.searching.trial import SearchTrial

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
        The shares by an additive model, with 95 % intervals; see :func:`~nnpipe.analysis.main_effects.main_effects`.
    ped_anova
        The shares by PED-ANOVA, by name: how much the best tenth of trials differs from all in a parameter alone.
        Empty without Optuna.
    """

    objective: str
    effects: MainEffects
    ped_anova: dict[str, float]

    def __str__(self) -> str:
        found = self.effects
        width = max((len(effect.name) for effect in found.effects), default=0)
        lines = [f"importance for {self.objective} (additive model, its 95 % interval; PED-ANOVA):"]
        for effect in found.effects:
            other = f"{self.ped_anova[effect.name]:8.1%}" if effect.name in self.ped_anova else f"{'-':>8}"
            lines.append(
                f"  {effect.name:<{width}} {effect.share:6.1%} {effect.low:6.1%} to {effect.high:6.1%} {other}"
            )
        if not found.effects:
            lines += [f"  {name}: {share:.1%}" for name, share in list(self.ped_anova.items())[:_SHOWN]]
        if found.explained < _SURE:
            lines.append(
                f"  single parameters explain {max(found.explained, 0.0):.0%} of the variance; "
                "the rest are joint effects, or noise"
            )
        return "\n".join(lines)


def importance_for(
    space: SearchSpace, objectives: Objectives, trials: Sequence[SearchTrial], objective: str
) -> Importance:
    """Return how much each parameter matters for an objective, from the finished trials."""
    found = [
        trial
        for trial in trials
        if trial.state == "finished" and objective in trial.values and space.fits(trial.configuration or {})
    ]
    factors = [factor_of(name, parameter, found) for name, parameter in space.parameters.items()]
    try:
        effects = main_effects(factors, [trial.values[objective] for trial in found])
    except SpecMismatch as error:
        log.warning("no additive model: %s", error)
        effects = MainEffects((), 1.0)
    try:
        import optuna  # noqa: F401
    except ModuleNotFoundError:
        return Importance(objective, effects, {})
    return Importance(objective, effects, importance_by_optuna(space, objectives, found, objective, "ped-anova"))


def factor_of(name: str, parameter: SearchParameter, trials: Sequence[SearchTrial]) -> Factor:
    """Return a parameter's positions in trials; NaN where it does not exist."""
    values = [(trial.configuration or {}).get(name, np.nan) for trial in trials]
    known = [name in (trial.configuration or {}) for trial in trials]
    if parameter.in_order:
        found = [parameter.position(value) if there else np.nan for value, there in zip(values, known, strict=True)]
        return Factor(name, np.array(found, np.float64))
    choices = {choice: place for place, choice in enumerate(parameter.choices())}
    places = [choices[value] if there else np.nan for value, there in zip(values, known, strict=True)]
    return Factor(name, np.array(places, np.float64), categories=len(choices))


def importance_by_optuna(
    space: SearchSpace, objectives: Objectives, trials: Sequence[SearchTrial], objective: str, method: OptunaMethod
) -> dict[str, float]:
    """Return the share of each parameter by a method of Optuna, greatest first; empty without two trials.

    ``fanova`` (Hutter et al. 2014) is wrong on samples of adaptive samplers, and slow: it is warned of.

    Raises
    ------
    ConfigError
        If there is no such method.
    """
    from optuna.importance import FanovaImportanceEvaluator, PedAnovaImportanceEvaluator, get_param_importances

    if method == "fanova":
        log.warning(
            "fANOVA's regression trees rank parameters wrongly where trials crowd together, as those of all samplers "
            "but random and grid do, and take a minute for 1,000 trials; the additive model does neither"
        )
    elif method != "ped-anova":
        raise ConfigError(f"method: expected ped-anova or fanova, found {method!r}")
    if len(trials) < 2:
        return {}
    study = exported(space, objectives, trials, None, "importance")
    place = objectives.names.index(objective)
    sign = -1.0 if objectives.by_name[objective] == "maximize" else 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a parameter with few trials may be inaccurate
        evaluator = PedAnovaImportanceEvaluator() if method == "ped-anova" else FanovaImportanceEvaluator(seed=0)
        found = get_param_importances(study, evaluator=evaluator, target=lambda trial: sign * trial.values[place])
    return {name: float(share) for name, share in found.items()}
