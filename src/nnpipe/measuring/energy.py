"""Measure the energy of an inference, in runs of its own.

Calls follow one another in blocks of equal length, and the meter is read between the blocks.  A
block lasts many times as long as a step of the sensor.  Neighbouring blocks share a reading, so the
errors of readings cancel in the sum.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from nnpipe.core.energy_meter import EnergyMeter, MeterReading
from nnpipe.core.errors import NNPipeError, NotSupported
from nnpipe.core.progress import Progress, silent
from nnpipe.core.secret import hide_settings_secrets
from nnpipe.core.session import InferenceSession
from nnpipe.core.tensors import Batch
from nnpipe.measuring.loop import Clock, Window
from nnpipe.measuring.measure_options import MeasureOptions
from nnpipe.measuring.series import Series

BLOCKS = 20
_STEPS = 20  # steps of the sensor in a block, at least
_SHORTEST_S = 0.05
_LONGEST_S = 30.0  # of a block, so that no counter begins again twice in it
_IDLE_SPAN_S = 5.0  # between two readings, so that no counter begins again twice
_MOST_CALLS = 10_000_000  # in a block
_CHUNK_CALLS = 4096


def measure_energy(
    session: InferenceSession,
    batches: Sequence[Batch],
    samples: Sequence[int],
    meter: EnergyMeter,
    *,
    seconds: float = 5.0,
    idle_seconds: float = 0.0,
    progress: Progress = silent,
    clock: Clock = time.perf_counter_ns,
    sleep: Callable[[float], object] = time.sleep,
) -> tuple[Series, dict[str, Any]]:
    """Run batches repeatedly, and return the energy of each block of calls.

    Parameters
    ----------
    session
        The loaded model; not closed here.
    batches, samples
        Inputs that fit ``session.io``, all in memory, and the number of samples of each.
    meter
        Measures the energy.
    seconds
        The time to measure, at least; a slow sensor takes longer.
    idle_seconds
        If not 0, the power is first measured for so long without inferences, and subtracted.
    progress
        Receives each block.
    clock, sleep
        The clock, in nanoseconds, and the function that sleeps, in seconds.

    Returns
    -------
    Series
        One row per block: ``start_ns`` from the first, ``duration_ns``, ``calls``, ``samples`` and
        ``joules``, float64, from which nothing is subtracted.
    dict
        The entry for result files: ``source``, ``meter``, and, if asked for, ``idle_watts`` and
        ``idle_seconds``.

    Raises
    ------
    NNPipeError
        If there is no sensor, or it gave no usable values; the message says why.
    """
    with meter.open() as reading, Window(session, clock, settling=False) as window:
        window.check(batches)
        idle = _measure_idle(reading, idle_seconds, clock, sleep) if idle_seconds else []
        blocks = max(BLOCKS, math.ceil(seconds / _LONGEST_S))
        block_s = max(seconds / blocks, _STEPS * reading.resolution_s, _SHORTEST_S)
        calls = _find_call_count(block_s, window, batches, samples, clock)
        stamps, counted = [_record_mark(reading, clock)], 0
        for _ in progress(range(blocks), f"energy: {reading.source}", blocks):
            counted = _run(window, batches, samples, calls)
            stamps.append(_record_mark(reading, clock))
        joules = np.array(reading.joules(), np.float64)
    about: dict[str, Any] = {
        "source": reading.source,
        "meter": hide_settings_secrets(meter.describe()),
    }
    if idle:
        about |= {
            "idle_seconds": sum(idle),
            "idle_watts": float(np.sum(joules[: len(idle)])) / sum(idle),
        }
    marks = np.array(stamps, np.int64)
    columns = {
        "start_ns": marks[:-1] - marks[0],
        "duration_ns": np.diff(marks),
        "calls": np.full(blocks, calls, np.int64),
        "samples": np.full(blocks, counted, np.int64),
        "joules": joules[-blocks:],
    }
    return Series(columns), about


def run_energy_phase(
    session: InferenceSession,
    items: Sequence[tuple[Batch, int]],
    meter: EnergyMeter,
    options: MeasureOptions,
    remote: bool,
    timing: dict[str, Any],
    progress: Progress,
    clock: Clock,
) -> dict[str, Series]:
    """Measure the energy of inputs, each with its number of samples, and return the series.

    The entry for result files is put into ``timing``: the source, or the reason why there is no
    series.  A missing sensor does not spoil a measurement that took hours.
    """
    batches, samples = zip(*items, strict=True)
    try:
        if remote and meter.measures_host:
            raise NotSupported(
                f"{type(meter).__name__} measures this machine, and the model runs on a target"
            )
        found, timing["energy"] = measure_energy(
            session,
            batches,
            samples,
            meter,
            seconds=options.energy_seconds,
            idle_seconds=options.idle_seconds,
            progress=progress,
            clock=clock,
        )
    except NNPipeError as error:
        timing["energy"] = {"reason": str(error), "meter": hide_settings_secrets(meter.describe())}
        return {}
    return {"energy": found}


def _measure_idle(
    reading: MeterReading, seconds: float, clock: Clock, sleep: Callable[[float], object]
) -> list[float]:
    """Measure without inferences, and return the length of each span in seconds."""
    count = max(1, math.ceil(seconds / _IDLE_SPAN_S))
    stamps = [_record_mark(reading, clock)]
    for _ in range(count):
        sleep(seconds / count)
        stamps.append(_record_mark(reading, clock))
    return [(after - before) / 1e9 for before, after in pairwise(stamps)]


def _record_mark(reading: MeterReading, clock: Clock) -> int:
    reading.mark()
    return clock()


def _find_call_count(
    seconds: float, window: Window, batches: Sequence[Batch], samples: Sequence[int], clock: Clock
) -> int:
    """Return the number of calls that take so long, found by running more and more of them."""
    calls = 1
    while True:
        start = clock()
        _run(window, batches, samples, calls)
        took = max(clock() - start, 1) / 1e9
        if took >= seconds / 10 or calls >= _MOST_CALLS:
            return min(max(math.ceil(calls * seconds / took), 1), _MOST_CALLS)
        calls = min(math.ceil(calls * max(2.0, min(seconds / 8 / took, 100.0))), _MOST_CALLS)


def _run(window: Window, batches: Sequence[Batch], samples: Sequence[int], calls: int) -> int:
    """Run so many calls, repeating the batches, and return the number of samples."""
    counted = 0
    for first in range(0, calls, _CHUNK_CALLS):
        turns = [number % len(batches) for number in range(first, min(first + _CHUNK_CALLS, calls))]
        counts = [samples[number] for number in turns]
        window.run_chunk([batches[number] for number in turns], counts, keep=False)
        # a long measurement of a small network would fill the memory with times
        window.chunks.clear()
        counted += sum(counts)
    return counted
