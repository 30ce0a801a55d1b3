"""Find reasons to distrust a measurement in its recorded data.

Nothing is removed or corrected: a doubt describes an observation, and the
measured values stay unchanged.  The two modules that search for doubts define
their thresholds at the top.  ``benchmarks/spoiled_runs.py`` shows how often
deliberately disturbed runs are detected, and how often sound runs are suspected.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from nnpipe.measuring._latency_doubts import coarse_clock, stability, too_few
from nnpipe.measuring._machine_doubts import clock_jumps, loaded, preempted, throttled
from nnpipe.measuring.doubt import Doubt, Kind
from nnpipe.measuring.series import Series
from nnpipe.measuring.warmup import warm_up_calls

if TYPE_CHECKING:
    from nnpipe.measuring.run import Run

__all__ = ("Doubt", "Kind", "diagnose", "settings_doubts")


def diagnose(run: Run, warm_up: int | None = None) -> tuple[Doubt, ...]:
    """Return the reasons to distrust a run; empty if none is found.

    Files of older versions contain less data, so fewer doubts are found in them.
    If the model ran on a target, the target's times, or what it counts instead, are checked, not the state of
    this machine.  For candidates measured in turns, only the clock is checked,
    since their comparison already allows for mutual influence and for differences
    between starts.

    ``warm_up`` is the number of calls that :func:`nnpipe.measuring.warmup.warm_up_calls` returns, if it is known.
    """
    inference = run.series.get("inference")
    if inference is None or "latency_ns" not in inference or not len(inference):
        return ()
    with np.errstate(all="ignore"):  # a result file may contain any number
        return (*settings_doubts(run), *_doubts(run, inference, warm_up))


def settings_doubts(run: Run) -> Iterator[Doubt]:
    """Yield a doubt if the run has handicaps, such as settings that make the framework slower."""
    told = run.timing.get("settings")
    if isinstance(told, list) and told:
        yield Doubt("settings", f"not as its makers would run it: {', '.join(map(str, told))}")


def _doubts(run: Run, inference: Series, warm_up: int | None) -> Iterator[Doubt]:
    known = next(name for name in ("target_ns", "target_counts", "latency_ns") if name in inference)
    remote, counted = known != "latency_ns", known == "target_counts"
    times = np.asarray(inference[known], np.float64)
    latency = np.asarray(inference["latency_ns"], np.float64)
    starts = np.asarray(inference["start_ns"], np.float64) if "start_ns" in inference else np.cumsum(latency) - latency
    if "round" in inference:  # the recorded state of the machine belongs to an earlier run
        yield from clock_jumps(starts, starts + latency, False, Series({}), {}, {})
        yield from coarse_clock(times)
        return
    resources = run.series.get("resources", Series({}))
    before, after = (_mapping(_mapping(run.host.get(when)).get("counters")) for when in ("before", "after"))
    # Calls on a schedule may wait for each other, so their times overlap.
    one_by_one = "scheduled_ns" not in inference and "load" not in run.timing
    jumps = list(clock_jumps(starts, starts + latency, one_by_one, resources, before, after))
    yield from jumps
    if jumps and (times < 0).any():
        return
    if not counted:  # instructions repeat, and there is no clock
        yield from coarse_clock(times)
        yield from too_few(times, starts)
    if not remote:
        yield from throttled(times, resources, before, after)
        yield from loaded(resources, _mapping(run.host.get("cpu")).get("logical_cores"))
        yield from preempted(resources, before, after)
    yield from stability(times, warm_up_calls(times) if warm_up is None else warm_up)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
