"""Runs as they come from sound and from spoilt machines, made up: what spoilt each is known.

A sound run has a median of microseconds to tens of milliseconds, a body a few
percent wide, often two modes (two paths through an allocator or a cache), a
few slow calls of Pareto's kind, neighbours that resemble each other a little,
a level that wanders by a fraction of a percent, something that ticks, a clock
of some granularity, and pauses between goes of the loop.  The machine has 1 to
64 cores, almost idle but for the run and, now and then, something short.  Half
of all machines tell their clock rate, and some tell no counters at all, as old
files do.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from _simulations import burst_states, normal_series

from nnpipe.measuring.run import Run
from nnpipe.measuring.series import Series

Floats = npt.NDArray[np.float64]
Generator = np.random.Generator


@dataclass
class Scene:
    """A run in the making: true latencies, and what the machine does, each a function of time."""

    times: Floats
    gaps: Floats
    cores: int
    threads: int
    interval_ns: float
    granularity: float
    others: float  # cores that other processes use
    switches: float  # a second
    steal: float  # percent
    waiting: float  # share of time
    mhz: float | None
    counters: bool
    speed: Callable[[Floats], Floats] = lambda when: np.ones_like(when)
    ruler: float = 1.0
    throttles: int = 0
    held_up_ns: float = 0.0
    clock: Callable[[Floats], Floats] = lambda when: when
    wall: Callable[[Floats], Floats] = lambda when: when
    busy: Callable[[Floats], Floats] | None = None  # cores of others over time
    way: str = ""

    def begins(self) -> Floats:
        """Return when each call begins, in true nanoseconds."""
        length = self.times + self.gaps
        return np.cumsum(length) - length


def sound(random: Generator) -> Scene:
    """Make a run that nothing spoilt."""
    median = math.exp(random.uniform(math.log(5e3), math.log(2e7)))
    seconds = random.uniform(1.0, 4.0)
    calls = int(np.clip(seconds * 1e9 / median, random.integers(100, 400), 60_000))
    shape = np.exp(random.uniform(0.005, 0.12) * _alike(random, calls))
    if random.random() < 0.4:
        path = burst_states(random, calls, random.uniform(0.1, 0.4), random.uniform(1.1, 4.0))
        shape = shape * np.where(path, 1 + random.uniform(0.03, 0.25), 1.0)
    if random.random() < 0.5:  # the level wanders by a fraction of a percent
        memory = random.uniform(0.02, 0.2) * calls
        shape = shape * np.exp(
            random.uniform(0.0, 0.006) * normal_series(random, calls, math.exp(-1 / memory))
        )
    if random.random() < 0.3:  # something ticks: every so many calls one takes longer
        shape[:: int(random.integers(20, 500))] *= random.uniform(1.05, 2.5)
    slow = random.random(calls) < 10 ** random.uniform(-3.5, -2)
    shape = shape + np.where(
        slow, np.minimum(random.pareto(random.uniform(1.3, 2.5), calls), 100.0), 0.0
    )
    # A pause after each go of the loop, while outputs are judged.
    gaps = random.gamma(4.0, 800.0, calls)
    gaps[:: max(1, min(4096, int(1e9 / median)))] += random.uniform(1e5, 3e7)
    cores = int(2 ** random.integers(0, 7))
    # Now and then something short happens beside the run.
    blip = random.uniform(0, 0.9) * seconds * 1e9 if random.random() < 0.3 else -1e12
    quiet, loud = random.gamma(1.5, 0.03), random.uniform(0.2, 1.0)
    return Scene(
        times=median * shape,
        gaps=gaps,
        cores=cores,
        threads=int(random.integers(1, min(cores, 4) + 1)),
        interval_ns=float(random.choice([20e6, 50e6, 50e6, 100e6])),
        granularity=float(random.choice([1.0, 1.0, 10.0, 41.67, 100.0])),
        others=quiet,
        busy=lambda when: np.where((when > blip) & (when < blip + 60e6), loud, quiet),
        switches=random.gamma(1.5, 4.0),
        steal=random.exponential(0.15) * (random.random() < 0.5),
        waiting=random.beta(1, 60),
        mhz=random.uniform(1000, 4800) if random.random() < 0.5 else None,
        counters=random.random() < 0.85,
        ruler=random.normal(1.0, 0.012),
    )


def throttled(random: Generator) -> Scene:
    """Heat, power or a container's limit slow the processor down."""
    scene = sound(random)
    scene.way = way = str(random.choice(["clock rate", "counter", "ruler", "quota"]))
    total = float(scene.begins()[-1])
    if way == "quota":
        scene.counters = True
        quota = random.uniform(0.3, 0.9)  # of each 100 ms
        begins = scene.begins()
        late = (begins % 100e6) > quota * 100e6
        first = late & ~np.roll(late, 1)
        scene.times = scene.times + np.where(first, (1 - quota) * 100e6, 0.0)
        scene.held_up_ns = (1 - quota) * float(scene.begins()[-1])
        return scene
    onset, width = random.uniform(0.05, 0.55) * total, random.uniform(0.02, 0.15) * total
    depth = random.uniform(0.12, 0.5)
    swing, period = random.uniform(0, 0.04), total / random.uniform(3, 12)

    def speed(when: Floats) -> Floats:
        fallen = np.clip((when - onset) / width, 0, 1)
        return np.asarray(1 - depth * fallen + swing * fallen * np.sin(2 * np.pi * when / period))

    scene.speed = speed
    scene.times = scene.times / speed(scene.begins())
    if way == "clock rate":
        scene.mhz = random.uniform(1000, 4800)
    elif way == "counter":
        scene.counters, scene.throttles, scene.mhz = True, int(random.integers(1, 400)), None
    else:
        scene.counters, scene.mhz = True, None
    scene.ruler = random.normal(1.0, 0.012) / (1 - depth)
    return scene


