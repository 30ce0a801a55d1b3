"""How far a search is: what has ended, what runs, the best so far, its speed and the time left."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta

from nnpipe.searching.objectives import Objectives
from nnpipe.searching.trial import SearchTrial

_RUNNING = 8  # trials that are shown
_CONFIGURATION = 200  # letters


class SearchProgress:
    """The state of a search as lines of text, from the changes of its trials.

    Parameters
    ----------
    objectives
        The objectives with their directions.
    limit
        The greatest number of trials, without those that were taken over.
    clock
        Returns the time in seconds.
    """

    def __init__(self, objectives: Objectives, limit: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._objectives, self._limit, self._clock = objectives, limit, clock
        self._trials: dict[int, SearchTrial] = {}
        self._seen: dict[tuple[int, int], float] = {}  # when a lease of a trial was seen first
        self._counts: Counter[str] = Counter()
        self._begin = clock()
        self._ended_before = 0
        self._best: dict[str, SearchTrial] = {}

    def skip(self, trials: Sequence[SearchTrial]) -> None:
        """Take over the trials that there were before, which say nothing about the speed."""
        self.learn(trials)
        self._begin, self._ended_before = self._clock(), self._ended

    def learn(self, trials: Sequence[SearchTrial]) -> None:
        """Take over trials that have changed."""
        for trial in trials:
            before = self._trials.get(trial.number)
            if before is not None:
                self._counts[before.state] -= 1
            self._trials[trial.number] = trial
            self._counts[trial.state] += 1
            if trial.state == "running":
                self._seen.setdefault((trial.number, trial.fence), self._clock())
            if trial.state == "finished":
                for name in self._objectives.names:
                    best = self._best.get(name)
                    value = trial.values.get(name)
                    if value is not None and (best is None or self._objectives.better(name, value, best.values[name])):
                        self._best[name] = trial

    def lines(self) -> list[str]:
        """Return the lines: how many trials have ended, the best ones, the speed, and what runs."""
        states = ", ".join(
            f"{self._counts[state]:,} {state}" for state in ("finished", "pruned", "failed", "running")
            if self._counts[state]
        )  # fmt: skip
        found = [f"{self._ended:,} of {self._limit:,} trials" + (f": {states}" if states else ""), self._speed()]
        for name, trial in self._best.items():
            found.append(f"best {name} {trial.values[name]:.6g} in trial {trial.number}: {_told(trial)}")
        running = sorted(number for number, trial in self._trials.items() if trial.state == "running")
        found += [self._running(self._trials[number]) for number in running[:_RUNNING]]
        if len(running) > _RUNNING:
            found.append(f"  and {len(running) - _RUNNING:,} more are running")
        return found

    @property
    def _ended(self) -> int:
        return sum(trial.ended and not trial.origin for trial in self._trials.values())

    def _speed(self) -> str:
        elapsed, ended = self._clock() - self._begin, self._ended - self._ended_before
        text = f"{_duration(elapsed)} so far"
        if ended < 1 or elapsed <= 0:
            return text
        each = elapsed / ended
        speed = f"{1 / each:.3g} trials/s" if each < 1 else f"{each:.3g} s a trial"
        return f"{text}, {speed}, about {_duration(each * max(self._limit - self._ended, 0))} left"

    def _running(self, trial: SearchTrial) -> str:
        since = self._clock() - self._seen[trial.number, trial.fence]
        last = f", {trial.reports[-1][1]:.5g} at step {trial.reports[-1][0]:,}" if trial.reports else ""
        return f"  trial {trial.number} for {_duration(since)}{last}: {_told(trial)}"


def _told(trial: SearchTrial) -> str:
    values = (trial.configuration or {}).items()
    text = ", ".join(f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}" for name, value in values)
    return text[:_CONFIGURATION] or "being chosen"


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 60 else str(timedelta(seconds=round(seconds)))
