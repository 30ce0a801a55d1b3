"""Doubts raised by the machine: throttling, load, preemption, clock jumps."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.measuring.doubt import Doubt
from nnpipe.measuring.order_statistics import Floats
from nnpipe.measuring.series import Series

_SLOWER_CLOCK = 0.93  # of the highest clock rates of the run
_HELD_UP = 0.01  # share of the time
_RULER, _FOLLOWED = 1.05, 1.03  # how much slower the reference work became, and how much slower the calls
_OTHERS, _OTHERS_SHARE = 0.3, 0.03  # cores, and share of all cores
_AT_TIMES, _SOMETIMES = 0.6, 0.1  # cores, and share of the observations: load that varies
_STEAL = 2.0  # percent of all cores
_SWITCHES = 50.0  # per second, not counting one for each observation of the sampler
_WAITING = 0.25  # share of the time in which some task waited for a processor
_JUMP_NS, _JUMP_SHARE = 1_000_000, 1e-3  # time servers slew clocks by up to 500 ppm


def throttled(times: Floats, resources: Series, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Doubt]:
    """Yield doubts about a processor that became slower: by heat, power management, or a container's CPU limit."""
    rate = _known(resources, "cpu_mhz")
    if len(rate) >= 6:
        highest, last = float(np.quantile(rate, 0.95)), float(np.median(rate[-(len(rate) // 3) :]))
        if last < _SLOWER_CLOCK * highest:
            yield Doubt("throttled", f"the processor's clock fell from {highest:.0f} to {last:.0f} MHz")
    count = _grown(before, after, "thermal_throttles")
    if count:
        yield Doubt("throttled", f"the processor slowed itself down {count:,.0f} times because of heat or power")
    passed = _grown(before, after, "clock_ns")
    held_up = _grown(before, after, "quota_throttled_ns")
    if passed and held_up > _HELD_UP * passed:
        yield Doubt("throttled", f"the container's limit of CPU time held it up for {held_up / 1e9:.2g} s")
    ruler, later = _number(before, "ruler_ns"), _number(after, "ruler_ns")
    if len(times) >= 30 and ruler > 0 and later > _RULER * ruler:
        begin, end = times[: max(15, len(times) // 20)], times[-(len(times) // 3) :]
        if np.median(end) > _FOLLOWED * np.median(begin):
            yield Doubt(
                "throttled",
                f"a fixed piece of work took {100 * (later / ruler - 1):.2g} % longer after the run than before it, "
                "and the calls became slower too",
            )


def loaded(resources: Series, cores: Any) -> Iterator[Doubt]:
    """Yield doubts about other load on the machine, or on the host of a virtual machine."""
    if isinstance(cores, int) and not isinstance(cores, bool) and 0 < cores < 1 << 20:
        others = _others(resources, cores)
        mean = float(np.mean(others)) if len(others) else 0.0
        share = float(np.mean(others > max(_AT_TIMES, _OTHERS_SHARE * cores))) if len(others) >= 10 else 0.0
        if mean > max(_OTHERS, _OTHERS_SHARE * cores):
            yield Doubt("loaded", f"other processes kept {mean:.2g} of {cores:,} cores busy")
        elif share > _SOMETIMES:
            yield Doubt("loaded", f"other processes kept up to {np.max(others):.2g} of {cores:,} cores busy at times")
    steal = _known(resources, "steal_percent")
    if len(steal) and float(np.mean(steal)) > _STEAL:
        yield Doubt("loaded", f"the host took {np.mean(steal):.2g} % of this virtual machine's processors for others")


def preempted(resources: Series, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Doubt]:
    """Yield doubts about calls that were preempted."""
    switches, when = _known(resources, "involuntary_switches"), _known(resources, "time_ns")
    if len(switches) >= 3 and len(when) == len(switches):
        gaps = np.diff(when)
        # Pauses of the sampler are excluded: only intervals of the usual length between observations count.
        usual = gaps <= 2 * float(np.median(gaps))
        seconds = float(gaps[usual].sum()) / 1e9
        rate = float(switches[1:][usual].sum()) / seconds if seconds > 0 else 0.0
        if rate > _SWITCHES + 1e9 / max(float(np.median(gaps)), 1.0):
            yield Doubt("preempted", f"the process lost its processor to others {rate:.0f} times a second")
            return
    passed, waited = _grown(before, after, "clock_ns"), _grown(before, after, "cpu_waiting_ns")
    if passed and waited > _WAITING * passed:
        share = 100 * min(1.0, waited / passed)
        yield Doubt("preempted", f"for {share:.0f} % of the time some task waited for a processor")


def clock_jumps(
    starts: npt.NDArray[Any],
    ends: npt.NDArray[Any],
    one_by_one: bool,
    resources: Series,
    before: Mapping[str, Any],
    after: Mapping[str, Any],
) -> Iterator[Doubt]:
    """Yield doubts about clocks that went backwards or that disagree on the elapsed time."""
    back = int(np.count_nonzero(ends < starts)) + int(np.count_nonzero(np.diff(starts) < 0))
    if one_by_one:
        back += int(np.count_nonzero(starts[1:] < ends[:-1]))
    if back:
        yield Doubt("clock", f"time went backwards {back:,} times")
        return
    clock, wall = _known(resources, "time_ns"), _known(resources, "wall_ns")
    apart, passed = np.empty(0), np.empty(0)
    if len(clock) == len(wall) > 1:
        passed, apart = np.diff(clock), np.diff(wall) - np.diff(clock)
    total = _grown(before, after, "clock_ns")
    if total:
        passed = np.append(passed, total)
        apart = np.append(apart, _grown(before, after, "wall_ns") - total)
    jumped = np.abs(apart) > _JUMP_NS + _JUMP_SHARE * np.abs(passed)
    if jumped.any():
        most = apart[np.argmax(np.abs(apart))]
        yield Doubt(
            "clock",
            f"the time of day went {abs(most) / 1e6:,.3g} ms {'further' if most > 0 else 'less'} than the clock that "
            "calls are timed with: one of them jumped, or the machine slept",
        )


def _others(resources: Series, cores: int) -> Floats:
    """Return how many cores other processes used at each observation."""
    if "machine_cpu_percent" not in resources:
        return np.empty(0)
    machine = np.asarray(resources["machine_cpu_percent"], np.float64)
    own = np.asarray(resources["cpu_percent"], np.float64) if "cpu_percent" in resources else np.zeros(len(machine))
    found = (machine * cores - own) / 100
    return np.asarray(found[np.isfinite(found)])


def _known(series: Series, column: str) -> Floats:
    """Return a column without NaN."""
    if column not in series:
        return np.empty(0)
    values = np.asarray(series[column], np.float64)
    return values[np.isfinite(values)]


def _grown(before: Mapping[str, Any], after: Mapping[str, Any], name: str) -> float:
    """Return the increase of a counter, or 0 if it is unknown."""
    first, last = _number(before, name), _number(after, name)
    return last - first if math.isfinite(last - first) else 0.0


def _number(mapping: Mapping[str, Any], name: str) -> float:
    """Return a number of a mapping, or NaN."""
    value = mapping.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or abs(value) > 1e300:
        return math.nan
    return float(value)
