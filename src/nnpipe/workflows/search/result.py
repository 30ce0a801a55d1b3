"""The result of a search."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nnpipe.analysis.factor_importance import BestShare, MainEffect
from nnpipe.core.errors import ConfigError
from nnpipe.core.files import write_text
from nnpipe.report.inputs.search_file import KIND, SCHEMA, format_choice
from nnpipe.report.result_files import read_search_file
from nnpipe.searching.importance import (
    Importance,
    OptunaMethod,
    compute_importance,
    compute_optuna_importance,
)
from nnpipe.searching.objectives import Objectives
from nnpipe.searching.parameters import (
    IntParameter,
    PowerParameter,
    SearchParameter,
    UniformParameter,
)
from nnpipe.searching.space import SearchSpace
from nnpipe.searching.trial_store import SearchTrial
from nnpipe.workflows.reporting import report_suffix, write_search_report

if TYPE_CHECKING:
    import optuna

    from nnpipe.workflows.sweep.sweep_result import SweepResult


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
            name: {**_describe_axis(parameter), "told": _describe_parameter(name, parameter, space)}
            for name, parameter in space.parameters.items()
        },
        "facts": {
            **(
                {"Constraints": "; ".join(each.text for each in space.constraints)}
                if space.constraints
                else {}
            ),
            **facts,
        },
        "importance": {
            name: {
                "trials": found.trials,
                "remark": found.remark,
                "additive": _build_rows(found.effects.effects),
                "ped_anova": _build_rows(found.ped_anova),
                "fanova": [
                    {"name": each, "share": share, "low": share, "high": share}
                    for each, share in fanova.get(name, {}).items()
                ],
            }
            for name, found in importance.items()
        },
        "trials": [_describe_trial(trial) for trial in trials],
    }


def _describe_axis(parameter: SearchParameter) -> dict[str, Any]:
    match parameter:
        case IntParameter():
            return {"low": parameter.low, "high": parameter.high, "log": parameter.log}
        case UniformParameter():
            return {"low": parameter.low, "high": parameter.high, "log": False}
        case PowerParameter():
            least, greatest = parameter.bounds
            return {"low": least, "high": greatest, "log": True}
    return {"choices": parameter.choices()}


def _describe_parameter(name: str, parameter: SearchParameter, space: SearchSpace) -> str:
    when = f", when {space.conditions[name].text}" if name in space.conditions else ""
    match parameter:
        case IntParameter():
            more = (
                f" in steps of {parameter.step}"
                if parameter.step > 1
                else ", by ratios"
                if parameter.log
                else ""
            )
            return f"whole numbers from {parameter.low} to {parameter.high}{more}{when}"
        case UniformParameter():
            more = "" if parameter.step is None else f" in steps of {parameter.step:g}"
            return f"from {parameter.low:g} to {parameter.high:g}{more}{when}"
        case PowerParameter():
            least, greatest = parameter.bounds
            return f"from {least:.3g} to {greatest:.3g}, by ratios{when}"
    return (
        ", ".join(map(format_choice, parameter.choices()))
        + (", in order" if parameter.in_order else "")
        + when
    )


def _build_rows(found: Iterable[MainEffect | BestShare]) -> list[dict[str, Any]]:
    return [
        {
            "name": each.name,
            "share": each.share,
            "low": max(each.low, 0.0),
            "high": min(each.high, 1.0),
        }
        for each in found
    ]


def _describe_trial(trial: SearchTrial) -> dict[str, Any]:
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
        found["intervals"] = {
            name: list(ends) for name, ends in trial.intervals.items() if name in found["values"]
        }
    for name in ("message", "origin", "worker"):
        if getattr(trial, name):
            found[name] = getattr(trial, name)
    return found


_WIDEST = 24
_LONGEST_MESSAGE = 80


class TrialTable:
    """Lines of trials with columns of fixed widths, so that each can be printed when it is known.

    Parameters
    ----------
    space
        Its parameters become columns.
    objectives
        Their values become columns.
    """

    def __init__(self, space: SearchSpace, objectives: Objectives) -> None:
        self._objectives = objectives
        self._names = list(space.parameters)
        self._widths = {
            name: min(max(len(name), 11), _WIDEST) for name in (*objectives.measured, *self._names)
        }
        self._best: SearchTrial | None = None

    @property
    def head(self) -> str:
        """The line above all others."""
        names = [
            f"{_truncate_text(name, self._widths[name]):>{self._widths[name]}}"
            for name in self._widths
        ]
        return " ".join([f"{'trial':>6} ", *names, f"{'seconds':>8}"])

    def line(self, trial: SearchTrial) -> str:
        """Return the line of a trial; that of a best one so far has a star."""
        star = "*" if self._is_best(trial) else " "
        cells = [
            self._format_cell(name, trial.values.get(name, ""))
            for name in self._objectives.measured
        ]
        cells += [
            self._format_cell(name, (trial.configuration or {}).get(name, ""))
            for name in self._names
        ]
        seconds = "" if trial.seconds is None else f"{trial.seconds:.3g}"
        ends = {
            "failed": f"  failed: {_truncate_text(trial.message, _LONGEST_MESSAGE)}",
            "pruned": "  pruned",
        }
        return " ".join([f"{trial.number:>6}{star}", *cells, f"{seconds:>8}"]) + ends.get(
            trial.state, ""
        )

    def skip(self, trials: Sequence[SearchTrial]) -> None:
        """Take over the best of trials whose lines are not wanted."""
        for trial in trials:
            self._is_best(trial)

    def _is_best(self, trial: SearchTrial) -> bool:
        if len(self._objectives.names) > 1 or trial.state != "finished":
            return False
        name, best = self._objectives.only, self._best
        if not self._objectives.keeps(trial):
            return False
        if best is not None and not self._objectives.is_better(
            name, trial.values[name], best.values[name]
        ):
            return False
        self._best = trial
        return True

    def _format_cell(self, name: str, value: Any) -> str:
        text = f"{value:.5g}" if isinstance(value, float) else str(value)
        return f"{_truncate_text(text, self._widths[name]):>{self._widths[name]}}"


def format_trial_table(
    trials: Sequence[SearchTrial], space: SearchSpace, objectives: Objectives
) -> str:
    """Return the lines of trials below their head."""
    table = TrialTable(space, objectives)
    return "\n".join([table.head, *(table.line(each).replace("*", " ", 1) for each in trials)])


def _truncate_text(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."


_SHOWN = 10


@dataclass(frozen=True)
class SearchResult:
    """The result of a search.

    Parameters
    ----------
    space
        What was searched.
    objectives
        The objectives with their directions.
    trials
        All trials by number.
    title
        The title of the search.
    facts
        What was searched and how, by name, for reports.
    final
        The measurements in full of the best trials, with the one to ship; only of models.

    Examples
    --------
    >>> import nnpipe
    >>> space = {"n": {"kind": "int", "low": 0, "high": 9}}
    >>> found = nnpipe.search(
    ...     lambda n: (n - 3) ** 2, space, objectives={"value": "minimize"}, sampler="grid", trials=20
    ... )
    >>> len(found.trials), found.best.values, found.arguments
    (5, {'value': 1.0}, {'n': 2})
    """

    space: SearchSpace
    objectives: Objectives
    trials: tuple[SearchTrial, ...]
    title: str = "Search"
    facts: Mapping[str, str] = field(default_factory=dict)
    final: SweepResult | None = None
    _importance: dict[str, Importance] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @property
    def finished(self) -> tuple[SearchTrial, ...]:
        """The trials that were carried out to their end."""
        return tuple(trial for trial in self.trials if trial.state == "finished")

    @property
    def eligible(self) -> tuple[SearchTrial, ...]:
        """The trials that may be chosen: those of the space as it is now, which may exclude some
        that were tried.
        """
        return tuple(
            trial for trial in self.trials if self.space.contains(trial.configuration or {})
        )

    @property
    def best(self) -> SearchTrial:
        """The finished trial of the space with the best value of the only objective.

        Raises
        ------
        ConfigError
            If there are several objectives, or no trial was finished.
        """
        found = self.objectives.best(self.eligible, self.objectives.one(None, "best"))
        if found is None:
            raise ConfigError("no trial was finished")
        return found

    @property
    def front(self) -> tuple[SearchTrial, ...]:
        """The finished trials of the space that no other one beats in every objective (the
        Pareto front).
        """
        return self.objectives.find_front(self.eligible)

    @property
    def arguments(self) -> dict[str, Any]:
        """What the values of the best trial stand for, by name of the parameter."""
        return self.space.arguments(self.best.configuration or {})

    def importance(self, objective: str | None = None) -> Importance:
        """Return how much each parameter matters for an objective, by an additive model and by
        PED-ANOVA.

        Parameters
        ----------
        objective
            The name of the objective; needed where there are several.

        Raises
        ------
        ConfigError
            If there is no such objective.
        """
        name = self.objectives.one(objective, "objective")
        if name not in self._importance:
            self._importance[name] = compute_importance(
                self.space, self.objectives, self.trials, name
            )
        return self._importance[name]

    def importance_by(self, method: OptunaMethod, objective: str | None = None) -> dict[str, float]:
        """Return the share of each parameter by a method of Optuna, greatest first.

        Parameters
        ----------
        method
            ``ped-anova``, or ``fanova``, which is warned of.
        objective
            The name of the objective; needed where there are several.

        Raises
        ------
        ConfigError
            If there is no such objective or method.
        """
        name = self.objectives.one(objective, "objective")
        return compute_optuna_importance(self.space, self.objectives, self.finished, name, method)

    def write(self, path: str | Path, *, fanova: bool = False) -> None:
        """Write everything to a JSON file, of which ``nnpipe render_report`` makes a report.

        Parameters
        ----------
        path
            The file.
        fanova
            Whether to compute the importance by fANOVA, too, which reports warn of.

        Raises
        ------
        ConfigError
            If the file cannot be written.
        """
        names = self.objectives.names if len(self.finished) > 1 else ()
        content = search_content(
            self.title,
            self.space,
            self.objectives,
            self.trials,
            {name: self.importance(name) for name in names},
            {name: self.importance_by("fanova", name) for name in names if fanova},
            self.facts,
        )
        try:
            write_text(path, json.dumps(content, allow_nan=False) + "\n")
        except OSError as error:
            raise ConfigError(f"the result of the search cannot be written: {error}") from None

    def report(self, path: str | Path, *, fanova: bool = False) -> str:
        """Write a report, and the file that it is made from beside it; return a line with their
        paths.

        Parameters
        ----------
        path
            The report, which ends in ``.html``, ``.rst`` or ``.md``; the file beside it ends in
            ``.search.json``.
        fanova
            As for :meth:`write`.

        Raises
        ------
        ConfigError
            If the ending is another one, or a file cannot be written.
        MissingDependency
            If Jinja2 is not installed.
        """
        output = Path(path)
        content = output.with_suffix(".search.json")
        report_suffix(output)
        self.write(content, fanova=fanova)
        return f"{write_search_report(read_search_file(content), output)}, from {content}"

    def to_optuna(self, storage: str | None = None, name: str = "search") -> optuna.Study:
        """Return the search as a study of Optuna, for its own analyses and for optuna-dashboard.

        Parameters
        ----------
        storage
            The URL of a database to write it to, such as ``sqlite:///study.db``; by default it is
            in memory.
        name
            The name of the study.

        Raises
        ------
        ConfigError
            If there is a study of this name already, or a trial is not of the space.
        MissingDependency
            If Optuna is not installed.
        """
        from nnpipe.searching.trial_mirror import export_study

        return export_study(self.space, self.objectives, self.trials, storage, name)

    def __str__(self) -> str:
        counts = {
            state: sum(trial.state == state for trial in self.trials)
            for state in ("finished", "pruned", "failed")
        }
        lines = [
            ", ".join(f"{count} {state}" for state, count in counts.items() if count) or "no trials"
        ]
        front = self.front
        if front:
            one = len(self.objectives.names) == 1
            lines.append("best:" if one else f"Pareto front, {len(front)} trials:")
            lines.append(format_trial_table(front[:_SHOWN], self.space, self.objectives))
        if self.final is not None:
            lines += ["", str(self.final)]
        return "\n".join(lines)
