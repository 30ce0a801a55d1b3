"""Find reasons to distrust a measurement in its recorded data.

Nothing is removed or corrected: a doubt describes an observation, and the
measured values stay unchanged.  The two modules that search for doubts define
their thresholds at the top.  ``benchmarks/spoiled_runs.py`` shows how often
deliberately disturbed runs are detected, and how often sound runs are suspected.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from nnpipe.measuring.early_stopping import compute_least_samples
from nnpipe.measuring.quantile_intervals import Floats, count_effective_samples, count_warm_up_calls
from nnpipe.measuring.series import Series
from nnpipe.measuring.validity_warning import Kind, ValidityWarning

if TYPE_CHECKING:
    from nnpipe.measuring.run import Run

__all__ = [
    "FEWEST_CALLS",
    "Kind",
    "ValidityWarning",
    "check_call_count",
    "check_clock_jumps",
    "check_clock_resolution",
    "check_other_load",
    "check_preemption",
    "check_settings",
    "check_stability",
    "check_throttling",
    "diagnose",
]

FEWEST_CALLS = compute_least_samples(0.9, 1)
"""64, MLPerf's least number for a p90."""

# scheduler and clock rate change on this scale; a shorter run sees only one state of them
_SHORTEST_NS = 50_000_000

_WINDOWS = 20
_CALLS_A_WINDOW = 6  # at least
_DRIFT = 0.03  # change of level from beginning to end, and ...
_DRIFT_Z = 3.3  # ... how many standard deviations the order of windows is off
_SPREAD = 1.10  # slowest window by fastest, the rule of perf_analyzer, and ...
# ... how much more the windows scatter than independent calls would; short-range correlation
# reaches 5
_EXCESS = 8.0
# a call of this many medians is a stall; the share of time that stalls may take
_STALL, _STALLED = 10.0, 0.25
_EFFECTIVE, _EFFECTIVE_SHARE = 30, 0.1  # independent calls for the median, and their share of all
_LONG = 0.2  # of the run: a longer warm-up may be a drift

_COARSE = 0.02  # of the median: the largest clock step that is accepted


def check_call_count(times: Floats, starts: npt.NDArray[Any]) -> Iterator[ValidityWarning]:
    """Yield doubts about too few calls, or too short a time, to see a distribution."""
    if len(times) < FEWEST_CALLS:
        yield ValidityWarning(
            "too few", f"{len(times)} calls; {FEWEST_CALLS} are the least for a p90 (MLPerf)"
        )
        return
    covered = float(starts[-1] - starts[0]) + times[-1]
    if covered < _SHORTEST_NS:
        yield ValidityWarning(
            "too few",
            f"all {len(times):,} calls lie within {covered / 1e6:.3g} ms; clock rate and scheduler "
            f"change more slowly",
        )


def check_stability(times: Floats, warm_up: int) -> Iterator[ValidityWarning]:
    """Yield doubts about changes during a run: warm-up of so many calls, drift, instability and
    dependent calls.
    """
    if warm_up > _LONG * len(times) and any(
        doubt.kind == "drifting" for doubt in _check_drift(times)
    ):
        warm_up = 0  # it does not end
    if warm_up:
        before, after = float(np.median(times[:warm_up])), float(np.median(times[warm_up:]))
        yield ValidityWarning(
            "warming up",
            f"the first {warm_up:,} of {len(times):,} calls look like warm-up: their median is "
            f"{_format_percent(before, after)} above that of the rest",
        )
    steady = times[warm_up:]
    moved = list(_check_drift(steady))
    yield from moved
    if moved or warm_up or len(steady) < FEWEST_CALLS:
        return
    effective = count_effective_samples(steady)
    if effective < min(_EFFECTIVE, _EFFECTIVE_SHARE * len(steady)):
        yield ValidityWarning(
            "dependent",
            f"neighbouring calls are so alike that {len(steady):,} tell as much as {effective:.0f} "
            f"independent ones",
        )


