"""The pace of use: inference at the rhythm of an application, which waits between calls.

In a tight loop caches, branch predictors and the processor's clock stay warm.
An application that looks at a camera thirty times a second finds them cold at
each call.  Calls at a pace are timed as those of the tight loop are, by stamps
around the inference alone; only what happens before differs.

So that the difference can be explained, and not only seen, a quarter of the
calls, drawn at random, come after a wait in which the process stays awake and
looks at the clock.  What such a call takes longer than one of the tight loop
has nothing to do with sleep; what a call after sleep takes longer than that has.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError
from nnpipe.core.progress import Progress, silent
from nnpipe.core.session import InferenceSession
from nnpipe.core.tensors import Batch
from nnpipe.measuring.loop import Clock, Window
from nnpipe.measuring.series import Series

_UNITS = {"us": 1e3, "µs": 1e3, "μs": 1e3, "ms": 1e6, "s": 1e9, "min": 60e9}
_RATES = {"/s": 1e9, "hz": 1e9, "fps": 1e9, "/min": 60e9}
_PACE = re.compile(r"\s*(\d{1,12}(?:\.\d{1,9})?)\s*([^\s\d.]{1,4})\s*")
# Whoever asks to sleep for less than this is woken too late to keep the pace.
_SHORTEST_NS, _LONGEST_NS = 200_000, 3_600_000_000_000

_AWAKE_SHARE = 0.25
_CALLS, _LEAST_CALLS, _MOST_CALLS = 266, 12, 1_000_000
_SHORTEST_S, _LONGEST_S = 1.0, 10.0
_GO_NS = 1_000_000_000  # so that progress shows


@dataclass(frozen=True)
class Pace:
    """How often an application asks.

    Parameters
    ----------
    period_ns
        From the beginning of one call to the beginning of the next, in nanoseconds.

    Raises
    ------
    ConfigError
        If it is shorter than 200 µs or longer than an hour.
    """

    period_ns: int

    def __post_init__(self) -> None:
        if not _SHORTEST_NS <= self.period_ns <= _LONGEST_NS:
            raise ConfigError(f"a pace is one call in 200us at the most often and in 60min at the least, not in {self}")

    @classmethod
    def parse(cls, text: str) -> Pace:
        """Read ``"33ms"``, ``"0.5 s"``, ``"30/s"``, ``"30fps"`` or ``"2/min"``.

        Raises
        ------
        ConfigError
            If it is neither a time nor a rate, or out of bounds.
        """
        found = _PACE.fullmatch(text)
        number, unit = (float(found[1]), found[2]) if found else (0.0, "")
        if unit in _UNITS:
            return cls(round(number * _UNITS[unit]))
        if unit.lower() in _RATES and number > 0:
            return cls(round(_RATES[unit.lower()] / number))
        raise ConfigError(
            f"{text[:40]!r} is no pace: give the time from call to call, such as 33ms, or a rate, as 30/s"
        )

    def __str__(self) -> str:
        for unit, length in (("min", 60e9), ("s", 1e9), ("ms", 1e6)):
            if self.period_ns >= length:
                return f"{self.period_ns / length:.4g}{unit}"
        return f"{self.period_ns / 1e3:.4g}us"

    def calls(self, seconds: float | None) -> int:
        """Return how many calls fill ``seconds``; if left out, some 200 after sleep, or what 10 s hold."""
        if seconds is None:
            seconds = min(max(_CALLS * self.period_ns / 1e9, _SHORTEST_S), _LONGEST_S)
        return min(max(int(seconds * 1e9 / self.period_ns), _LEAST_CALLS), _MOST_CALLS)


@dataclass(frozen=True)
class Paced:
    """What calls at a pace gave.

    Parameters
    ----------
    series
        One row a call: ``scheduled_ns``, when its turn was; ``start_ns``; ``latency_ns``; ``samples``; and
        ``asleep``, 1 where the process slept before and 0 where it stayed awake.  Times count from the start.
    missed
        How many turns passed while the call before was still running.
    origin_ns
        The start, on the clock.
    """

    series: Series
    missed: int
    origin_ns: int


def run_paced(
    session: InferenceSession,
    batches: Sequence[Batch],
    pace: Pace,
    *,
    samples: Sequence[int] | None = None,
    calls: int = 0,
    seed: int = 0,
    progress: Progress = silent,
    clock: Clock = time.perf_counter_ns,
    sleep: Callable[[float], object] = time.sleep,
) -> Paced:
    """Run batches, round and round, one at each turn of a pace.

    Parameters
    ----------
    session
        The loaded model, here or on a target; not closed here.
    batches
        Inputs as ``session.io`` says, at least one; all are in memory.
    pace
        How often.
    samples
        How many samples of each batch count; all if left out.
    calls
        How many calls; as many as :meth:`Pace.calls` says if 0.
    seed
        Of the choice of the calls before which the process stays awake.
    progress
        Told about every second.
    clock, sleep
        What to stamp with, in nanoseconds, and what to wait with, in seconds.

    Raises
    ------
    ConfigError
        If there is no batch.
    SpecMismatch
        If a batch is not what the session takes; nothing has been run then.
    """
    check_call(run_paced, locals())
    calls = calls or pace.calls(None)
    asleep = np.random.default_rng(seed).random(calls) >= _AWAKE_SHARE
    asleep[0] = True
    rhythm = _Rhythm(pace.period_ns, asleep, sleep)
    each = max(1, _GO_NS // pace.period_ns)
    with Window(session, clock, rhythm, settling=False) as window:
        sizes = window.check(batches)
        counts = sizes if samples is None else samples

        def goes() -> Iterator[int]:
            for first in range(0, calls, each):
                numbers = [number % len(batches) for number in range(first, min(first + each, calls))]
                window.go([batches[n] for n in numbers], [counts[n] for n in numbers], keep=False)
                yield first

        for _ in progress(goes(), f"pace: one call in {pace}", -(-calls // each)):
            pass
        columns = dict(window.series().columns)
        columns["scheduled_ns"] = np.array(rhythm.due_ns, np.int64) - window.origin_ns
        columns["asleep"] = asleep.astype(np.int64)
        return Paced(Series(columns), rhythm.missed, window.origin_ns)


class _Rhythm:
    """The loop of a go: waits for each call's turn, and times the run alone."""

    def __init__(self, period_ns: int, asleep: npt.NDArray[np.bool_], sleep: Callable[[float], object]) -> None:
        self.due_ns: list[int] = []
        self.missed = 0
        self._period_ns = period_ns
        self._asleep: list[bool] = asleep.tolist()
        self._sleep = sleep

    def __call__(
        self,
        session: InferenceSession,
        batches: Sequence[Any],
        clock: Clock,
        starts: memoryview,
        ends: memoryview,
        outputs: list[Any] | None,
    ) -> None:
        """Do one go; the first call of a go comes a period after it began."""
        put, run, get = session._put, session._run, session._get
        period, sleep = self._period_ns, self._sleep
        due = clock()
        for i, batch in enumerate(batches):
            due += period
            late = clock() - due
            if late >= 0:  # an application takes the next picture, not those that have passed
                passed = late // period + 1
                due += passed * period
                self.missed += passed
            if self._asleep[len(self.due_ns)]:
                while (left := due - clock()) > 0:
                    sleep(left / 1e9)
            else:
                while clock() < due:
                    pass
            # Inputs arrive when the application wakes, so they are handed over cold, too.
            put(batch)
            start = clock()
            run()
            end = clock()
            get()
            starts[i] = start
            ends[i] = end
            self.due_ns.append(due)
