"""Measure inference at the pace of an application, which waits between calls.

In a tight loop, caches and branch predictors stay warm and the processor's clock
rate stays high.  For an application that reads a camera thirty times a second,
they are cold at each call.  Calls at a pace are timed like those of the tight
loop, by timestamps around the inference alone.

To explain the difference, the process stays awake and polls the clock before a
quarter of the calls, chosen at random; before the others it sleeps.  The
additional time of awake calls over the tight loop has nothing to do with sleep;
the additional time of the other calls over awake ones does.
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
# A shorter sleep ends too late to keep the pace.
_SHORTEST_NS, _LONGEST_NS = 200_000, 3_600_000_000_000

_AWAKE_SHARE = 0.25
_CALLS, _LEAST_CALLS, _MOST_CALLS = 266, 12, 1_000_000
_SHORTEST_S, _LONGEST_S = 1.0, 10.0
_CHUNK_NS = 1_000_000_000  # so that progress shows


@dataclass(frozen=True)
class Pace:
    """The interval between calls of an application.

    Parameters
    ----------
    period_ns
        The time from the beginning of one call to the beginning of the next, in nanoseconds.

    Raises
    ------
    ConfigError
        If it is shorter than 200 µs or longer than an hour.
    """

    period_ns: int

    def __post_init__(self) -> None:
        if not _SHORTEST_NS <= self.period_ns <= _LONGEST_NS:
            raise ConfigError(
                f"a pace is one call in 200us at the most often and in 60min at the least, not in "
                f"{self}"
            )

    @classmethod
    def parse(cls, text: str) -> Pace:
        """Parse ``"33ms"``, ``"0.5 s"``, ``"30/s"``, ``"30fps"`` or ``"2/min"``.

        Raises
        ------
        ConfigError
            If the text is neither a time nor a rate, or out of bounds.
        """
        found = _PACE.fullmatch(text)
        number, unit = (float(found[1]), found[2]) if found else (0.0, "")
        if unit in _UNITS:
            return cls(round(number * _UNITS[unit]))
        if unit.lower() in _RATES and number > 0:
            return cls(round(_RATES[unit.lower()] / number))
        raise ConfigError(
            f"{text[:40]!r} is no pace: give the time from call to call, such as 33ms, or a rate, "
            f"as 30/s"
        )

    def __str__(self) -> str:
        for unit, length in (("min", 60e9), ("s", 1e9), ("ms", 1e6)):
            if self.period_ns >= length:
                return f"{self.period_ns / length:.4g}{unit}"
        return f"{self.period_ns / 1e3:.4g}us"

    def calls(self, seconds: float | None) -> int:
        """Return the number of calls in ``seconds``; by default enough for 200 calls after
        sleep, but at most 10 s.
        """
        if seconds is None:
            seconds = min(max(_CALLS * self.period_ns / 1e9, _SHORTEST_S), _LONGEST_S)
        return min(max(int(seconds * 1e9 / self.period_ns), _LEAST_CALLS), _MOST_CALLS)


@dataclass(frozen=True)
class PacedCalls:
    """The calls that were measured at a pace.

    Parameters
    ----------
    series
        One row per call: ``scheduled_ns``, when it was due; ``start_ns``; ``latency_ns``;
        ``samples``; and ``asleep``, 1 if the process slept before the call and 0 if it stayed
        awake.  Times count from the start.
    missed
        The number of calls that were skipped because the previous call was still running.
    origin_ns
        The clock time of the start.
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
) -> PacedCalls:
    """Run batches repeatedly, one in each period of a pace.

    Parameters
    ----------
    session
        The loaded model, here or on a target; not closed here.
    batches
        Inputs that fit ``session.io``, at least one batch, all in memory.
    pace
        The interval between calls.
    samples
        The number of samples to count for each batch; all by default.
    calls
        The number of calls; that of :meth:`Pace.calls` if 0.
    seed
        The seed of the choice of calls before which the process stays awake.
    progress
        Called about once a second.
    clock, sleep
        The clock, in nanoseconds, and the function that sleeps, in seconds.

    Raises
    ------
    ConfigError
        If there is no batch.
    SpecMismatch
        If a batch does not fit the model's inputs; then nothing has been run.
    """
    check_call(run_paced, locals())
    calls = calls or pace.calls(None)
    asleep = np.random.default_rng(seed).random(calls) >= _AWAKE_SHARE
    asleep[0] = True
    rhythm = _Rhythm(pace.period_ns, asleep, sleep)
    each = max(1, _CHUNK_NS // pace.period_ns)
    with Window(session, clock, rhythm, settling=False) as window:
        sizes = window.check(batches)
        counts = sizes if samples is None else samples

        def run_chunks() -> Iterator[int]:
            for first in range(0, calls, each):
                numbers = [
                    number % len(batches) for number in range(first, min(first + each, calls))
                ]
                window.run_chunk(
                    [batches[n] for n in numbers], [counts[n] for n in numbers], keep=False
                )
                yield first

        for _ in progress(run_chunks(), f"pace: one call in {pace}", -(-calls // each)):
            pass
        columns = dict(window.series().columns)
        columns["scheduled_ns"] = np.array(rhythm.due_ns, np.int64) - window.origin_ns
        columns["asleep"] = asleep.astype(np.int64)
        return PacedCalls(Series(columns), rhythm.missed, window.origin_ns)


class _Rhythm:
    """The loop of a chunk: waits until each call is due, and times the run alone."""

    def __init__(
        self, period_ns: int, asleep: npt.NDArray[np.bool_], sleep: Callable[[float], object]
    ) -> None:
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
        """Run a chunk; its first call is due one period after its beginning."""
        put, run, get = session._put_next, session._run, session._get
        period, sleep = self._period_ns, self._sleep
        due = clock()
        for i, batch in enumerate(batches):
            due += period
            late = clock() - due
            if late >= 0:  # an application uses the next picture, not missed ones
                passed = late // period + 1
                due += passed * period
                self.missed += passed
            if self._asleep[len(self.due_ns)]:
                while (left := due - clock()) > 0:
                    sleep(left / 1e9)
            else:
                while clock() < due:
                    pass
            # The inputs of an application arrive when it wakes, so putting them is done after the
            # wait, too.
            put(batch)
            start = clock()
            run()
            end = clock()
            get()
            starts[i] = start
            ends[i] = end
            self.due_ns.append(due)
