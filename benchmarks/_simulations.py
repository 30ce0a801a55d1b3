"""Latencies made up with a known truth: what intervals must cover, whatever calls have to do with
each other.

Times are in nanoseconds and in the order of the calls.  All but ``trend`` are
stationary, and the truth is the quantile of the stationary distribution.  The
truth of ``trend`` is the quantile over the whole of its window.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Generator = np.random.Generator

MEDIAN = 100_000.0
_NORMAL = NormalDist()
_WIDTH = 0.08  # of the logarithm of a quiet machine's latencies
_GRID = np.linspace(0.0005, 0.9995, 1000)


@dataclass(frozen=True)
class Simulation:
    """A process that latencies may come from.

    Parameters
    ----------
    name
        What it is called in tables.
    draw
        Makes ``(samples,)`` latencies from a generator and their number.
    below
        Gives the share of latencies up to a time.
    """

    name: str
    draw: Callable[[Generator, int], Floats]
    below: Callable[[float], float]

    def truth(self, share: float) -> float:
        """Return the time that this share of all latencies does not exceed."""
        low, high = 0.0, 1e15
        while high - low > 1e-9 * high:
            middle = math.sqrt(max(low, 1.0) * high)
            low, high = (middle, high) if self.below(middle) < share else (low, middle)
        return high


def normal_series(random: Generator, samples: int, correlation: float) -> Floats:
    """Make a standard normal autoregression of order one, stationary from the start;
    ``correlation`` of neighbours.
    """
    noise = random.standard_normal(samples)
    innovations = noise * math.sqrt(1 - correlation**2)
    innovations[0] = noise[0]
    # Block by block: inside a block powers of the correlation do not vanish.
    block = max(
        1,
        min(
            samples,
            int(-200 / math.log10(max(correlation, 1e-3)) / 2) if correlation < 1 else samples,
        ),
    )
    found = np.empty(samples)
    before = 0.0
    for start in range(0, samples, block):
        part = innovations[start : start + block]
        powers = correlation ** np.arange(1, len(part) + 1)
        found[start : start + block] = powers * (before + np.cumsum(part / powers))
        before = found[min(start + block, samples) - 1]
    return found


def burst_states(
    random: Generator, samples: int, share: float, length: float
) -> npt.NDArray[np.bool_]:
    """Say which calls are in a burst: so large a share of all, in bursts of so many calls on
    average.
    """
    pause = length * (1 - share) / share
    state = bool(random.random() < share)
    lengths: list[int] = []
    states: list[bool] = []
    left = samples
    while left > 0:
        run = min(left, int(random.geometric(1 / (length if state else pause))))
        lengths.append(run)
        states.append(state)
        left -= run
        state = not state
    return np.repeat(states, lengths)


def _lognormal(median: float, width: float) -> Callable[[float], float]:
    return lambda time: _NORMAL.cdf(math.log(max(time, 1e-9) / median) / width)


def _independent() -> Simulation:
    return Simulation(
        "independent",
        lambda random, samples: MEDIAN * np.exp(_WIDTH * random.standard_normal(samples)),
        _lognormal(MEDIAN, _WIDTH),
    )


def _heavy_tails(index: float = 1.5) -> Simulation:
    """Pareto's distribution of infinite variance on top of a fixed time."""
    base, scale = 0.9 * MEDIAN, 0.1 * MEDIAN
    return Simulation(
        "heavy tails",
        lambda random, samples: base + scale * random.pareto(index, samples),
        lambda time: 1 - (1 + max(time - base, 0.0) / scale) ** -index,
    )


def _drift(calls: float = 50, width: float = 0.08) -> Simulation:
    """Speed that wanders: the logarithm of the level is an autoregression that forgets in so
    many calls.
    """
    correlation = math.exp(-1 / calls)
    return Simulation(
        f"drift ({calls:g} calls)",
        lambda random, samples: (
            MEDIAN
            * np.exp(
                width * normal_series(random, samples, correlation)
                + _WIDTH * random.standard_normal(samples)
            )
        ),
        _lognormal(MEDIAN, math.hypot(width, _WIDTH)),
    )


def _bursts(share: float = 0.05, length: float = 15, factor: float = 3.0) -> Simulation:
    """A neighbour that comes and goes: calls in a burst take three times as long."""
    quiet, loud = _lognormal(MEDIAN, _WIDTH), _lognormal(factor * MEDIAN, 3 * _WIDTH)

    def draw(random: Generator, samples: int) -> Floats:
        inside = burst_states(random, samples, share, length)
        noise = random.standard_normal(samples)
        return MEDIAN * np.where(
            inside, factor * np.exp(3 * _WIDTH * noise), np.exp(_WIDTH * noise)
        )

    return Simulation(
        f"bursts ({length:g} calls)",
        draw,
        lambda time: (1 - share) * quiet(time) + share * loud(time),
    )


def _all_at_once() -> Simulation:
    """Heavy tails on a wandering level, with bursts."""
    share, length, factor, width, index = 0.05, 10.0, 3.0, 0.05, 1.5
    correlation = math.exp(-1 / 30)
    levels = np.array([math.exp(width * _NORMAL.inv_cdf(point)) for point in _GRID])

    def draw(random: Generator, samples: int) -> Floats:
        level = np.exp(width * normal_series(random, samples, correlation))
        inside = burst_states(random, samples, share, length)
        shape = 0.9 + 0.1 * random.pareto(index, samples)
        return MEDIAN * level * np.where(inside, factor, 1.0) * shape

    def below(time: float) -> float:
        def part(scale: float) -> float:
            shape = time / (MEDIAN * scale * levels)
            return float(
                np.mean(
                    np.where(shape > 0.9, 1 - (1 + np.maximum(shape - 0.9, 0) / 0.1) ** -index, 0.0)
                )
            )

        return (1 - share) * part(1.0) + share * part(factor)

    return Simulation("heavy tails, drift and bursts", draw, below)


def _trend(rise: float = 0.15) -> Simulation:
    """A level that rises steadily by so much from the first call to the last."""
    levels = 1 + rise * _GRID

    def draw(random: Generator, samples: int) -> Floats:
        level = 1 + rise * (np.arange(samples) + 0.5) / samples
        return MEDIAN * level * np.exp(_WIDTH * random.standard_normal(samples))

    return Simulation(
        "trend",
        draw,
        lambda time: float(
            np.mean([_lognormal(MEDIAN * level, _WIDTH)(time) for level in levels[::10]])
        ),
    )


def simulations() -> tuple[Simulation, ...]:
    """Return all of them, from harmless to bad."""
    return (_independent(), _heavy_tails(), _trend(), _drift(), _bursts(), _all_at_once())
