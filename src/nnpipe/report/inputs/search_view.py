"""What pages on a search show: which trials are good, which parameters come first, and where values lie on axes."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from nnpipe.core.distributions import student_quantile
from nnpipe.measuring.pareto_front import front_shares, on_front
from nnpipe.measuring.statistics import CONFIDENCE
from nnpipe.report.charts import Floats
from nnpipe.report.inputs.search_file import SearchAxis, SearchFile, TrialEntry
from nnpipe.report.point_charts import ChartAxis

BEST = 0.1
"""The share of trials that pictures show as the best ones."""

_SHOWN = 1500  # trials in a picture
_DRAWS, _WORK = 2000, 400_000_000  # greatest number of draws, and of comparisons of two trials in all draws
_DECADES = 100.0  # from this ratio on, an axis of values is logarithmic
_FAR = 3.0  # how many times the range of the better nine tenths an axis of values reaches


@dataclass(frozen=True)
class SearchView:
    """A search as pages show it."""

    found: SearchFile

    @cached_property
    def finished(self) -> tuple[TrialEntry, ...]:
        """The finished trials, by number."""
        return self.found.finished()

    @cached_property
    def shown(self) -> tuple[TrialEntry, ...]:
        """The finished trials in pictures: all, or the better ones and evenly many of all times."""
        if len(self.finished) <= _SHOWN:
            return self.finished
        losses = self.found.losses(self.finished)
        chosen = set(np.flatnonzero(on_front(losses)).tolist()[: _SHOWN // 4])
        for column in losses.T:
            chosen |= set(np.argsort(column, kind="stable")[: _SHOWN // (4 * losses.shape[1])].tolist())
        rest = np.array([place for place in range(len(self.finished)) if place not in chosen])
        chosen |= set(rest[np.linspace(0, len(rest) - 1, _SHOWN - len(chosen)).astype(np.int64)].tolist())
        return tuple(self.finished[place] for place in sorted(chosen))

    @property
    def told_shown(self) -> str:
        """A sentence about what pictures leave out; empty if they show all finished trials."""
        if len(self.shown) == len(self.finished):
            return ""
        return f" Shown are {len(self.shown):,} of {len(self.finished):,} trials, among them the best ones."

    def values(self, objective: str, trials: Sequence[TrialEntry]) -> Floats:
        """Return the values of an objective."""
        return np.array([trial.values[objective] for trial in trials], np.float64)

    def places(self, axis: SearchAxis, trials: Sequence[TrialEntry]) -> Floats:
        """Return the values of a parameter as numbers; NaN where it does not exist."""
        missing = float("nan")
        return np.array(
            [axis.place(t.configuration[axis.name]) if axis.name in t.configuration else missing for t in trials]
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

    def value_axis(self, objective: str) -> ChartAxis:
        """Return an axis for the values of an objective, on which few bad ones do not squeeze all others."""
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

    def beyond(self, objective: str) -> int:
        """Return how many finished trials lie beyond the axis of an objective's values."""
        axis, values = self.value_axis(objective), self.values(objective, self.finished)
        return int(np.sum((values < axis.low) | (values > axis.high)))

    @cached_property
    def points(self) -> tuple[TrialEntry, ...]:
        """The finished trials, those of the same configuration as one, with their means and intervals."""
        groups: dict[str, list[TrialEntry]] = defaultdict(list)
        for trial in self.finished:
            groups[json.dumps(dict(trial.configuration), sort_keys=True, default=str)].append(trial)
        return tuple(group[0] if len(group) == 1 else self._mean(group) for group in groups.values())

    def _mean(self, group: Sequence[TrialEntry]) -> TrialEntry:
        count = len(group)
        means, intervals = {}, {}
        for name in self.found.objectives:
            values = self.values(name, group)
            half = student_quantile((1 + CONFIDENCE) / 2, count - 1) * float(np.std(values, ddof=1)) / count**0.5
            means[name] = float(values.mean())
            intervals[name] = (means[name] - half, means[name] + half)
        return replace(group[0], values=means, intervals=intervals)

    @cached_property
    def front(self) -> tuple[tuple[TrialEntry, float], ...]:
        """The trials that may be on the Pareto front, each with the share of draws in which it is, the surest first.

        Values are drawn from normal distributions with the widths of their intervals; without intervals, all shares
        are 0 or 1.
        """
        trials = self.points
        if not trials:
            return ()
        losses = self.found.losses(trials)
        spreads = np.array([[self._spread(trial, name) for name in self.found.objectives] for trial in trials])
        # Whoever is beaten by two of its standard deviations and two of the other's is hardly ever on the front.
        able = on_front(losses) | _may_win(losses, spreads)
        losses, spreads = losses[able], spreads[able]
        chosen = [trial for trial, may in zip(trials, able.tolist(), strict=True) if may]
        if not spreads.any():
            shares = np.ones(len(chosen))
        else:
            draws = min(_DRAWS, max(100, _WORK // len(chosen) ** 2))
            random = np.random.default_rng(0)
            shares = front_shares(losses + spreads * random.standard_normal((draws, *losses.shape)))
        order = np.lexsort((losses[:, 0], -shares))
        return tuple((chosen[place], float(shares[place])) for place in order.tolist())

    def _spread(self, trial: TrialEntry, objective: str) -> float:
        low, high = trial.intervals.get(objective, (0.0, 0.0))
        return max(high - low, 0.0) / (2 * 1.959964)


def _may_win(losses: Floats, spreads: Floats) -> npt.NDArray[np.bool_]:
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


def chart_axis(axis: SearchAxis) -> ChartAxis:
    """Return the axis of a parameter."""
    if axis.choices:
        return ChartAxis(axis.name, 0.0, len(axis.choices) - 1.0, names=axis.choices)
    return ChartAxis(axis.name, axis.low, axis.high, log=axis.log)


def spread_out(axis: SearchAxis, places: Floats, numbers: Sequence[int]) -> Floats:
    """Return places on an axis, those of choices moved a little apart by the trials' numbers."""
    if not axis.choices:
        return places
    # Multiples of the golden ratio are spread evenly.
    return np.asarray(places + 0.56 * ((np.array(numbers, np.float64) + 1) * 0.6180339887498949 % 1.0 - 0.5))
