"""Doubts raised by the latencies: too few, warming up, drifting, unstable, dependent, or a coarse clock."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.measuring.autocorrelation import effective_samples
from nnpipe.measuring.doubt import Doubt
from nnpipe.measuring.early_stopping import least_samples
from nnpipe.measuring.order_statistics import Floats

FEWEST_CALLS = least_samples(0.9, 1)
"""64, MLPerf's least number for a p90."""

_SHORTEST_NS = 50_000_000  # scheduler and clock rate change on this scale; a shorter run sees only one state of them

_WINDOWS = 20
_CALLS_A_WINDOW = 6  # at least
_DRIFT = 0.03  # change of level from beginning to end, and ...
_DRIFT_Z = 3.3  # ... how many standard deviations the order of windows is off
_SPREAD = 1.10  # slowest window by fastest, the rule of perf_analyzer, and ...
_EXCESS = 8.0  # ... how much more the windows scatter than independent calls would; short-range correlation reaches 5
_STALL, _STALLED = 10.0, 0.25  # a call of this many medians is a stall; the share of time that stalls may take
_EFFECTIVE, _EFFECTIVE_SHARE = 30, 0.1  # independent calls for the median, and their share of all
_LONG = 0.2  # of the run: a longer warm-up may be a drift

_COARSE = 0.02  # of the median: the largest clock step that is accepted


def too_few(times: Floats, starts: npt.NDArray[Any]) -> Iterator[Doubt]:
    """Yield doubts about too few calls, or too short a time, to see a distribution."""
    if len(times) < FEWEST_CALLS:
        yield Doubt("too few", f"{len(times)} calls; {FEWEST_CALLS} are the least for a p90 (MLPerf)")
        return
    covered = float(starts[-1] - starts[0]) + times[-1]
    if covered < _SHORTEST_NS:
        yield Doubt(
            "too few",
            f"all {len(times):,} calls lie within {covered / 1e6:.3g} ms; clock rate and scheduler change more slowly",
        )


def stability(times: Floats, warm_up: int) -> Iterator[Doubt]:
    """Yield doubts about changes during a run: warm-up of so many calls, drift, instability and dependent calls."""
    if warm_up > _LONG * len(times) and any(doubt.kind == "drifting" for doubt in _moved(times)):
        warm_up = 0  # it does not end
    if warm_up:
        before, after = float(np.median(times[:warm_up])), float(np.median(times[warm_up:]))
        yield Doubt(
            "warming up",
            f"the first {warm_up:,} of {len(times):,} calls look like warm-up: "
            f"their median is {_percent(before, after)} above that of the rest",
        )
    steady = times[warm_up:]
    moved = list(_moved(steady))
    yield from moved
    if moved or warm_up or len(steady) < FEWEST_CALLS:
        return
    effective = effective_samples(steady)
    if effective < min(_EFFECTIVE, _EFFECTIVE_SHARE * len(steady)):
        yield Doubt(
            "dependent",
            f"neighbouring calls are so alike that {len(steady):,} tell as much as {effective:.0f} independent ones",
        )


def _moved(times: Floats) -> Iterator[Doubt]:
    number = min(_WINDOWS, len(times) // _CALLS_A_WINDOW)
    if number < 5:
        return
    size = len(times) // number
    windows = times[len(times) - number * size :].reshape(number, size)
    levels = np.median(windows, axis=1)
    level = float(np.median(levels))
    if not level > 0:
        return
    change, order = _trend(levels)
    if abs(order) > _DRIFT_Z and abs(change) > _DRIFT * level:
        yield Doubt(
            "drifting",
            f"calls got {_percent(level + abs(change), level)} {'slower' if change > 0 else 'faster'} "
            "from the beginning to the end",
        )
    elif levels.max() > _SPREAD * levels.min() and _scatter(windows) > _EXCESS:
        yield Doubt(
            "unstable",
            f"the medians of {number} stretches of the run differ by up to {_percent(levels.max(), levels.min())}",
        )
    stalls = times > _STALL * level
    lost = float(times[stalls].sum() / times.sum())
    if lost > _STALLED:
        yield Doubt(
            "unstable",
            f"{int(stalls.sum()):,} calls of more than {_STALL:g} times the median took {100 * lost:.0f} % of all time",
        )


def _trend(levels: Floats) -> tuple[float, float]:
    """Return the change from first to last by the Theil-Sen slope, and the Mann-Kendall trend statistic.

    H. Theil, Proceedings KNAW 53 (1950); P. K. Sen, JASA 63 (1968), 1379-1389; H. B. Mann, Econometrica 13 (1945).
    """
    number = len(levels)
    earlier, later = np.triu_indices(number, 1)
    rises = levels[later] - levels[earlier]
    variance = number * (number - 1) * (2 * number + 5) / 18
    slope = float(np.median(rises / (later - earlier)))
    return slope * (number - 1), float(np.sign(rises).sum()) / math.sqrt(variance)


def _scatter(windows: Floats) -> float:
    """Return the variance of the share of slow calls between windows, as a multiple of that expected by chance."""
    slow = windows > np.median(windows)
    share = slow.mean()
    expected = share * (1 - share) / windows.shape[1]
    return float(slow.mean(axis=1).var(ddof=1) / expected) if expected > 0 else 0.0


def coarse_clock(times: Floats) -> Iterator[Doubt]:
    """Yield doubts about latencies with steps that are large compared with the median."""
    level = float(np.median(times))
    values = np.unique(times)
    # Slow calls are so rare that the gaps between them say little about the clock.
    usual = values[values <= np.quantile(times, 0.75)]
    step = _step(usual if len(usual) > 2 else values[:5], level)
    zeros = int(np.count_nonzero(times <= 0))
    if len(times) < FEWEST_CALLS:
        return
    if zeros > 0.05 * len(times):
        yield Doubt(
            "clock", f"{zeros:,} of {len(times):,} calls took no time by this clock, which is too coarse for them"
        )
    elif len(values) < len(times) / 2 and step > _COARSE * level:
        yield Doubt("clock", f"times come in steps of {step:.3g} ns, {_percent(level + step, level)} of the median")


def _step(values: Floats, level: float) -> float:
    """Return the step between ascending values, or 0 if none is visible; values may be inexact by a nanosecond."""
    gaps = np.diff(values)
    wide = gaps[gaps > 2 + 1e-3 * level]
    return float(np.median(wide)) if 3 * len(wide) >= max(len(gaps), 1) else 0.0


def _percent(greater: float, less: float) -> str:
    return f"{100 * (greater / less - 1):.2g} %" if less > 0 else "far"