def _check_drift(times: Floats) -> Iterator[ValidityWarning]:
    number = min(_WINDOWS, len(times) // _CALLS_A_WINDOW)
    if number < 5:
        return
    size = len(times) // number
    windows = times[len(times) - number * size :].reshape(number, size)
    levels = np.median(windows, axis=1)
    level = float(np.median(levels))
    if not level > 0:
        return
    change, order = _compute_trend(levels)
    if abs(order) > _DRIFT_Z and abs(change) > _DRIFT * level:
        yield ValidityWarning(
            "drifting",
            f"calls got {_format_percent(level + abs(change), level)} "
            f"{'slower' if change > 0 else 'faster'} "
            "from the beginning to the end",
        )
    elif levels.max() > _SPREAD * levels.min() and _compute_scatter(windows) > _EXCESS:
        yield ValidityWarning(
            "unstable",
            f"the medians of {number} stretches of the run differ by up to "
            f"{_format_percent(levels.max(), levels.min())}",
        )
    stalls = times > _STALL * level
    lost = float(times[stalls].sum() / times.sum())
    if lost > _STALLED:
        yield ValidityWarning(
            "unstable",
            f"{int(stalls.sum()):,} calls of more than {_STALL:g} times the median took "
            f"{100 * lost:.0f} % of all time",
        )


def _compute_trend(levels: Floats) -> tuple[float, float]:
    """Return the change from first to last by the Theil-Sen slope, and the Mann-Kendall trend
    statistic.

    H. Theil, Proceedings KNAW 53 (1950); P. K. Sen, JASA 63 (1968), 1379-1389; H. B. Mann,
    Econometrica 13 (1945).
    """
    number = len(levels)
    earlier, later = np.triu_indices(number, 1)
    rises = levels[later] - levels[earlier]
    variance = number * (number - 1) * (2 * number + 5) / 18
    slope = float(np.median(rises / (later - earlier)))
    return slope * (number - 1), float(np.sign(rises).sum()) / math.sqrt(variance)


def _compute_scatter(windows: Floats) -> float:
    """Return the variance of the share of slow calls between windows, as a multiple of that
    expected by chance.
    """
    slow = windows > np.median(windows)
    share = slow.mean()
    expected = share * (1 - share) / windows.shape[1]
    return float(slow.mean(axis=1).var(ddof=1) / expected) if expected > 0 else 0.0


def check_clock_resolution(times: Floats) -> Iterator[ValidityWarning]:
    """Yield doubts about latencies with steps that are large compared with the median."""
    level = float(np.median(times))
    values = np.unique(times)
    # Slow calls are so rare that the gaps between them say little about the clock.
    usual = values[values <= np.quantile(times, 0.75)]
    step = _find_step(usual if len(usual) > 2 else values[:5], level)
    zeros = int(np.count_nonzero(times <= 0))
    if len(times) < FEWEST_CALLS:
        return
    if zeros > 0.05 * len(times):
        yield ValidityWarning(
            "clock",
            f"{zeros:,} of {len(times):,} calls took no time by this clock, which is too coarse "
            f"for them",
        )
    elif len(values) < len(times) / 2 and step > _COARSE * level:
        yield ValidityWarning(
            "clock",
            f"times come in steps of {step:.3g} ns, {_format_percent(level + step, level)} of the "
            f"median",
        )


def _find_step(values: Floats, level: float) -> float:
    """Return the step between ascending values, or 0 if none is visible; values may be inexact
    by a nanosecond.
    """
    gaps = np.diff(values)
    wide = gaps[gaps > 2 + 1e-3 * level]
    return float(np.median(wide)) if 3 * len(wide) >= max(len(gaps), 1) else 0.0


def _format_percent(greater: float, less: float) -> str:
    return f"{100 * (greater / less - 1):.2g} %" if less > 0 else "far"


_SLOWER_CLOCK = 0.93  # of the highest clock rates of the run
_HELD_UP = 0.01  # share of the time
# how much slower the reference work became, and how much slower the calls
_RULER, _FOLLOWED = 1.05, 1.03
_OTHERS, _OTHERS_SHARE = 0.3, 0.03  # cores, and share of all cores
_AT_TIMES, _SOMETIMES = 0.6, 0.1  # cores, and share of the observations: load that varies
_STEAL = 2.0  # percent of all cores
_SWITCHES = 50.0  # per second, not counting one for each observation of the sampler
_WAITING = 0.25  # share of the time in which some task waited for a processor
_JUMP_NS, _JUMP_SHARE = 1_000_000, 1e-3  # time servers slew clocks by up to 500 ppm


def check_throttling(
    times: Floats, resources: Series, before: Mapping[str, Any], after: Mapping[str, Any]
) -> Iterator[ValidityWarning]:
    """Yield doubts about a processor that became slower: by heat, power management, or a
    container's CPU limit.
    """
    rate = _get_finite_column(resources, "cpu_mhz")
    if len(rate) >= 6:
        highest, last = float(np.quantile(rate, 0.95)), float(np.median(rate[-(len(rate) // 3) :]))
        if last < _SLOWER_CLOCK * highest:
            yield ValidityWarning(
                "throttled", f"the processor's clock fell from {highest:.0f} to {last:.0f} MHz"
            )
    count = _compute_increase(before, after, "thermal_throttles")
    if count:
        yield ValidityWarning(
            "throttled",
            f"the processor slowed itself down {count:,.0f} times because of heat or power",
        )
    passed = _compute_increase(before, after, "clock_ns")
    held_up = _compute_increase(before, after, "quota_throttled_ns")
    if passed and held_up > _HELD_UP * passed:
        yield ValidityWarning(
            "throttled", f"the container's limit of CPU time held it up for {held_up / 1e9:.2g} s"
        )
    ruler, later = _get_number(before, "ruler_ns"), _get_number(after, "ruler_ns")
    if len(times) >= 30 and ruler > 0 and later > _RULER * ruler:
        begin, end = times[: max(15, len(times) // 20)], times[-(len(times) // 3) :]
        if np.median(end) > _FOLLOWED * np.median(begin):
            yield ValidityWarning(
                "throttled",
                f"a fixed piece of work took {100 * (later / ruler - 1):.2g} % longer after the "
                f"run than before it, "
                "and the calls became slower too",
            )


def check_other_load(resources: Series, cores: Any) -> Iterator[ValidityWarning]:
    """Yield doubts about other load on the machine, or on the host of a virtual machine."""
    if isinstance(cores, int) and not isinstance(cores, bool) and 0 < cores < 1 << 20:
        others = _compute_other_load(resources, cores)
        mean = float(np.mean(others)) if len(others) else 0.0
        share = (
            float(np.mean(others > max(_AT_TIMES, _OTHERS_SHARE * cores)))
            if len(others) >= 10
            else 0.0
        )
        if mean > max(_OTHERS, _OTHERS_SHARE * cores):
            yield ValidityWarning(
                "loaded", f"other processes kept {mean:.2g} of {cores:,} cores busy"
            )
        elif share > _SOMETIMES:
            yield ValidityWarning(
                "loaded",
                f"other processes kept up to {np.max(others):.2g} of {cores:,} cores busy at times",
            )
    steal = _get_finite_column(resources, "steal_percent")
    if len(steal) and float(np.mean(steal)) > _STEAL:
        yield ValidityWarning(
            "loaded",
            f"the host took {np.mean(steal):.2g} % of this virtual machine's processors for others",
        )


def check_preemption(
    resources: Series, before: Mapping[str, Any], after: Mapping[str, Any]
) -> Iterator[ValidityWarning]:
    """Yield doubts about calls that were preempted."""
    switches, when = (
        _get_finite_column(resources, "involuntary_switches"),
        _get_finite_column(resources, "time_ns"),
    )
    if len(switches) >= 3 and len(when) == len(switches):
        gaps = np.diff(when)
        # Pauses of the sampler are excluded: only intervals of the usual length between
        # observations count.
        usual = gaps <= 2 * float(np.median(gaps))
        seconds = float(gaps[usual].sum()) / 1e9
        rate = float(switches[1:][usual].sum()) / seconds if seconds > 0 else 0.0
        if rate > _SWITCHES + 1e9 / max(float(np.median(gaps)), 1.0):
            yield ValidityWarning(
                "preempted", f"the process lost its processor to others {rate:.0f} times a second"
            )
            return
    passed, waited = (
        _compute_increase(before, after, "clock_ns"),
        _compute_increase(before, after, "cpu_waiting_ns"),
    )
    if passed and waited > _WAITING * passed:
        share = 100 * min(1.0, waited / passed)
        yield ValidityWarning(
            "preempted", f"for {share:.0f} % of the time some task waited for a processor"
        )


def check_clock_jumps(
    starts: npt.NDArray[Any],
    ends: npt.NDArray[Any],
    one_by_one: bool,
    resources: Series,
    before: Mapping[str, Any],
    after: Mapping[str, Any],
) -> Iterator[ValidityWarning]:
    """Yield doubts about clocks that went backwards or that disagree on the elapsed time."""
    back = int(np.count_nonzero(ends < starts)) + int(np.count_nonzero(np.diff(starts) < 0))
    if one_by_one:
        back += int(np.count_nonzero(starts[1:] < ends[:-1]))
    if back:
        yield ValidityWarning("clock", f"time went backwards {back:,} times")
        return
    clock, wall = _get_finite_column(resources, "time_ns"), _get_finite_column(resources, "wall_ns")
    apart, passed = np.empty(0), np.empty(0)
    if len(clock) == len(wall) > 1:
        passed, apart = np.diff(clock), np.diff(wall) - np.diff(clock)
    total = _compute_increase(before, after, "clock_ns")
    if total:
        passed = np.append(passed, total)
        apart = np.append(apart, _compute_increase(before, after, "wall_ns") - total)
    jumped = np.abs(apart) > _JUMP_NS + _JUMP_SHARE * np.abs(passed)
    if jumped.any():
        most = apart[np.argmax(np.abs(apart))]
        yield ValidityWarning(
            "clock",
            f"the time of day went {abs(most) / 1e6:,.3g} ms {'further' if most > 0 else 'less'} "
            f"than the clock that "
            "calls are timed with: one of them jumped, or the machine slept",
        )


def _compute_other_load(resources: Series, cores: int) -> Floats:
    """Return how many cores other processes used at each observation."""
    if "machine_cpu_percent" not in resources:
        return np.empty(0)
    machine = np.asarray(resources["machine_cpu_percent"], np.float64)
    own = (
        np.asarray(resources["cpu_percent"], np.float64)
        if "cpu_percent" in resources
        else np.zeros(len(machine))
    )
    found = (machine * cores - own) / 100
    return np.asarray(found[np.isfinite(found)])


def _get_finite_column(series: Series, column: str) -> Floats:
    """Return a column without NaN."""
    if column not in series:
        return np.empty(0)
    values = np.asarray(series[column], np.float64)
    return values[np.isfinite(values)]


def _compute_increase(before: Mapping[str, Any], after: Mapping[str, Any], name: str) -> float:
    """Return the increase of a counter, or 0 if it is unknown."""
    first, last = _get_number(before, name), _get_number(after, name)
    return last - first if math.isfinite(last - first) else 0.0


def _get_number(mapping: Mapping[str, Any], name: str) -> float:
    """Return a number of a mapping, or NaN."""
    value = mapping.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or abs(value) > 1e300:
        return math.nan
    return float(value)


def diagnose(run: Run, warm_up: int | None = None) -> tuple[ValidityWarning, ...]:
    """Return the reasons to distrust a run; empty if none is found.

    Files of older versions contain less data, so fewer doubts are found in them. If the model ran
    on a target, the target's times, or what it counts instead, are checked, not the state of this
    machine.  For candidates measured in turns, only the clock is checked, since their comparison
    already allows for mutual influence and for differences between starts.

    ``warm_up`` is the number of calls that
    :func:`nnpipe.measuring.quantile_intervals.count_warm_up_calls` returns, if it is known.
    """
    inference = run.series.get("inference")
    if inference is None or "latency_ns" not in inference or not len(inference):
        return ()
    with np.errstate(all="ignore"):  # a result file may contain any number
        return (*check_settings(run), *_check_series(run, inference, warm_up))


def check_settings(run: Run) -> Iterator[ValidityWarning]:
    """Yield a doubt if the run has handicaps, such as settings that make the framework slower."""
    told = run.timing.get("settings")
    if isinstance(told, list) and told:
        yield ValidityWarning(
            "settings", f"not as its makers would run it: {', '.join(map(str, told))}"
        )


def _check_series(run: Run, inference: Series, warm_up: int | None) -> Iterator[ValidityWarning]:
    known = next(name for name in ("target_ns", "target_counts", "latency_ns") if name in inference)
    remote, counted = known != "latency_ns", known == "target_counts"
    times = np.asarray(inference[known], np.float64)
    latency = np.asarray(inference["latency_ns"], np.float64)
    starts = (
        np.asarray(inference["start_ns"], np.float64)
        if "start_ns" in inference
        else np.cumsum(latency) - latency
    )
    if "round" in inference:  # the recorded state of the machine belongs to an earlier run
        yield from check_clock_jumps(starts, starts + latency, False, Series({}), {}, {})
        yield from check_clock_resolution(times)
        return
    resources = run.series.get("resources", Series({}))
    before, after = (
        _to_mapping(_to_mapping(run.host.get(when)).get("counters")) for when in ("before", "after")
    )
    # Calls on a schedule may wait for each other, so their times overlap.
    one_by_one = "scheduled_ns" not in inference and "load" not in run.timing
    jumps = list(check_clock_jumps(starts, starts + latency, one_by_one, resources, before, after))
    yield from jumps
    if jumps and (times < 0).any():
        return
    if not counted:  # instructions repeat, and there is no clock
        yield from check_clock_resolution(times)
        yield from check_call_count(times, starts)
    if not remote:
        yield from check_throttling(times, resources, before, after)
        yield from check_other_load(
            resources, _to_mapping(run.host.get("cpu")).get("logical_cores")
        )
        yield from check_preemption(resources, before, after)
    yield from check_stability(times, count_warm_up_calls(times) if warm_up is None else warm_up)


def _to_mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
