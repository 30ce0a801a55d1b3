"""Run a load on a session, in chunks of about one second."""

from __future__ import annotations

import ctypes
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError
from nnpipe.core.progress import Progress, silent
from nnpipe.core.session import InferenceSession
from nnpipe.core.tensors import Batch
from nnpipe.measuring.load import Load, LoadResult, Query, Until
from nnpipe.measuring.loop import Clock, Window
from nnpipe.measuring.quantile_intervals import compute_quantile_interval
from nnpipe.measuring.series import Series
from nnpipe.measuring.statistics import count_samples_needed

if TYPE_CHECKING:
    from typing_extensions import Self


# The inner loop of each load scenario, which adds to the time of every query.
#
# A :class:`~nnpipe.measuring.loop.Window` takes each loop as its ``loop``: it runs queries and
# records their start and end.  A query ends when the caller has its outputs, so put, run and get
# are all included.  The loops repeat the same lines, since a further function call would delay the
# next query, which may already be due.

Wait = Callable[[int], object]
"""Waits until the clock shows the given time in nanoseconds, and returns then or shortly after."""

Gaps = Callable[[int], npt.NDArray[np.int64]]
"""Returns the next gaps between queries, as many as asked for, in nanoseconds."""

_PR_SET_TIMERSLACK, _PR_GET_TIMERSLACK = 29, 30  # linux/prctl.h

# A sleeping process wakes 10 to 50 us late on an idle Linux.  Polling the clock for longer than
# that uses processor time, for which a busy system lowers the priority of the process: with 200 us,
# queries were sent later there.
_SPIN_NS = 60_000


def run_closed_loop(
    session: InferenceSession,
    queries: Sequence[Any],
    clock: Clock,
    starts: memoryview,
    ends: memoryview,
    outputs: list[Any] | None,
    ask: Callable[[Any], Any] | None = None,
) -> None:
    """Send each query when the previous one has been answered: one batch, unless ``ask`` takes
    something else.
    """
    ask = ask or session._get_infer_function()
    for i, query in enumerate(queries):
        start = clock()
        found = ask(query)
        end = clock()
        starts[i] = start
        ends[i] = end
        if outputs is not None:
            outputs[i] = found
        del found  # free the outputs here, not while the next query is timed


def run_closed_loop_in_calls(
    session: InferenceSession,
    queries: Sequence[Any],
    clock: Clock,
    starts: memoryview,
    ends: memoryview,
    outputs: list[Any] | None,
) -> None:
    """Send each query of several batches when the previous one has been answered."""
    run_closed_loop(session, queries, clock, starts, ends, outputs, _create_call_runner(session))


