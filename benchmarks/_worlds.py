"""Made-up machines on which two candidates run, whose true ratio is known; for trying comparisons,
fast.

Time is made up as well.  A world has what real machines have, in a measure
that real ones seldom reach:

* drift: the speed wanders, by some percent in a second and 10 % in a minute,
* bursts: for 5 to 500 ms something else takes a third to three quarters of the processor,
* heavy tails: one call in fifty takes far longer, by a Pareto distribution without a variance,
* dependence: the noise of a call is mostly that of the call before,
* starts: each start of a candidate is faster or slower as a whole, mostly by
  some tenths of a percent, in one of 30 by 20 %.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nnpipe.core.errors import NNPipeError
from nnpipe.measuring.interleaving import Block, Runner

_OPENING_NS = 300_000_000


@dataclass(frozen=True)
class Weather:
    """How bad a world is.

    Parameters
    ----------
    drift
        Standard deviation of the logarithm of the speed, in the long run.
    bursts
        How many begin in a second.
    tails
        Share of calls that take far longer.
    noise
        Standard deviation of the logarithm of a call's time.
    dependence
        Correlation of that noise from call to call.
    starts
        Scale of the logarithm of a start's luck.
    """

    drift: float = 0.1
    bursts: float = 2.0
    tails: float = 0.02
    noise: float = 0.03
    dependence: float = 0.9
    starts: float = 0.003


class World:
    """A machine; ``times_ns`` are the candidates' true ones, without any disturbance.

    ``open`` and ``clock`` are what :func:`nnpipe.measuring.interleaving.interleave` takes.
    """

    def __init__(self, times_ns: Sequence[float], weather: Weather, seed: int) -> None:
        self.now = 0.0
        self._times, self._weather = times_ns, weather
        self._random = np.random.default_rng(seed)
        self._wander = self._random.normal(0, weather.drift)
        self._wandered = 0.0
        self._noise = 0.0
        self._burst = (0.0, 0.0, 1.0)
        self._next_burst()

    def clock(self) -> int:
        """Tell the time, ns."""
        return int(self.now)

    @contextmanager
    def open(self, places: Sequence[int]) -> Iterator[Mapping[int, Runner | NNPipeError]]:
        """Start candidates."""
        self.now += _OPENING_NS
        yield {place: self._runner(place) for place in places}

    def _runner(self, place: int) -> Runner:
        luck = self._weather.starts * self._random.standard_t(3)
        if self._random.random() < 1 / 30:
            luck += 0.2 * self._random.choice([-1, 1])
        typical = self._times[place] * math.exp(luck)

        def run(calls: int) -> Block:
            self.now += 200_000  # asking and answering
            latency = self._run(typical, calls)
            return Block(np.cumsum(latency) - latency, latency)

        return run

    def _run(self, typical: float, calls: int) -> npt.NDArray[np.int64]:
        weather, random = self._weather, self._random
        # The wandering forgets itself within about 20 s.
        kept = math.exp(-(self.now - self._wandered) / 20e9)
        self._wander = kept * self._wander + math.sqrt(1 - kept**2) * random.normal(
            0, weather.drift
        )
        self._wandered = self.now
        found = np.full(calls, typical * math.exp(self._wander))
        found *= np.exp(self._dependent(calls))
        late = random.random(calls) < weather.tails
        found[late] *= 1 + random.pareto(1.5, int(late.sum()))
        # The time of a call by what came before it, without the burst's own stretching: near
        # enough.
        begins = self.now + np.cumsum(found) - found
        while self._burst[0] < begins[-1] + found[-1]:
            begin, end, factor = self._burst
            found[(begins >= begin) & (begins < end)] *= factor
            if end > begins[-1]:
                break
            self._next_burst()
        self.now += float(found.sum())
        return found.astype(np.int64)

    def _dependent(self, calls: int) -> npt.NDArray[np.float64]:
        weather = self._weather
        fresh = self._random.normal(0, weather.noise * math.sqrt(1 - weather.dependence**2), calls)
        # x[i] = a x[i - 1] + e[i], in one go: powers of a times the sum of what they have to undo.
        powers = weather.dependence ** np.arange(1, calls + 1)
        if powers[-1] < 1e-200:
            found = np.empty(calls)
            last = self._noise
            for i, value in enumerate(fresh):
                last = weather.dependence * last + value
                found[i] = last
        else:
            found = powers * (self._noise + np.cumsum(fresh / powers))
        self._noise = float(found[-1])
        return found

    def _next_burst(self) -> None:
        random, rate = self._random, max(self._weather.bursts, 1e-9)
        begin = max(self._burst[1], self.now) + random.exponential(1e9 / rate)
        end = begin + 5e6 * 100 ** random.random()
        self._burst = (begin, end, 1 / (1 - random.uniform(1 / 3, 3 / 4)))
