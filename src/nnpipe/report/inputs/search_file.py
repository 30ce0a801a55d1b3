"""The reader of the result file of a search, which may come from an untrusted source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from nnpipe.report.charts import Floats
from nnpipe.report.formatting import clean
from nnpipe.report.inputs.checked_values import listed, number_of, of_type, read_content, share_of

SCHEMA, KIND = 1, "nnpipe search"
STATES = ("finished", "pruned", "failed", "running", "waiting")
_MOST_NAMES, _MOST_CHOICES = 2000, 10_000
_LONGEST = 120


@dataclass(frozen=True)
class SearchAxis:
    """A parameter of a search: numbers between two bounds, or choices.

    Parameters
    ----------
    name, told
        Its name, and how it was declared.
    low, high, log
        The bounds of a number, and whether ratios matter; without a meaning for choices.
    choices
        The texts of all values; empty for numbers.
    """

    name: str
    told: str
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    choices: tuple[str, ...] = ()

    def place(self, value: Any) -> float:
        """Return a value as a number on the axis: of a choice, its place; NaN for one that it does not have."""
        if self.choices:
            return float(self._places.get(choice_text(value), "nan"))
        return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else float("nan")

    @cached_property
    def _places(self) -> dict[str, int]:
        return {text: place for place, text in enumerate(self.choices)}


@dataclass(frozen=True)
class TrialEntry:
    """A trial; ``intervals`` are those of its values, where they were measured with uncertainty."""

    number: int
    state: str
    configuration: Mapping[str, Any]
    values: Mapping[str, float]
    intervals: Mapping[str, tuple[float, float]]
    reports: tuple[tuple[int, float], ...]
    seconds: float | None
    message: str
    origin: str


@dataclass(frozen=True)
class ImportanceRow:
    """The share of a parameter with its interval, by one method."""

    name: str
    share: float
    low: float
    high: float


@dataclass(frozen=True)
class ImportanceEntry:
    """How much each parameter matters for an objective, by method; ``remark`` is what is to be known before."""

    additive: tuple[ImportanceRow, ...]
    ped_anova: tuple[ImportanceRow, ...]
    fanova: tuple[ImportanceRow, ...]
    trials: int
    remark: str


@dataclass(frozen=True, eq=False)
class SearchFile:
    """The result of a search.

    Parameters
    ----------
    title
        Its title.
    objectives
        ``minimize`` or ``maximize``, by name.
    axes
        The parameters in order.
    trials
        All trials by number.
    importance
        How much the parameters matter, by objective.
    facts
        What was searched and how, as pairs of a name and a text.
    """

    title: str
    objectives: Mapping[str, str]
    axes: tuple[SearchAxis, ...]
    trials: tuple[TrialEntry, ...]
    importance: Mapping[str, ImportanceEntry]
    facts: tuple[tuple[str, str], ...]

    @classmethod
    def from_json(cls, data: Any) -> SearchFile:
        """Return the result in the content of a file.

        Raises
        ------
        ArtifactError
            If the content is not a valid result of a search.
        """
        return read_content(data, KIND, SCHEMA, "a search", cls._of_content)

    @classmethod
    def _of_content(cls, data: Mapping[str, Any]) -> SearchFile:
        objectives = _objectives(data["objectives"])
        axes = tuple(_axis(*item) for item in _named(data["parameters"], "'parameters'").items())
        importance = _named(data.get("importance", {}), "'importance'")
        return cls(
            clean(data["title"], 200), objectives, axes,
            tuple(sorted((_trial(each) for each in listed(data, "trials")), key=lambda trial: trial.number)),
            {name: _importance(each) for name, each in importance.items() if name in objectives},
            tuple((clean(n, 60), clean(t, 600)) for n, t in _named(data.get("facts", {}), "'facts'").items()),
        )  # fmt: skip

    def of_state(self, state: str) -> tuple[TrialEntry, ...]:
        """Return the trials of a state."""
        return tuple(trial for trial in self.trials if trial.state == state)

    def losses(self, trials: tuple[TrialEntry, ...]) -> Floats:
        """Return the values of all objectives, those to maximise with the other sign, (trials, objectives)."""
        signs = [-1.0 if way == "maximize" else 1.0 for way in self.objectives.values()]
        found = [[trial.values[name] for name in self.objectives] for trial in trials]
        return np.array(found, np.float64).reshape(len(trials), len(signs)) * signs

    def finished(self) -> tuple[TrialEntry, ...]:
        """Return the trials that have a value of every objective."""
        return tuple(t for t in self.of_state("finished") if self.objectives.keys() <= t.values.keys())


def choice_text(value: Any) -> str:
    """Return the text of a choice; texts that look like other values stay different from them."""
    if isinstance(value, str) and value not in ("true", "false", "null"):
        return clean(value, _LONGEST)
    return {True: "true", False: "false", None: "null"}[value] if isinstance(value, (bool, type(None))) else repr(value)


def _objectives(data: Any) -> dict[str, str]:
    found = {name: of_type(str, way, "a direction") for name, way in _named(data, "'objectives'").items()}
    if not found or not set(found.values()) <= {"minimize", "maximize"}:
        raise ValueError("an objective is to minimize or to maximize")
    return found


def _axis(name: str, data: Any) -> SearchAxis:
    data = of_type(dict, data, "a parameter")
    told = clean(data.get("told", ""), 300)
    if "choices" in data:
        choices = listed(data, "choices")
        if not 1 <= len(choices) <= _MOST_CHOICES:
            raise ValueError(f"{name} has {len(choices)} choices")
        return SearchAxis(name, told, choices=tuple(choice_text(each) for each in choices))
    low, high, log = number_of(data["low"]), number_of(data["high"]), of_type(bool, data["log"], "'log'")
    if low > high or (log and low <= 0):
        raise ValueError(f"{name} has no range")
    return SearchAxis(name, told, low, high, log)


def _trial(data: Any) -> TrialEntry:
    data = of_type(dict, data, "an entry of 'trials'")
    state = of_type(str, data["state"], "'state'")
    if state not in STATES:
        raise ValueError(f"there is no state {clean(state, 40)!r}")
    reports = [of_type(list, each, "a report") for each in of_type(list, data.get("reports", []), "'reports'")]
    intervals = _named(data.get("intervals", {}), "'intervals'")
    return TrialEntry(
        int(number_of(data["number"])), state,
        _named(data.get("configuration") or {}, "'configuration'"),
        {name: number_of(value) for name, value in _named(data.get("values", {}), "'values'").items()},
        {name: _pair(ends) for name, ends in intervals.items()},
        tuple((int(number_of(step)), number_of(value)) for step, value in reports),
        None if data.get("seconds") is None else number_of(data["seconds"]),
        clean(data.get("message", ""), 600), clean(data.get("origin", ""), 120),
    )  # fmt: skip


def _pair(data: Any) -> tuple[float, float]:
    low, high = of_type(list, data, "an interval")
    return number_of(low), number_of(high)


def _importance(data: Any) -> ImportanceEntry:
    data = of_type(dict, data, "an importance")
    additive, ped_anova, fanova = (
        tuple(_row(each) for each in listed(data, name)) for name in ("additive", "ped_anova", "fanova")
    )
    trials, remark = int(number_of(data["trials"])), clean(data.get("remark", ""), 300)
    return ImportanceEntry(additive, ped_anova, fanova, trials, remark)


def _row(data: Any) -> ImportanceRow:
    data = of_type(dict, data, "a share")
    ends = (share_of(data[name]) for name in ("share", "low", "high"))
    return ImportanceRow(clean(data["name"], _LONGEST), *ends)


def _named(data: Any, what: str) -> dict[str, Any]:
    found = of_type(dict, data, what)
    if len(found) > _MOST_NAMES:
        raise ValueError(f"{what} has too many entries")
    return {clean(name, _LONGEST): value for name, value in found.items()}
