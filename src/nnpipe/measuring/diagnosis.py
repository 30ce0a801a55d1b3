"""Reasons to distrust a measurement, found in what was recorded of it.

Nothing is removed and nothing corrected: a doubt says what was seen, and
figures stay as they were measured.  Thresholds stand at the head of the two
modules that look; ``benchmarks/spoiled_runs.py`` tells how often runs that are
spoilt on purpose are found out, and sound ones suspected.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from nnpipe.measuring._latency_doubts import coarse_clock, stability, too_few
from nnpipe.measuring._machine_doubts import clock_jumps, loaded, preempted, throttled
from nnpipe.measuring.doubt import Doubt, Kind
from nnpipe.measuring.series import Series

if TYPE_CHECKING:
    from nnpipe.measuring.run import Run

__all__ = ("Doubt", "Kind", "diagnose", "settings_doubts")


def diagnose(run: Run) -> tuple[Doubt, ...]:
    """Name what may have spoilt a run; nothing if no reason is known.

    Files of older versions hold less, and less is found in them.  Where the
    model ran on a target, its own times are judged; what this side's machine
    did meanwhile says nothing about them.  Of candidates that took turns only
    the clock is judged: what they do to each other, and what differs from start
    to start, is what their comparison allows for.
    """
    inference = run.series.get("inference")
    if inference is None or "latency_ns" not in inference or not len(inference):
        return ()
    with np.errstate(all="ignore"):  # a result file may hold any number
        return (*settings_doubts(run), *_doubts(run, inference))


def settings_doubts(run: Run) -> Iterator[Doubt]:
    """Doubt a run that was not set up as the framework's makers would."""
    told = run.timing.get("settings")
    if isinstance(told, list) and told:
        yield Doubt("settings", f"not as its makers would run it: {', '.join(map(str, told))}")


def _doubts(run: Run, inference: Series) -> Iterator[Doubt]:
    remote = "target_ns" in inference
    times = np.asarray(inference["target_ns" if remote else "latency_ns"], np.float64)
    latency = np.asarray(inference["latency_ns"], np.float64)
    starts = np.asarray(inference["start_ns"], np.float64) if "start_ns" in inference else np.cumsum(latency) - latency
    if "round" in inference:  # what was observed of the machine belongs to an earlier run
        yield from clock_jumps(starts, starts + latency, False, Series({}), {}, {})
        yield from coarse_clock(times)
        return
    resources = run.series.get("resources", Series({}))
    before, after = (_mapping(_mapping(run.host.get(when)).get("counters")) for when in ("before", "after"))
    # Calls that arrive on a schedule may wait for each other, and their times overlap.
    one_by_one = "scheduled_ns" not in inference and "load" not in run.timing
    jumps = list(clock_jumps(starts, starts + latency, one_by_one, resources, before, after))
    yield from jumps
    if jumps and (times < 0).any():
        return
    yield from coarse_clock(times)
    yield from too_few(times, starts)
    if not remote:
        yield from throttled(times, resources, before, after)
        yield from loaded(resources, _mapping(run.host.get("cpu")).get("logical_cores"))
        yield from preempted(resources, before, after)
    yield from stability(times)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
