"""Trials as lines of a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nnpipe.searching.objectives import Objectives
from nnpipe.searching.space import SearchSpace
from nnpipe.searching.trial import SearchTrial

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
        self._widths = {name: min(max(len(name), 11), _WIDEST) for name in (*objectives.measured, *self._names)}
        self._best: SearchTrial | None = None

    @property
    def head(self) -> str:
        """The line above all others."""
        names = [f"{_cut(name, self._widths[name]):>{self._widths[name]}}" for name in self._widths]
        return " ".join([f"{'trial':>6} ", *names, f"{'seconds':>8}"])

    def line(self, trial: SearchTrial) -> str:
        """Return the line of a trial; that of a best one so far has a star."""
        star = "*" if self._is_best(trial) else " "
        cells = [self._cell(name, trial.values.get(name, "")) for name in self._objectives.measured]
        cells += [self._cell(name, (trial.configuration or {}).get(name, "")) for name in self._names]
        seconds = "" if trial.seconds is None else f"{trial.seconds:.3g}"
        ends = {"failed": f"  failed: {_cut(trial.message, _LONGEST_MESSAGE)}", "pruned": "  pruned"}
        return " ".join([f"{trial.number:>6}{star}", *cells, f"{seconds:>8}"]) + ends.get(trial.state, "")

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
        if best is not None and not self._objectives.better(name, trial.values[name], best.values[name]):
            return False
        self._best = trial
        return True

    def _cell(self, name: str, value: Any) -> str:
        text = f"{value:.5g}" if isinstance(value, float) else str(value)
        return f"{_cut(text, self._widths[name]):>{self._widths[name]}}"


def trial_table(trials: Sequence[SearchTrial], space: SearchSpace, objectives: Objectives) -> str:
    """Return the lines of trials below their head."""
    table = TrialTable(space, objectives)
    return "\n".join([table.head, *(table.line(each).replace("*", " ", 1) for each in trials)])


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."
