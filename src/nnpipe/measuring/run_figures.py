"""Figures that follow from a result: the energy of an inference, its counted steps, and the
memory on a board.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from nnpipe.measuring.constraints import Figure
from nnpipe.measuring.quantile_intervals import CONFIDENCE, Sample, compute_correlated_mean_interval

if TYPE_CHECKING:
    from nnpipe.measuring.run import Run


def compute_energy_figure(run: Run, confidence: float = CONFIDENCE) -> Figure | None:
    """Return the joules of one inference, with an interval; ``None`` if no energy was asked for.

    The figure has no value, but a reason, if there was no sensor.
    """
    about = run.timing.get("energy")
    if not isinstance(about, Mapping):
        return None
    series = run.series.get("energy")
    if series is None or not len(series):
        return Figure.unknown(str(about.get("reason", "not measured"))[:1000])
    joules = series["joules"].astype(np.float64)
    idle = _get_idle_watts(about)
    if idle is not None:
        joules = joules - idle * series["duration_ns"] / 1e9
    calls = series["calls"]
    if not (np.isfinite(joules).all() and (calls > 0).all()):
        return Figure.unknown("the measured energy is not usable")
    value, total = float(np.sum(joules) / np.sum(calls)), int(np.sum(calls))
    if value <= 0:
        return Figure.unknown("inference took no more energy than the idle machine")
    ends = compute_correlated_mean_interval(joules / calls, confidence)
    return (
        Figure(value, count=total)
        if ends is None
        else Figure(value, min(ends[0], value), max(ends[1], value), total)
    )


def describe_energy_source(run: Run) -> str:
    """Return the sensor of a run's energy, with what was subtracted; the empty string without
    one.
    """
    about = run.timing.get("energy")
    if not isinstance(about, Mapping) or "source" not in about:
        return ""
    idle = _get_idle_watts(about)
    return f"{about['source']}"[:300] + (
        "" if idle is None else f", less an idle power of {idle:.3g} W"
    )


def _get_idle_watts(about: Mapping[str, object]) -> float | None:
    idle = about.get("idle_watts")
    return float(idle) if isinstance(idle, (int, float)) and math.isfinite(idle) else None


BOARD_FIGURES = ("flash", "ram", "arena", "stack")
"""The figures; each is ``timing.session.board`` with ``_bytes`` behind its name."""


def get_board_bytes(run: Run) -> Mapping[str, int]:
    """Return what the target of a run tells of flash and memory, by the names there; empty if it
    tells nothing.
    """
    session = run.timing.get("session")
    told = session.get("board") if isinstance(session, Mapping) else None
    if not isinstance(told, Mapping):
        return {}
    return {name: value for name, value in told.items() if type(value) is int and value >= 0}


def get_board_figure(run: Run, name: str) -> Figure:
    """Return one of :data:`BOARD_FIGURES`; it has no value, but a reason, if the target does not
    tell it.
    """
    value = get_board_bytes(run).get(f"{name}_bytes")
    if value is None:
        return Figure.unknown("only boards without an operating system tell it")
    return Figure.exactly(value)


COUNTERS = ("instructions", "cycles")
"""The counters whose counts are figures, as ``timing.session.counter`` names them."""


def get_counter(run: Run) -> str:
    """Return what the target of a run counted instead of time; empty if it has a clock, or there
    is no target.
    """
    session = run.timing.get("session")
    counter = session.get("counter") if isinstance(session, Mapping) else None
    return counter if counter in COUNTERS else ""


def compute_count_figure(run: Run, counter: str, confidence: float = CONFIDENCE) -> Figure:
    """Return the median of the counts of an inference, with an interval; counts that are all the
    same are exact.

    The figure has no value, but a reason, if the run's target counted something else.
    """
    inference = run.series.get("inference")
    known = get_counter(run)
    if (
        known != counter
        or inference is None
        or "target_counts" not in inference
        or not len(inference)
    ):
        return Figure.unknown(f"only targets tell it that count {counter} instead of time")
    counts = inference["target_counts"].astype(np.float64)
    if not (np.isfinite(counts).all() and (counts >= 0).all()):
        return Figure.unknown(f"the counted {counter} are not usable")
    if counts.min() == counts.max():
        return Figure(float(counts[0]), float(counts[0]), float(counts[0]), len(counts))
    ends = Sample(counts).interval(0.5, confidence)
    value = float(np.median(counts))
    return Figure(value, count=len(counts)) if ends is None else Figure(value, *ends, len(counts))
