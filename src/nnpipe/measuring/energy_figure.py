"""The energy of an inference, from what a result file holds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from nnpipe.measuring.autocorrelation import mean_interval
from nnpipe.measuring.constraints import Figure
from nnpipe.measuring.order_statistics import CONFIDENCE

if TYPE_CHECKING:
    from nnpipe.measuring.run import Run


def energy_figure(run: Run, confidence: float = CONFIDENCE) -> Figure | None:
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
    idle = _idle_watts(about)
    if idle is not None:
        joules = joules - idle * series["duration_ns"] / 1e9
    calls = series["calls"]
    if not (np.isfinite(joules).all() and (calls > 0).all()):
        return Figure.unknown("the measured energy is not usable")
    value, total = float(np.sum(joules) / np.sum(calls)), int(np.sum(calls))
    if value <= 0:
        return Figure.unknown("inference took no more energy than the idle machine")
    ends = mean_interval(joules / calls, confidence)
    return (
        Figure(value, count=total) if ends is None else Figure(value, min(ends[0], value), max(ends[1], value), total)
    )


def energy_source(run: Run) -> str:
    """Return the sensor of a run's energy, with what was subtracted; the empty string without one."""
    about = run.timing.get("energy")
    if not isinstance(about, Mapping) or "source" not in about:
        return ""
    idle = _idle_watts(about)
    return f"{about['source']}"[:300] + ("" if idle is None else f", less an idle power of {idle:.3g} W")


def _idle_watts(about: Mapping[str, object]) -> float | None:
    idle = about.get("idle_watts")
    return float(idle) if isinstance(idle, (int, float)) and math.isfinite(idle) else None