def run_offline(
    session: InferenceSession,
    queries: Sequence[Any],
    clock: Clock,
    starts: memoryview,
    ends: memoryview,
    outputs: list[Any] | None,
) -> None:
    """Send all queries, one batch each, as fast as the session accepts them; each is timed from
    the previous answer.
    """
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
        ask = _create_call_runner(session) if self._in_calls else session._get_infer_function()
        wait = self._wait
        with _ensure_punctual_sleep():
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
    """Gaps between the arrivals of a Poisson process; they depend only on rate and seed, not on how
    many are asked for.

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


def create_wait(clock: Clock, sleep: Callable[[float], object] = time.sleep) -> Wait:
    """Return a function that waits until a time: it sleeps first, then polls the clock, since
    sleep ends late.
    """

    def wait(until: int) -> None:
        left = until - clock()
        if left > _SPIN_NS:
            sleep((left - _SPIN_NS) / 1e9)
        while clock() < until:
            pass

    return wait


@contextmanager
def _ensure_punctual_sleep() -> Iterator[None]:
    """Let this thread's sleeps end when they should: Linux may add 50 us to wake several threads
    at once.
    """
    prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None
    slack = 0 if prctl is None else prctl(_PR_GET_TIMERSLACK, 0, 0, 0, 0)
    # refused, or the thread sleeps by a real-time schedule, which has none
    if prctl is None or slack <= 0:
        yield
        return
    prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)
    try:
        yield
    finally:
        prctl(_PR_SET_TIMERSLACK, slack, 0, 0, 0)


def _create_call_runner(session: InferenceSession) -> Callable[[Sequence[Batch]], list[Any]]:
    stream = session._stream
    return lambda calls: list(stream(calls))


_CHUNK_NS = 1_000_000_000
_CHUNK_QUERIES = 1 << 16
_MOST_QUERIES = 10_000_000  # in a result file
_LOOK_AGAIN = 1.25  # factor by which the queries grow until the precision is checked again
_SAMPLED_A_GO, _SAMPLED = 64, 256


def run_load(
    session: InferenceSession,
    queries: Sequence[Query],
    load: Load,
    until: Until,
    *,
    samples: Sequence[int] | None = None,
    warmup: int = 0,
    sample_outputs: bool = False,
    progress: Progress = silent,
    clock: Clock = time.perf_counter_ns,
    wait: Wait | None = None,
) -> LoadResult:
    """Run a load on a session.

    Parameters
    ----------
    session
        The loaded model, here or on a target; not closed here.
    queries
        The queries, at least one, in memory; they are drawn at random with replacement.
    load, until
        The load scenario, and the conditions that end it.
    samples
        The number of samples to count for each query; all by default.
    warmup
        The number of warm-up queries, which are not recorded.
    sample_outputs
        Whether to keep the outputs of some queries, at most 256, drawn at random.
    progress
        Called about once a second.
    clock
        The clock, in nanoseconds.
    wait
        Waits until a query is due; by default, it sleeps and then polls the clock.

    Raises
    ------
    ConfigError
        If there are no queries.
    SpecMismatch
        If a query does not fit the model's inputs; then nothing has been run.
    """
    check_call(run_load, locals())
    with LoadGenerator(
        session, queries, load, samples=samples, clock=clock, wait=wait, keep=sample_outputs
    ) as generator:
        generator.warm_up(warmup)
        *_, ended = progress(generator.run_until(until), f"load: {load.scenario}")
        return generator.build_result(ended)


class LoadGenerator:
    """Runs a load on a session, in chunks of about one second; to be used in a ``with`` block.

    Parameters
    ----------
    session, queries, load, samples, clock, wait
        As for :func:`run_load`.
    keep
        Whether to keep the outputs of some queries.
    """

    def __init__(
        self,
        session: InferenceSession,
        queries: Sequence[Query],
        load: Load,
        *,
        samples: Sequence[int] | None = None,
        clock: Clock = time.perf_counter_ns,
        wait: Wait | None = None,
        keep: bool = False,
    ) -> None:
        in_calls = any(len(query) != 1 for query in queries)
        if in_calls and load.scenario == "offline":
            raise ConfigError("offline, each query is one batch")
        self._session = session
        self._load = load
        self._keep = keep
        self._open: ScheduledLoop | None = None
        loop = (
            run_offline
            if load.scenario == "offline"
            else run_closed_loop_in_calls
            if in_calls
            else run_closed_loop
        )
        if load.rate is not None:
            self._open = ScheduledLoop(
                Poisson(load.rate, load.seed), wait or create_wait(clock), in_calls
            )
        self._window = Window(
            session,
            clock,
            self._open or loop,
            settling=loop is not run_offline and self._open is None,
        )
        sizes = self._window.check([call for query in queries for call in query])
        if samples is None:
            each = iter(sizes)
            samples = [sum(next(each) for _ in query) for query in queries]
        self._samples = np.array(samples, np.int64)
        self._queries: list[Any] = [query if in_calls else query[0] for query in queries]
        self._calls = queries
        self._order = np.random.default_rng([load.seed, 1])
        self._choice = np.random.default_rng([load.seed, 2])
        self._sampled: list[tuple[int, Any]] = []
        self._service_ns = 0.0  # of a query, in the last chunk

    def __enter__(self) -> Self:
        self._window.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._window.__exit__(kind, error, trace)

    @property
    def queries(self) -> int:
        """The number of answered queries."""
        return self._window.calls

    def warm_up(self, queries: int) -> None:
        """Run this number of queries without recording them."""
        for number in range(queries):
            for batch in self._calls[number % len(self._calls)]:
                self._session.infer(batch)

    def run_until(self, until: Until) -> Iterator[str]:
        """Run chunks until a condition is reached; yield its name, or an empty string, after
        each chunk.
        """
        look_at = max(until.least, count_samples_needed(until.share))
        most = min(until.queries or _MOST_QUERIES, _MOST_QUERIES)
        due = self._count_due_within(until.seconds)
        while True:
            seconds = until.seconds is not None and (
                self.queries >= due or self.busy_ns >= until.seconds * 1e9
            )
            if self.queries and seconds:
                yield "seconds"
            elif self.queries >= most:
                yield "queries"
            elif (
                until.precision is not None
                and self.queries >= look_at
                and (self._open is None or self._open.idle)
            ):
                if compute_half_width(self.get_latencies(), until.share) <= until.precision:
                    yield "precision"
                    return
                look_at = math.ceil(_LOOK_AGAIN * self.queries)
                continue
            else:
                next_look = most if until.precision is None else max(look_at, self.queries + 1)
                self.run_chunk(min(most, due, next_look) - self.queries, until.seconds)
                yield ""
                continue
            return

    def run_chunk(self, most: int, seconds: float | None = None) -> None:
        """Run a chunk: about as many queries as fit into one second, at least one and at most
        ``most``.
        """
        count = min(
            most,
            1024 if self._keep else _CHUNK_QUERIES,
            int(_CHUNK_NS / self._service_ns) if self._service_ns else 1,
        )
        if seconds is not None and self._service_ns:
            count = min(count, math.ceil((seconds * 1e9 - self.busy_ns) / self._service_ns))
        if self._load.rate is not None:
            count = min(count, int(self._load.rate))
        count = max(count, 1)
        if self._load.scenario == "offline":
            chosen = np.arange(self.queries, self.queries + count) % len(self._queries)
        else:
            chosen = self._order.integers(len(self._queries), size=count)
        picked = [self._queries[number] for number in chosen]
        outputs = self._window.run_chunk(picked, self._samples[chosen].tolist(), keep=self._keep)
        starts, ends, _ = self._window.chunks[-1]
        self._service_ns = max(float((ends - starts).mean()), 1.0)
        if self._keep:
            self._sample(chosen, outputs)

    @property
    def busy_ns(self) -> int:
        """The duration of the load, without the time for which the schedule was paused."""
        if self._open is None or not self._window.chunks:
            return self._window.busy_ns
        return int(self._window.chunks[-1][1][-1]) - self._window.origin_ns - self._open.stood_ns

    def get_latencies(self) -> npt.NDArray[np.int64]:
        """Return the latency of every query, in nanoseconds."""
        chunks = self._window.chunks
        since = self._open.due_ns if self._open is not None else [starts for starts, _, _ in chunks]
        return np.concatenate(
            [ends - start for (_, ends, _), start in zip(chunks, since, strict=True)]
        )

    def build_result(self, ended: str) -> LoadResult:
        """Return the recorded load."""
        columns = dict(self._window.series().columns)
        if self._open is not None:
            columns["latency_ns"] = self.get_latencies()
            columns["scheduled_ns"] = np.concatenate(self._open.due_ns) - self._window.origin_ns
        unanswered = 0
        if self._open is not None:
            unanswered = max(self._count_due_within(self.busy_ns / 1e9) - self.queries, 0)
        return LoadResult(
            Series(columns),
            ended,
            self.busy_ns,
            self._window.origin_ns,
            unanswered,
            tuple(self._sampled),
        )

    def _count_due_within(self, seconds: float | None) -> int:
        """Return the number of queries that are due within ``seconds``, up to the limit."""
        if self._load.rate is None or seconds is None:
            return _MOST_QUERIES
        gaps, count, at = Poisson(self._load.rate, self._load.seed), 0, 0
        while at <= seconds * 1e9 and count < _MOST_QUERIES:
            due = at + np.cumsum(gaps(_CHUNK_QUERIES))
            count += int(np.searchsorted(due, seconds * 1e9, "right"))
            at = int(due[-1])
        return max(count, 1)

    def _sample(self, chosen: npt.NDArray[Any], outputs: list[Any]) -> None:
        places = self._choice.choice(len(chosen), min(_SAMPLED_A_GO, len(chosen)), replace=False)
        self._sampled += [(int(chosen[place]), outputs[place]) for place in places]
        while len(self._sampled) > _SAMPLED:
            del self._sampled[int(self._choice.integers(len(self._sampled)))]


def compute_half_width(latencies: npt.NDArray[Any], share: float) -> float:
    """Return half the width of a percentile's 95 % interval relative to it; infinite without an
    interval.
    """
    interval = compute_quantile_interval(latencies, share)
    middle = float(np.quantile(latencies, share))
    if interval is None:
        return math.inf
    return (interval[1] - interval[0]) / 2 / middle if middle > 0 else 0.0