def loaded(random: Generator) -> Scene:
    """Other processes, or other virtual machines, take processors, caches and memory."""
    scene = sound(random)
    begins, calls = scene.begins(), len(scene.times)
    scene.way = way = str(random.choice(["neighbours", "neighbours", "in turns", "steal"]))
    total = float(begins[-1])
    if way == "steal":
        scene.counters = True
        part = random.uniform(0.04, 0.4)
        scene.steal = 100 * part
        hits = random.random(calls) < np.minimum(scene.times * part / 4e6, 0.5)
        scene.times = scene.times + np.where(hits, random.uniform(1e6, 8e6, calls), 0)
        return scene
    scene.busy = None
    others = (
        random.uniform(0.5, 2.0) if scene.cores < 16 else scene.cores * random.uniform(0.06, 1.0)
    )
    active = np.ones(calls, bool)
    if way == "in turns":
        edges = np.sort(random.uniform(0, total, 2 * int(random.integers(1, 5))))
        active = np.searchsorted(edges, begins) % 2 == 1
        scene.busy = lambda when: np.where(np.searchsorted(edges, when) % 2 == 1, 2 * others, 0.05)
        others *= 2
    contended = min(1.0, (scene.threads + others) / scene.cores)
    scene.others = others
    if scene.threads + others > scene.cores:
        scene.switches = random.uniform(80, 400)
        scene.waiting = random.uniform(0.4, 1.0)
        hits = active & (random.random(calls) < np.minimum(scene.times * scene.switches / 1e9, 0.9))
        scene.times = scene.times + np.where(hits, random.uniform(1e6, 6e6, calls), 0.0)
    slower = 1 + contended * random.uniform(0.0, 0.25)
    scene.times = np.where(
        active, scene.times * slower * np.exp(0.03 * _alike(random, calls)), scene.times
    )
    return scene


def too_few(random: Generator) -> Scene:
    """A handful of calls."""
    scene = sound(random)
    keep = int(random.integers(1, 60))
    scene.times, scene.gaps = scene.times[:keep], scene.gaps[:keep]
    return scene


def clock_jumps(random: Generator) -> Scene:
    """A clock that leaps, goes back, stands still, or is too coarse for what it times."""
    scene = sound(random)
    total = float(scene.begins()[-1])
    at = random.uniform(0.1, 0.9) * total
    scene.counters = True
    scene.way = way = str(random.choice(["leap", "back", "time of day", "sleep", "coarse"]))
    leap = 10 ** random.uniform(7.7, 10)  # 50 ms to 10 s
    if way == "leap":
        scene.clock = lambda when: when + leap * (when > at)
    elif way == "back":
        back = random.uniform(2, 50) * float(np.median(scene.times)) + 1e6
        scene.clock = lambda when: when - back * (when > at)
    elif way == "time of day":
        sign = random.choice([-1, 1])
        scene.wall = lambda when: when + sign * leap * (when > at)
    elif way == "sleep":
        scene.clock = lambda when: np.where(when > at, np.maximum(when - leap, at), when)
        scene.times[np.searchsorted(scene.begins(), at) - 1] += leap
    else:
        scene.granularity = float(np.median(scene.times)) * random.choice([0.08, 0.3, 1.0, 5.0])
    return scene


def drifting(random: Generator) -> Scene:
    """A level that rises, or falls, all along: a leak, a heap in pieces, heat that no sensor
    tells of.
    """
    scene = sound(random)
    part = np.linspace(0, 1, len(scene.times))
    size = random.uniform(0.1, 0.8)
    scene.way = way = str(random.choice(["line", "bend", "fall"]))
    if way == "line":
        level = 1 + size * part
    elif way == "bend":
        rate = random.uniform(1, 3)
        level = 1 + size * (1 - np.exp(-rate * part)) / (1 - math.exp(-rate))
    else:
        level = 1 + size * (1 - part)
    scene.times = scene.times * level
    return scene


