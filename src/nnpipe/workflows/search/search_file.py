"""The result of a search as a file, from which reports are made."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from nnpipe.analysis.main_effects import MainEffect
from nnpipe.analysis.ped_anova import BestShare
from nnpipe.report.inputs.search_file import KIND, SCHEMA, choice_text
from nnpipe.searching.importance import Importance
from nnpipe.searching.number_parameters import IntParameter, PowerParameter, UniformParameter
from nnpipe.searching.objectives import Objectives
from nnpipe.searching.parameter import SearchParameter
from nnpipe.searching.space import SearchSpace
from nnpipe.searching.trial import SearchTrial


def search_content(
    title: str,
    space: SearchSpace,
    objectives: Objectives,
    trials: Iterable[SearchTrial],
    importance: Mapping[str, Importance],
    fanova: Mapping[str, Mapping[str, float]],
    facts: Mapping[str, str],
) -> dict[str, Any]:
    """Return the content of a search's file, as values for JSON.

    Parameters
    ----------
    title
        The title of the search.
    space, objectives, trials
        What was searched for, and all trials.
    importance, fanova
        How much the parameters matter, by objective; ``fanova`` may be empty.
    facts
        What was searched and how, by name, for readers.
    """
    return {
        "schema": SCHEMA,
        "kind": KIND,
        "title": title,
        "objectives": dict(objectives.by_name),
        "parameters": {
            name: {**_axis(parameter), "told": _told(name, parameter, space)}
            for name, parameter in space.parameters.items()
        },
        "facts": {
            **({"Constraints": "; ".join(each.text for each in space.constraints)} if space.constraints else {}),
            **facts,
        },
        "importance": {
            name: {
                "trials": found.trials,
                "remark": found.remark,
                "additive": _rows(found.effects.effects),
                "ped_anova": _rows(found.ped_anova),
                "fanova": [
                    {"name": each, "share": share, "low": share, "high": share}
                    for each, share in fanova.get(name, {}).items()
                ],
            }
            for name, found in importance.items()
        },
        "trials": [_trial(trial) for trial in trials],
    }


def _axis(parameter: SearchParameter) -> dict[str, Any]:
    match parameter:
        case IntParameter():
            return {"low": parameter.low, "high": parameter.high, "log": parameter.log}
        case UniformParameter():
            return {"low": parameter.low, "high": parameter.high, "log": False}
        case PowerParameter():
            least, greatest = parameter.bounds
            return {"low": least, "high": greatest, "log": True}
    return {"choices": parameter.choices()}


def _told(name: str, parameter: SearchParameter, space: SearchSpace) -> str:
    when = f", when {space.conditions[name].text}" if name in space.conditions else ""
    match parameter:
        case IntParameter():
            more = f" in steps of {parameter.step}" if parameter.step > 1 else ", by ratios" if parameter.log else ""
            return f"whole numbers from {parameter.low} to {parameter.high}{more}{when}"
        case UniformParameter():
            more = "" if parameter.step is None else f" in steps of {parameter.step:g}"
            return f"from {parameter.low:g} to {parameter.high:g}{more}{when}"
        case PowerParameter():
            least, greatest = parameter.bounds
            return f"from {least:.3g} to {greatest:.3g}, by ratios{when}"
    return ", ".join(map(choice_text, parameter.choices())) + (", in order" if parameter.in_order else "") + when


def _rows(found: Iterable[MainEffect | BestShare]) -> list[dict[str, Any]]:
    return [
        {"name": each.name, "share": each.share, "low": max(each.low, 0.0), "high": min(each.high, 1.0)}
        for each in found
    ]


def _trial(trial: SearchTrial) -> dict[str, Any]:
    found: dict[str, Any] = {
        "number": trial.number,
        "state": trial.state,
        "configuration": None if trial.configuration is None else dict(trial.configuration),
        "values": {name: value for name, value in trial.values.items() if math.isfinite(value)},
        "seconds": trial.seconds,
    }
    if trial.reports:
        found["reports"] = [[step, value] for step, value in trial.reports if math.isfinite(value)]
    if trial.intervals:
        found["intervals"] = {name: list(ends) for name, ends in trial.intervals.items() if name in found["values"]}
    for name in ("message", "origin", "worker"):
        if getattr(trial, name):
            found[name] = getattr(trial, name)
    return found
