"""The reader of the result file of a search, which may come from an untrusted source."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.core.distributions import student_quantile
from nnpipe.measuring.pareto_front import compute_front_shares, on_front
from nnpipe.measuring.statistics import CONFIDENCE
from nnpipe.report.charts import ChartAxis, Floats
from nnpipe.report.formatting import clean
from nnpipe.report.inputs.untrusted_values import (
    read_content,
    read_list,
    read_number,
    read_share,
    require_type,
)

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
        """Return a value as a number on the axis: of a choice, its place; NaN for one that it
        does not have.
        """
        if self.choices:
            return float(self._places.get(format_choice(value), "nan"))
        return (
            float(value)
            if isinstance(value, (int, float)) and not isinstance(value, bool)
            else float("nan")
        )

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
    """How much each parameter matters for an objective, by method; ``remark`` is what is to be
    known before.
    """

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
        return read_content(data, KIND, SCHEMA, "a search", cls._from_content)

    @classmethod
    def _from_content(cls, data: Mapping[str, Any]) -> SearchFile:
        objectives = _read_objectives(data["objectives"])
        axes = tuple(
            _read_axis(*item) for item in _read_mapping(data["parameters"], "'parameters'").items()
        )
        importance = _read_mapping(data.get("importance", {}), "'importance'")
        return cls(
            clean(data["title"], 200),
            objectives,
            axes,
            tuple(
                sorted(
                    (_read_trial(each) for each in read_list(data, "trials")),
                    key=lambda trial: trial.number,
                )
            ),
            {
                name: _read_importance(each)
                for name, each in importance.items()
                if name in objectives
            },
            tuple(
                (clean(n, 60), clean(t, 600))
                for n, t in _read_mapping(data.get("facts", {}), "'facts'").items()
            ),
        )

    def select_state(self, state: str) -> tuple[TrialEntry, ...]:
        """Return the trials of a state."""
        return tuple(trial for trial in self.trials if trial.state == state)

    def losses(self, trials: tuple[TrialEntry, ...]) -> Floats:
        """Return the values of all objectives, those to maximise with the other sign, (trials,
        objectives).
        """
        signs = [-1.0 if way == "maximize" else 1.0 for way in self.objectives.values()]
        found = [[trial.values[name] for name in self.objectives] for trial in trials]
        return np.array(found, np.float64).reshape(len(trials), len(signs)) * signs

    def select_finished(self) -> tuple[TrialEntry, ...]:
        """Return the trials that have a value of every objective."""
        return tuple(
            t for t in self.select_state("finished") if self.objectives.keys() <= t.values.keys()
        )


def format_choice(value: Any) -> str:
    """Return the text of a choice; texts that look like other values stay different from them."""
    if isinstance(value, str) and value not in ("true", "false", "null"):
        return clean(value, _LONGEST)
    return (
        {True: "true", False: "false", None: "null"}[value]
        if isinstance(value, (bool, type(None)))
        else repr(value)
    )


def _read_objectives(data: Any) -> dict[str, str]:
    found = {
        name: require_type(str, way, "a direction")
        for name, way in _read_mapping(data, "'objectives'").items()
    }
    if not found or not set(found.values()) <= {"minimize", "maximize"}:
        raise ValueError("an objective is to minimize or to maximize")
    return found


def _read_axis(name: str, data: Any) -> SearchAxis:
    data = require_type(dict, data, "a parameter")
    told = clean(data.get("told", ""), 300)
    if "choices" in data:
        choices = read_list(data, "choices")
        if not 1 <= len(choices) <= _MOST_CHOICES:
            raise ValueError(f"{name} has {len(choices)} choices")
        return SearchAxis(name, told, choices=tuple(format_choice(each) for each in choices))
    low, high, log = (
        read_number(data["low"]),
        read_number(data["high"]),
        require_type(bool, data["log"], "'log'"),
    )
    if low > high or (log and low <= 0):
        raise ValueError(f"{name} has no range")
    return SearchAxis(name, told, low, high, log)


def _read_trial(data: Any) -> TrialEntry:
    data = require_type(dict, data, "an entry of 'trials'")
    state = require_type(str, data["state"], "'state'")
    if state not in STATES:
        raise ValueError(f"there is no state {clean(state, 40)!r}")
    reports = [
        require_type(list, each, "a report")
        for each in require_type(list, data.get("reports", []), "'reports'")
    ]
    intervals = _read_mapping(data.get("intervals", {}), "'intervals'")
    return TrialEntry(
        int(read_number(data["number"])),
        state,
        _read_mapping(data.get("configuration") or {}, "'configuration'"),
        {
            name: read_number(value)
            for name, value in _read_mapping(data.get("values", {}), "'values'").items()
        },
        {name: _read_interval(ends) for name, ends in intervals.items()},
        tuple((int(read_number(step)), read_number(value)) for step, value in reports),
        None if data.get("seconds") is None else read_number(data["seconds"]),
        clean(data.get("message", ""), 600),
        clean(data.get("origin", ""), 120),
    )


def _read_interval(data: Any) -> tuple[float, float]:
    low, high = require_type(list, data, "an interval")
    return read_number(low), read_number(high)


def _read_importance(data: Any) -> ImportanceEntry:
    data = require_type(dict, data, "an importance")
    additive, ped_anova, fanova = (
        tuple(_read_importance_row(each) for each in read_list(data, name))
        for name in ("additive", "ped_anova", "fanova")
    )
    trials, remark = int(read_number(data["trials"])), clean(data.get("remark", ""), 300)
    return ImportanceEntry(additive, ped_anova, fanova, trials, remark)


def _read_importance_row(data: Any) -> ImportanceRow:
    data = require_type(dict, data, "a share")
    ends = (read_share(data[name]) for name in ("share", "low", "high"))
    return ImportanceRow(clean(data["name"], _LONGEST), *ends)


def _read_mapping(data: Any, what: str) -> dict[str, Any]:
    found = require_type(dict, data, what)
    if len(found) > _MOST_NAMES:
        raise ValueError(f"{what} has too many entries")
    return {clean(name, _LONGEST): value for name, value in found.items()}


BEST = 0.1
"""The share of trials that pictures show as the best ones."""

_SHOWN = 1500  # trials in a picture
# greatest number of draws, and of comparisons of two trials in all draws
_DRAWS, _WORK = 2000, 400_000_000
_DECADES = 100.0  # from this ratio on, an axis of values is logarithmic
_FAR = 3.0  # how many times the range of the better nine tenths an axis of values reaches


@dataclass(frozen=True)
class SearchView:
    """A search as pages show it."""

    found: SearchFile

    @cached_property
    def finished(self) -> tuple[TrialEntry, ...]:
        """The finished trials, by number."""
        return self.found.select_finished()

    @cached_property
    def shown(self) -> tuple[TrialEntry, ...]:
        """The finished trials in pictures: all, or the better ones and evenly many of all times."""
        if len(self.finished) <= _SHOWN:
            return self.finished
        losses = self.found.losses(self.finished)
        chosen = set(np.flatnonzero(on_front(losses)).tolist()[: _SHOWN // 4])
        for column in losses.T:
            chosen |= set(
                np.argsort(column, kind="stable")[: _SHOWN // (4 * losses.shape[1])].tolist()
            )
        rest = np.array([place for place in range(len(self.finished)) if place not in chosen])
        chosen |= set(
            rest[np.linspace(0, len(rest) - 1, _SHOWN - len(chosen)).astype(np.int64)].tolist()
        )
        return tuple(self.finished[place] for place in sorted(chosen))

    @property
    def told_shown(self) -> str:
        """A sentence about what pictures leave out; empty if they show all finished trials."""
        if len(self.shown) == len(self.finished):
            return ""
        return (
            f" Shown are {len(self.shown):,} of {len(self.finished):,} trials, among them the best "
            f"ones."
        )

    def values(self, objective: str, trials: Sequence[TrialEntry]) -> Floats:
        """Return the values of an objective."""
        return np.array([trial.values[objective] for trial in trials], np.float64)

    def get_coordinates(self, axis: SearchAxis, trials: Sequence[TrialEntry]) -> Floats:
        """Return the values of a parameter as numbers; NaN where it does not exist."""
        missing = float("nan")
        return np.array(
            [
                axis.place(t.configuration[axis.name]) if axis.name in t.configuration else missing
                for t in trials
            ]
        )

    def axes(self, objective: str) -> tuple[SearchAxis, ...]:
        """Return the parameters that vary, the most important for an objective first."""
        known = self.found.importance.get(objective)
        rows = () if known is None else known.additive or known.ped_anova
        order = {row.name: place for place, row in enumerate(rows)}
        free = [axis for axis in self.found.axes if len(axis.choices) > 1 or axis.low < axis.high]
        return tuple(sorted(free, key=lambda axis: order.get(axis.name, len(order))))

    def best(self, objective: str, trials: Sequence[TrialEntry]) -> npt.NDArray[np.bool_]:
        """Return which of some finished trials are among the best tenth of all in an objective."""
        sign = -1.0 if self.found.objectives[objective] == "maximize" else 1.0
        of_all = np.sort(sign * self.values(objective, self.finished))
        if not len(of_all):
            return np.zeros(len(trials), np.bool_)
        limit = of_all[max(int(np.ceil(BEST * len(of_all))) - 1, 0)]
        return np.asarray(sign * self.values(objective, trials) <= limit)

    def create_value_axis(self, objective: str) -> ChartAxis:
        """Return an axis for the values of an objective, on which few bad ones do not squeeze
        all others.
        """
        values = np.sort(self.values(objective, self.finished))
        if not len(values):
            return ChartAxis(objective, 0.0, 1.0)
        low, high = float(values[0]), float(values[-1])
        if low > 0 and high / low > _DECADES:
            return ChartAxis(objective, low, high, log=True)
        down = self.found.objectives[objective] == "minimize"
        if down:
            high = min(high, low + _FAR * float(np.quantile(values, 0.9) - low) or high)
        else:
            low = max(low, high - _FAR * float(high - np.quantile(values, 0.1)) or low)
        return ChartAxis(objective, low, high)

    def count_beyond_axis(self, objective: str) -> int:
        """Return how many finished trials lie beyond the axis of an objective's values."""
        axis, values = self.create_value_axis(objective), self.values(objective, self.finished)
        return int(np.sum((values < axis.low) | (values > axis.high)))

    @cached_property
    def points(self) -> tuple[TrialEntry, ...]:
        """The finished trials, those of the same configuration as one, with their means and
        intervals.
        """
        groups: dict[str, list[TrialEntry]] = defaultdict(list)
        for trial in self.finished:
            groups[json.dumps(dict(trial.configuration), sort_keys=True, default=str)].append(trial)
        return tuple(
            group[0] if len(group) == 1 else self._merge_repeats(group) for group in groups.values()
        )

    def _merge_repeats(self, group: Sequence[TrialEntry]) -> TrialEntry:
        count = len(group)
        means, intervals = {}, {}
        for name in self.found.objectives:
            values = self.values(name, group)
            half = (
                student_quantile((1 + CONFIDENCE) / 2, count - 1)
                * float(np.std(values, ddof=1))
                / count**0.5
            )
            means[name] = float(values.mean())
            intervals[name] = (means[name] - half, means[name] + half)
        return replace(group[0], values=means, intervals=intervals)

    @cached_property
    def front(self) -> tuple[tuple[TrialEntry, float], ...]:
        """The trials that may be on the Pareto front, each with the share of draws in which it is,
        the surest first.

        Values are drawn from normal distributions with the widths of their intervals; without
        intervals, all shares are 0 or 1.
        """
        trials = self.points
        if not trials:
            return ()
        losses = self.found.losses(trials)
        spreads = np.array(
            [
                [self._compute_deviation(trial, name) for name in self.found.objectives]
                for trial in trials
            ]
        )
        # Whoever is beaten by two of its standard deviations and two of the other's is hardly ever
        # on the front.
        able = on_front(losses) | _is_possibly_optimal(losses, spreads)
        losses, spreads = losses[able], spreads[able]
        chosen = [trial for trial, may in zip(trials, able.tolist(), strict=True) if may]
        if not spreads.any():
            shares = np.ones(len(chosen))
        else:
            draws = min(_DRAWS, max(100, _WORK // len(chosen) ** 2))
            random = np.random.default_rng(0)
            shares = compute_front_shares(
                losses + spreads * random.standard_normal((draws, *losses.shape))
            )
        order = np.lexsort((losses[:, 0], -shares))
        return tuple((chosen[place], float(shares[place])) for place in order.tolist())

    def _compute_deviation(self, trial: TrialEntry, objective: str) -> float:
        low, high = trial.intervals.get(objective, (0.0, 0.0))
        return max(high - low, 0.0) / (2 * 1.959964)


def _is_possibly_optimal(losses: Floats, spreads: Floats) -> npt.NDArray[np.bool_]:
    """Return which points are not beaten in every objective by another one's pessimistic values."""
    if not spreads.any():
        return np.zeros(len(losses), np.bool_)
    both = np.concatenate([losses - 2 * spreads, losses + 2 * spreads])
    low, high = both[: len(losses)], both[len(losses) :]
    best = high[on_front(high)]
    beaten = np.zeros(len(losses), np.bool_)
    for row in best:
        beaten |= (row < low).all(axis=1)
    return ~beaten


def create_parameter_axis(axis: SearchAxis) -> ChartAxis:
    """Return the axis of a parameter."""
    if axis.choices:
        return ChartAxis(axis.name, 0.0, len(axis.choices) - 1.0, names=axis.choices)
    return ChartAxis(axis.name, axis.low, axis.high, log=axis.log)


def jitter_choices(axis: SearchAxis, places: Floats, numbers: Sequence[int]) -> Floats:
    """Return places on an axis, those of choices moved a little apart by the trials' numbers."""
    if not axis.choices:
        return places
    # Multiples of the golden ratio are spread evenly.
    return np.asarray(
        places + 0.56 * ((np.array(numbers, np.float64) + 1) * 0.6180339887498949 % 1.0 - 0.5)
    )
