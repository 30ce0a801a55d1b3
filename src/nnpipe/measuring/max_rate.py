"""Find the highest rate of queries at which a latency keeps a bound.

It is a binary search over rates of the server scenario.  Each trial continues
until its queries show, by MLPerf's early stopping, that the bound is kept, or,
by the other tail of the same distribution, that it is broken.

Trials treat queries as independent.  In a queue they are not: a query that waits
long is followed by others that wait, too.  So the result is confirmed in a longer
run with new arrivals, whose evaluation allows for dependent queries
(:mod:`nnpipe.measuring.quantile_intervals`).
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from nnpipe.core.distributions import incomplete_beta
from nnpipe.core.errors import ConfigError
from nnpipe.core.progress import Progress, silent
from nnpipe.core.session import InferenceSession
from nnpipe.measuring.early_stopping import CONFIDENCE, compute_least_samples
from nnpipe.measuring.load import Load, LoadResult, Query
from nnpipe.measuring.load_generator import LoadGenerator, Wait
from nnpipe.measuring.loop import Clock
from nnpipe.measuring.quantile_intervals import compute_autocorrelation_time

Verdict = Literal["kept", "broken", "open"]

_UNITS = {"ns": 1, "us": 1_000, "µs": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
_BOUND = re.compile(
    r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>ns|us|µs|ms|s)(?:@p(?P<percent>\d+(?:\.\d+)?))?"
)
_UNLOADED_SECONDS = 0.5
_CONFIRMING = 4  # the confirming run is at least this many times as long as a trial
_LEAST_SHARE = 1e-3  # the lowest rate to try, relative to the session's rate without a schedule


@dataclass(frozen=True)
class LatencyBound:
    """An upper bound on a percentile of latency.

    Parameters
    ----------
    share
        The percentile, 0.99 for p99.
    bound_ns
        The bound, in nanoseconds.
    """

    share: float
    bound_ns: int

    @classmethod
    def parse(cls, text: str) -> LatencyBound:
        """Parse ``10ms@p99``; the percentile is p99 if left out.

        Raises
        ------
        ConfigError
            If the text has another form.

        Examples
        --------
        >>> LatencyBound.parse("2.5ms@p90")
        LatencyBound(share=0.9, bound_ns=2500000)
        """
        found = _BOUND.fullmatch(text.strip())
        bound_ns = round(float(found["number"]) * _UNITS[found["unit"]]) if found else 0
        percent = float(found["percent"] or 99) if found else 0.0
        if bound_ns <= 0 or not 0 < percent < 100:
            raise ConfigError(
                f"{text!r} is no bound on a latency: write a time and a percentile, such as "
                f"10ms@p99"
            )
        return cls(percent / 100, bound_ns)

    def count_over(self, latencies_ns: npt.NDArray[Any]) -> int:
        """Return the number of latencies above the bound."""
        return int(np.count_nonzero(latencies_ns > self.bound_ns))

    def compute_verdict(self, queries: int, over: int, confidence: float = CONFIDENCE) -> Verdict:
        """Return whether ``over`` of ``queries`` above the bound show that it is kept or broken, or
        neither yet.

        "Kept" is LoadGen's criterion
        (:func:`~nnpipe.measuring.early_stopping.compute_least_samples`). "Broken" means that if the
        bound were just kept, so many queries above it would have a probability of at most 1 -
        ``confidence``."""
        if queries >= compute_least_samples(self.share, over, confidence):
            return "kept"
        if over and incomplete_beta(1 - self.share, over, queries - over + 1) <= 1 - confidence:
            return "broken"
        return "open"

    def evaluate(self, latencies_ns: npt.NDArray[Any]) -> Verdict:
        """Return the verdict for latencies in the order of time, which may depend on each other."""
        above = latencies_ns > self.bound_ns
        time = compute_autocorrelation_time(above)
        return self.compute_verdict(
            math.floor(len(above) / time), math.ceil(np.count_nonzero(above) / time)
        )


@dataclass(frozen=True)
class Trial:
    """One rate that was tried: requested and reached queries per second, all queries, those over
    the bound, verdict.
    """

    rate: float
    achieved: float
    queries: int
    over: int
    verdict: Verdict


@dataclass(frozen=True)
class MaxRate:
    """The result of a search for the highest rate.

    Parameters
    ----------
    rate
        The highest rate, in queries per second, at which the bound was shown to be kept; ``None``
        if there is none.
    refused
        The lowest rate at which that could not be shown, if any.
    reason
        The result in one line.
    trials
        All rates that were tried, in order.
    confirmed
        The run at ``rate`` that confirmed it, or the last one that failed.
    """

    rate: float | None
    refused: float | None
    reason: str
    trials: tuple[Trial, ...]
    confirmed: LoadResult


def find_max_rate(
    session: InferenceSession,
    queries: Sequence[Query],
    bound: LatencyBound,
    *,
    resolution: float = 0.05,
    seed: int = 0,
    samples: Sequence[int] | None = None,
    most_seconds: float = 20.0,
    warmup: int = 0,
    progress: Progress = silent,
    clock: Clock = time.perf_counter_ns,
    wait: Wait | None = None,
) -> MaxRate:
    """Search for the highest rate of queries at which a latency keeps its bound.

    A trial lasts at least twice the bound divided by ``resolution``.  If the rate is too high by
    that resolution, the queue grows past the bound within half of that time.

    Parameters
    ----------
    session, queries, samples, warmup, clock, wait
        As for :func:`~nnpipe.measuring.load_generator.run_load`.
    bound
        The bound on latency.
    resolution
        The search ends when the rate that broke the bound exceeds the one that kept it by at most
        this share.
    seed
        The seed of the first trial's arrivals; each trial has its own.
    most_seconds
        The time limit of a trial.  A trial that is undecided by then counts as broken; the
        confirming run may take twice as long.
    progress
        Called about once a second of each trial.
    """
    search = _Search(session, queries, bound, resolution, seed, samples, most_seconds, clock, wait)
    for _ in progress(search.steps(warmup), f"the most queries a second with {describe(bound)}"):
        pass
    return search.result()


def describe(bound: LatencyBound) -> str:
    """Return a bound as ``p99 <= 10 ms``."""
    unit = next(unit for unit in ("s", "ms", "µs", "ns") if bound.bound_ns >= _UNITS[unit])
    return f"p{100 * bound.share:g} <= {bound.bound_ns / _UNITS[unit]:g} {unit}"


class _Search:
    """The state of a search; rates in queries per second."""

    def __init__(
        self,
        session: InferenceSession,
        queries: Sequence[Query],
        bound: LatencyBound,
        resolution: float,
        seed: int,
        samples: Sequence[int] | None,
        most_seconds: float,
        clock: Clock,
        wait: Wait | None,
    ) -> None:
        if not 0 < resolution < 1 or not most_seconds > 0:
            raise ConfigError(
                "the resolution must be between 0 and 1, and the time for a trial above 0"
            )
        self.given: dict[str, Any] = {"samples": samples, "clock": clock, "wait": wait}
        self.session, self.queries, self.bound = session, queries, bound
        self.resolution, self.seed, self.most_seconds = resolution, seed, most_seconds
        self.least_seconds = 2 * bound.bound_ns / 1e9 / resolution
        self.trials: list[Trial] = []
        self.capacity = 0.0
        self.rate: float | None = None
        self.last: LoadResult | None = None

    def steps(self, warmup: int) -> Iterator[str]:
        """Run the search, and yield after each chunk."""
        if (yield from self._measure_without_load(warmup)) == "broken":
            return
        low, high = 0.0, self.capacity * (1 + self.resolution)
        while high > low * (1 + self.resolution) and high > self.capacity * _LEAST_SHARE:
            middle = math.sqrt(low * high) if low else high / 2
            if (yield from self._try(middle)) == "kept":
                low = middle
            else:
                high = middle
        step = self.resolution
        while low > self.capacity * _LEAST_SHARE:
            if (yield from self._try(low, confirming=True)) == "kept":
                self.rate = low
                return
            low, step = low * (1 - min(step, 0.5)), 2 * step  # the trials succeeded only by chance

    def result(self) -> MaxRate:
        """Return the result of the search."""
        assert self.last is not None
        wanted = describe(self.bound)
        not_kept = [trial.rate for trial in self.trials if trial.verdict != "kept" and trial.rate]
        refused = min(
            (rate for rate in not_kept if self.rate is None or rate > self.rate), default=None
        )
        if self.rate is not None:
            reason = f"{wanted} is kept at {self.rate:.4g} queries a second"
            reason += f", and could not be shown at {refused:.4g}" if refused else ""
        elif not self.trials[0].rate and self.trials[0].verdict == "broken":
            first = self.trials[0]
            reason = (
                f"{wanted} is not kept even without load: {first.over} of {first.queries} queries "
                f"took longer"
            )
        else:
            reason = (
                f"{wanted} could not be shown at any rate down to {min(not_kept, default=0.0):.4g} "
                f"queries a second"
            )
        return MaxRate(self.rate, refused, reason, tuple(self.trials), self.last)

    def _measure_without_load(self, warmup: int) -> Generator[str, None, Verdict]:
        """Measure the rate of the session without a schedule, where each query follows the
        previous answer.
        """
        with LoadGenerator(
            self.session, self.queries, Load(seed=self.seed), **self.given
        ) as generator:
            generator.warm_up(warmup)
            verdict: Verdict = "open"
            while verdict == "open" or generator.busy_ns < _UNLOADED_SECONDS * 1e9:
                if generator.busy_ns > self.most_seconds * 1e9:
                    break
                missing_ns = max(_UNLOADED_SECONDS * 1e9 - generator.busy_ns, 1.0)
                generator.run_chunk(
                    max(
                        round(missing_ns * generator.queries / max(generator.busy_ns, 1)),
                        generator.queries // 2,
                        1,
                    )
                )
                verdict = self._compute_verdict(generator)
                yield "without load"
            return self._record_trial(generator, 0.0, verdict)

    def _try(self, rate: float, confirming: bool = False) -> Generator[str, None, Verdict]:
        load = Load(scenario="server", rate=rate, seed=self.seed + len(self.trials))
        least = self.least_seconds * (_CONFIRMING if confirming else 1) * 1e9
        most = self.most_seconds * (2 if confirming else 1) * 1e9
        with LoadGenerator(self.session, self.queries, load, **self.given) as generator:
            verdict: Verdict = "open"
            look_at = 1
            while verdict != "broken" and generator.busy_ns < max(most, least):
                if verdict == "kept" and generator.busy_ns >= least:
                    break
                over = self.bound.count_over(generator.get_latencies()) if generator.queries else 0
                missing = (
                    max(compute_least_samples(self.bound.share, over), look_at) - generator.queries
                )
                generator.run_chunk(
                    max(missing, math.ceil((least - generator.busy_ns) / 1e9 * rate), 1)
                )
                yield f"{rate:.4g}/s"
                if not confirming:
                    verdict = self._compute_verdict(generator)
                elif generator.queries >= look_at and generator.busy_ns >= least:
                    # Checked rarely, since frequent checks make wrong verdicts more likely.
                    verdict, look_at = (
                        self.bound.evaluate(generator.get_latencies()),
                        math.ceil(1.5 * generator.queries),
                    )
            if confirming and verdict == "open":
                verdict = self.bound.evaluate(generator.get_latencies())
            return self._record_trial(generator, rate, verdict)

    def _compute_verdict(self, generator: LoadGenerator) -> Verdict:
        return self.bound.compute_verdict(
            generator.queries, self.bound.count_over(generator.get_latencies())
        )

    def _record_trial(self, generator: LoadGenerator, rate: float, verdict: Verdict) -> Verdict:
        loaded = generator.build_result("decided")
        over = self.bound.count_over(loaded.series["latency_ns"])
        self.trials.append(Trial(rate, loaded.rate, len(loaded.series), over, verdict))
        self.capacity = self.capacity or loaded.rate
        self.last = loaded
        return verdict
