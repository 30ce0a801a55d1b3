"""A table at the foot of a terminal that is drawn again while a search runs, below the lines of
ended trials.
"""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from types import TracebackType
from typing import TextIO

from nnpipe.core.foreign_text import sanitize_text
from nnpipe.report.formatting import clean
from nnpipe.searching.objectives import Objectives
from nnpipe.searching.trial_store import SearchTrial, TrialStore

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

    def __init__(
        self, objectives: Objectives, limit: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._objectives, self._limit, self._clock = objectives, limit, clock
        self._trials: dict[int, SearchTrial] = {}
        self._seen: dict[tuple[int, int], float] = {}  # when a lease of a trial was seen first
        self._counts: Counter[str] = Counter()
        self._begin = clock()
        self._ended_before = 0
        self._best: dict[str, SearchTrial] = {}

    def skip(self, trials: Sequence[SearchTrial]) -> None:
        """Take over the trials that there were before, which say nothing about the speed."""
        self.update_trials(trials)
        self._begin, self._ended_before = self._clock(), self._ended

    def update_trials(self, trials: Sequence[SearchTrial]) -> None:
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
                    if value is not None and (
                        best is None or self._objectives.is_better(name, value, best.values[name])
                    ):
                        self._best[name] = trial

    def lines(self) -> list[str]:
        """Return the lines: how many trials have ended, the best ones, the speed, and what runs."""
        states = ", ".join(
            f"{self._counts[state]:,} {state}"
            for state in ("finished", "pruned", "failed", "running")
            if self._counts[state]
        )
        found = [
            f"{self._ended:,} of {self._limit:,} trials" + (f": {states}" if states else ""),
            self._format_speed(),
        ]
        for name, trial in self._best.items():
            found.append(
                f"best {name} {trial.values[name]:.6g} in trial {trial.number}: "
                f"{_format_configuration(trial)}"
            )
        running = sorted(
            number for number, trial in self._trials.items() if trial.state == "running"
        )
        found += [self._format_running(self._trials[number]) for number in running[:_RUNNING]]
        if len(running) > _RUNNING:
            found.append(f"  and {len(running) - _RUNNING:,} more are running")
        return found

    @property
    def _ended(self) -> int:
        return sum(trial.ended and not trial.origin for trial in self._trials.values())

    def _format_speed(self) -> str:
        elapsed, ended = self._clock() - self._begin, self._ended - self._ended_before
        text = f"{_format_duration(elapsed)} so far"
        if ended < 1 or elapsed <= 0:
            return text
        each = elapsed / ended
        speed = f"{1 / each:.3g} trials/s" if each < 1 else f"{each:.3g} s a trial"
        return (
            f"{text}, {speed}, about {_format_duration(each * max(self._limit - self._ended, 0))} "
            f"left"
        )

    def _format_running(self, trial: SearchTrial) -> str:
        since = self._clock() - self._seen[trial.number, trial.fence]
        last = (
            f", {trial.reports[-1][1]:.5g} at step {trial.reports[-1][0]:,}"
            if trial.reports
            else ""
        )
        return (
            f"  trial {trial.number} for {_format_duration(since)}{last}: "
            f"{_format_configuration(trial)}"
        )


def _format_configuration(trial: SearchTrial) -> str:
    values = (trial.configuration or {}).items()
    text = ", ".join(
        f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in values
    )
    return text[:_CONFIGURATION] or "being chosen"


def _format_duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 60 else str(timedelta(seconds=round(seconds)))


log = logging.getLogger("nnpipe")

_EVERY = 1.0  # seconds
_UP, _CLEAR, _DIM, _PLAIN = "\x1b[{}A\r", "\x1b[J", "\x1b[2m", "\x1b[0m"


class LiveTable:
    """Draws the state of a search again and again, in a thread, until the block ends.

    It reads the trials from their store, so it also shows what other processes do.

    Parameters
    ----------
    store
        The trials.
    progress
        The state as lines.
    stream
        The terminal.
    width
        Returns the number of columns of the terminal.
    """

    def __init__(
        self,
        store: TrialStore,
        progress: SearchProgress,
        stream: TextIO,
        width: Callable[[], int] = lambda: shutil.get_terminal_size().columns,
    ) -> None:
        self._store, self._progress, self._stream, self._width = store, progress, stream, width
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._version = 0
        self._drawn = 0

    def __enter__(self) -> LiveTable:
        changes = self._store.list_changes(0)
        self._version = changes.version
        self._progress.skip(changes.trials)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()
        with self._lock:
            self._write([], [])

    def draw(self, *above: str) -> None:
        """Read what has changed, and draw the table, below some further lines."""
        with self._lock:
            changes = self._store.list_changes(self._version)
            self._version = changes.version
            self._progress.update_trials(changes.trials)
            self._write(above, self._progress.lines())

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                self.draw()
            except Exception as error:  # the search goes on without its table
                log.debug("the table cannot be drawn: %s", error)
            self._over.wait(_EVERY)

    def _write(self, above: Sequence[str], table: Sequence[str]) -> None:
        columns = max(self._width() - 1, 20)
        back = _UP.format(self._drawn) if self._drawn else ""
        lines = [
            *map(sanitize_text, above),
            *(f"{_DIM}{clean(line, columns)}{_PLAIN}" for line in table),
        ]
        self._stream.write(f"{back}{_CLEAR}" + "".join(f"{line}\n" for line in lines))
        self._stream.flush()
        self._drawn = len(table)
