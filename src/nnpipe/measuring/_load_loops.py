"""The inner loop of each load scenario, which adds to the time of every query.

A :class:`~nnpipe.measuring.loop.Window` takes each loop as its ``loop``: it runs
queries and records their start and end.  A query ends when the caller has its
outputs, so put, run and get are all included.  The loops repeat the same lines,
since a further function call would delay the next query, which may already be
due.
"""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.core.session import InferenceSession
from nnpipe.core.tensors import Batch
from nnpipe.measuring.loop import Clock

Wait = Callable[[int], object]
"""Waits until the clock shows the given time in nanoseconds, and returns then or shortly after."""

Gaps = Callable[[int], npt.NDArray[np.int64]]
"""Returns the next gaps between queries, as many as asked for, in nanoseconds."""

_PR_SET_TIMERSLACK, _PR_GET_TIMERSLACK = 29, 30  # linux/prctl.h

# A sleeping process wakes 10 to 50 us late on an idle Linux.  Polling the clock for longer than that uses processor
# time, for which a busy system lowers the priority of the process: with 200 us, queries were sent later there.
_SPIN_NS = 60_000


def closed(
    session: InferenceSession,
    queries: Sequence[Any],
    clock: Clock,
    starts: memoryview,
    ends: memoryview,
    outputs: list[Any] | None,
    ask: Callable[[Any], Any] | None = None,
) -> None:
    """Send each query when the previous one has been answered: one batch, unless ``ask`` takes something else."""
    ask = ask or session._asker()
    for i, query in enumerate(queries):
        start = clock()
        found = ask(query)
        end = clock()
        starts[i] = start
        ends[i] = end
        if outputs is not None:
            outputs[i] = found
        del found  # free the outputs here, not while the next query is timed


def closed_in_calls(
    session: InferenceSession,
    queries: Sequence[Any],
    clock: Clock,
    starts: memoryview,
    ends: memoryview,
    outputs: list[Any] | None,
) -> None:
    """Send each query of several batches when the previous one has been answered."""
    closed(session, queries, clock, starts, ends, outputs, _in_calls(session))


def streamed(
    session: InferenceSession,
    queries: Sequence[Any],
    clock: Clock,
    starts: memoryview,
    ends: memoryview,
    outputs: list[Any] | None,
) -> None:
    """Send all queries, one batch each, as fast as the session accepts them; each is timed from the previous answer."""
    start = clock()
    for i, found in enumerate(session._stream(queries)):
        end = clock()
        starts[i] = start
        ends[i] = start = end
        if outputs is not None:
            outputs[i] = found


class ScheduledLoop:
    """Sends each query when it is due, or, if later, when the previous one has been answered.

    Between chunks the schedule is paused if no query is waiting.  So work done
    between chunks makes no query late, and the next query comes after the time
    that was left in the schedule.

    Parameters
    ----------
    gaps
        Returns the next gaps between queries, in nanoseconds.
    wait
        Waits until a time.
    in_calls
        Whether a query has several batches.

    Attributes
    ----------
    due_ns
        The clock time at which each query was due; one array per chunk.
    stood_ns
        The total time for which the schedule was paused.
    """

    def __init__(self, gaps: Gaps, wait: Wait, in_calls: bool = False) -> None:
        self.due_ns: list[npt.NDArray[np.int64]] = []
        self.stood_ns = 0
        self._gaps = gaps
        self._wait = wait
        self._in_calls = in_calls
        self._ahead = gaps(1)  # until the next query
        self._left_ns = 0  # when the last chunk ended

    @property
    def idle(self) -> bool:
        """Whether no query was due when the last chunk ended."""
        return not self.due_ns or int(self.due_ns[-1][-1] + self._ahead[0]) > self._left_ns

    def __call__(
        self,
        session: InferenceSession,
        queries: Sequence[Any],
        clock: Clock,
        starts: memoryview,
        ends: memoryview,
        outputs: list[Any] | None,
    ) -> None:
        """Run one chunk."""
        ask = _in_calls(session) if self._in_calls else session._asker()
        wait = self._wait
        with _punctual_sleep():
            due = self._schedule(len(queries), clock)
            end = clock()
            for i, (query, at) in enumerate(zip(queries, due.tolist(), strict=True)):
                if end < at:
                    wait(at)
                start = clock()
                found = ask(query)
                end = clock()
                starts[i] = start
                ends[i] = end
                if outputs is not None:
                    outputs[i] = found
                del found
            self._left_ns = end

    def _schedule(self, count: int, clock: Clock) -> npt.NDArray[np.int64]:
        steps = np.cumsum(np.concatenate([self._ahead, self._gaps(count - 1)]))
        ahead = self._gaps(1)
        now = clock()
        if not self.due_ns:
            base = now
        else:
            base = int(self.due_ns[-1][-1])
            if self.idle:
                self.stood_ns += now - self._left_ns
                base += now - self._left_ns
        self._ahead = ahead
        self.due_ns.append(base + steps)
        return self.due_ns[-1]


class Poisson:
    """Gaps between the arrivals of a Poisson process; they depend only on rate and seed, not on how many are asked for.

    Parameters
    ----------
    rate
        Mean number of arrivals per second.
    seed
        The seed of the generator, numpy's PCG64.
    """

    def __init__(self, rate: float, seed: int) -> None:
        self._mean_ns = 1e9 / rate
        self._random = np.random.Generator(np.random.PCG64(seed))

    def __call__(self, count: int) -> npt.NDArray[np.int64]:
        """Return the next gaps, in nanoseconds."""
        return np.rint(self._random.exponential(self._mean_ns, count)).astype(np.int64)


def waiting(clock: Clock, sleep: Callable[[float], object] = time.sleep) -> Wait:
    """Return a function that waits until a time: it sleeps first, then polls the clock, since sleep ends late."""

    def wait(until: int) -> None:
        left = until - clock()
        if left > _SPIN_NS:
            sleep((left - _SPIN_NS) / 1e9)
        while clock() < until:
            pass

    return wait


@contextmanager
def _punctual_sleep() -> Iterator[None]:
    """Let this thread's sleeps end when they should: Linux may add 50 us to wake several threads at once."""
    prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None
    slack = 0 if prctl is None else prctl(_PR_GET_TIMERSLACK, 0, 0, 0, 0)
    if prctl is None or slack <= 0:  # refused, or the thread sleeps by a real-time schedule, which has none
        yield
        return
    prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)
    try:
        yield
    finally:
        prctl(_PR_SET_TIMERSLACK, slack, 0, 0, 0)


def _in_calls(session: InferenceSession) -> Callable[[Sequence[Batch]], list[Any]]:
    stream = session._stream
    return lambda calls: list(stream(calls))