def run_of(scene: Scene, random: Generator, title: str = "made up") -> Run:
    """Record a scene as the loop and the sampler would."""
    begins = scene.begins()
    ends = begins + scene.times
    starts = _stamps(scene, begins)
    latency = _stamps(scene, ends) - starts
    inference = {
        "start_ns": starts,
        "latency_ns": latency,
        "samples": np.ones(len(starts), np.int64),
    }
    total = float(ends[-1])
    slew = random.uniform(-60e-6, 60e-6)
    before, after = _counters(scene, random, total, slew) if scene.counters else ({}, {})
    return Run(
        title=title,
        command=(),
        components={},
        frameworks={},
        host={
            "cpu": {"logical_cores": scene.cores},
            "before": {"counters": before},
            "after": {"counters": after},
        },
        timing={"warmup": 10, "batch_size": 1},
        series={
            "inference": Series(inference),
            "resources": Series(_resources(scene, random, total, slew)),
        },
    )


def _stamps(scene: Scene, when: Floats) -> npt.NDArray[np.int64]:
    tick = scene.granularity
    return np.asarray(np.round(np.floor(scene.clock(when) / tick) * tick), np.int64)


def _resources(
    scene: Scene, random: Generator, total: float, slew: float
) -> dict[str, npt.NDArray[Any]]:
    when = np.append(np.arange(scene.interval_ns, total, scene.interval_ns), total)
    when = when + random.uniform(0, 2e6, len(when))
    busy = scene.busy(when) if scene.busy is not None else np.full(len(when), scene.others)
    others = np.minimum(busy, scene.cores) * np.exp(0.2 * random.standard_normal(len(when)))
    own = np.minimum(100 * scene.threads, 100 * np.maximum(scene.cores - others, 0.3))
    own = np.maximum(own * (1 + 0.02 * random.standard_normal(len(when))), 0)
    # The system counts in steps of 10 ms, core by core.
    steps = scene.interval_ns / 1e7
    busy_steps = np.round((own / 100 + others) * steps + random.uniform(-0.7, 0.7, len(when)))
    found: dict[str, npt.NDArray[Any]] = {
        "time_ns": np.asarray(scene.clock(when), np.int64),
        "cpu_percent": own,
        "machine_cpu_percent": np.clip(100 * busy_steps / (steps * scene.cores), 0, 100),
        "process_bytes": np.full(len(when), 300_000_000),
        "memory_bytes": np.full(len(when), 5_000_000_000),
    }
    if scene.counters:
        read = scene.wall(when) * (1 + slew) + random.normal(0, 3000, len(when))
        found["wall_ns"] = np.asarray(read, np.int64)
        found["steal_percent"] = random.poisson(scene.steal, len(when)).astype(float)
        found["involuntary_switches"] = random.poisson(
            scene.switches * scene.interval_ns / 1e9, len(when)
        )
    if scene.mhz is not None:
        found["cpu_mhz"] = (
            scene.mhz * scene.speed(when) * (1 + 0.008 * random.standard_normal(len(when)))
        )
    return found


def _counters(
    scene: Scene, random: Generator, total: float, slew: float
) -> tuple[dict[str, int], dict[str, int]]:
    passed = np.array([total + random.uniform(2e7, 2e8)])
    ruler = random.uniform(5e4, 5e5)
    before = {
        "clock_ns": 10**12,
        "wall_ns": 10**18,
        "ruler_ns": int(ruler),
        "cpu_waiting_ns": 10**11,
        "thermal_throttles": 12,
        "quota_throttled_ns": 10**7,
    }
    grown = {
        "clock_ns": float(scene.clock(passed)[0]),
        "wall_ns": float(scene.wall(passed)[0]) * (1 + slew),
        "ruler_ns": ruler * (scene.ruler - 1),
        "cpu_waiting_ns": scene.waiting * passed[0],
        "thermal_throttles": scene.throttles,
        "quota_throttled_ns": scene.held_up_ns,
    }
    return before, {name: value + int(grown[name]) for name, value in before.items()}


SPOILT: dict[str, tuple[Callable[[Generator], Scene], frozenset[str]]] = {
    "throttled": (throttled, frozenset({"throttled"})),
    "loaded": (loaded, frozenset({"loaded", "preempted"})),
    "too few": (too_few, frozenset({"too few"})),
    "clock jumps": (clock_jumps, frozenset({"clock"})),
    "drifting": (drifting, frozenset({"drifting"})),
}
"""How to spoil a run, and which doubts name that."""


def _alike(random: Generator, calls: int) -> Floats:
    """Standard normal noise whose neighbours resemble each other a little."""
    return normal_series(random, calls, random.uniform(0.0, 0.6))
