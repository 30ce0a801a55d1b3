"""What one go of each load scenario does: the part that every query pays for.

Each loop is what :class:`~nnpipe.measuring.loop.Window` takes: it runs queries
and stamps them.  A query is answered when its outputs are in the hands of
whoever asked, so that put, run and get all lie between its stamps.  Loops
repeat these lines: a further call would be paid between queries, when the next
one may be due already.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.core.session import InferenceSession
from nnpipe.core.tensors import Batch
from nnpipe.measuring.loop import Clock

Wait = Callable[[int], object]
"""Returns when the clock shows this, or shortly after."""

Gaps = Callable[[int], npt.NDArray[np.int64]]
"""Gives so many gaps between queries, in nanoseconds, and every time the next ones."""

# Who sleeps is woken some 60 to 100 us late by a quiet Linux.  Looking at the clock for longer than that uses up
# processor time, for which a busy system puts the process behind others: with 200 us, queries came later there.
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
    """Send each query when the one before has been answered: one batch, unless ``ask`` takes something else."""
    ask = ask or session._infer
    for i, query in enumerate(queries):
        start = clock()
        found = ask(query)
        end = clock()
        starts[i] = start
        ends[i] = end
        if outputs is not None:
            outputs[i] = found
        del found  # what is freed is freed here, not while the next query is timed


def closed_in_calls(
    session: InferenceSession,
    queries: Sequence[Any],
    clock: Clock,
    starts: memoryview,
    ends: memoryview,
    outputs: list[Any] | None,
) -> None:
    """Send each query, several batches, when the one before has been answered."""
    closed(session, queries, clock, starts, ends, outputs, _in_calls(session))


def streamed(
    session: InferenceSession,
    queries: Sequence[Any],
    clock: Clock,
    starts: memoryview,
    ends: memoryview,
    outputs: list[Any] | None,
) -> None:
    """Send all queries, one batch each, as fast as the session takes them; each lasts from the one before."""
    start = clock()
    for i, found in enumerate(session._stream(queries)):
        end = clock()
        starts[i] = start
        ends[i] = start = end
        if outputs is not None:
            outputs[i] = found


class Open:
    """Sends each query when it is due, or as soon after as the one before has been answered.

    Between goes the schedule stands still if nothing waits then: whatever is
    done there makes no query late, and the next one comes after as much time
    as the schedule left.

    Parameters
    ----------
    gaps
        Gives the next so many gaps between queries, in nanoseconds.
    wait
        How to wait.
    in_calls
        Whether a query is several batches.

    Attributes
    ----------
    due_ns
        When each query was due, on the clock; one array a go.
    stood_ns
        How long the schedule stood still altogether.
    """

    def __init__(self, gaps: Gaps, wait: Wait, in_calls: bool = False) -> None:
        self.due_ns: list[npt.NDArray[np.int64]] = []
        self.stood_ns = 0
        self._gaps = gaps
        self._wait = wait
        self._in_calls = in_calls
        self._ahead = gaps(1)  # to the next query
        self._left_ns = 0  # when the last go ended

    @property
    def idle(self) -> bool:
        """Whether the next query was still to come when the last go ended."""
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
        """Do one go."""
        ask = _in_calls(session) if self._in_calls else session._infer
        wait = self._wait
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
    """Gaps between the arrivals of a Poisson process, the same for the same seed however they are asked for.

    Parameters
    ----------
    rate
        Arrivals a second, on average.
    seed
        Of the generator, numpy's PCG64.
    """

    def __init__(self, rate: float, seed: int) -> None:
        self._mean_ns = 1e9 / rate
        self._random = np.random.Generator(np.random.PCG64(seed))

    def __call__(self, count: int) -> npt.NDArray[np.int64]:
        """Return the next gaps, in nanoseconds."""
        return np.rint(self._random.exponential(self._mean_ns, count)).astype(np.int64)


def waiting(clock: Clock, sleep: Callable[[float], object] = time.sleep) -> Wait:
    """Return a way to wait: asleep at first, then looking at the clock, since who sleeps wakes up late."""

    def wait(until: int) -> None:
        left = until - clock()
        if left > _SPIN_NS:
            sleep((left - _SPIN_NS) / 1e9)
        while clock() < until:
            pass

    return wait


def _in_calls(session: InferenceSession) -> Callable[[Sequence[Batch]], list[Any]]:
    stream = session._stream
    return lambda calls: list(stream(calls))
