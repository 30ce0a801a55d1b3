"""What targets without a clock count in an inference: instructions, or cycles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from nnpipe.measuring.autocorrelation import Sample
from nnpipe.measuring.constraints import Figure
from nnpipe.measuring.order_statistics import CONFIDENCE

if TYPE_CHECKING:
    from nnpipe.measuring.run import Run

COUNTERS = ("instructions", "cycles")
"""The counters whose counts are figures, as ``timing.session.counter`` names them."""


def counter_of(run: Run) -> str:
    """Return what the target of a run counted instead of time; empty if it has a clock, or there is no target."""
    session = run.timing.get("session")
    counter = session.get("counter") if isinstance(session, Mapping) else None
    return counter if counter in COUNTERS else ""


def counted_figure(run: Run, counter: str, confidence: float = CONFIDENCE) -> Figure:
    """Return the median of the counts of an inference, with an interval; counts that are all the same are exact.

    The figure has no value, but a reason, if the run's target counted something else.
    """
    inference = run.series.get("inference")
    known = counter_of(run)
    if known != counter or inference is None or "target_counts" not in inference or not len(inference):
        return Figure.unknown(f"only targets tell it that count {counter} instead of time")
    counts = inference["target_counts"].astype(np.float64)
    if not (np.isfinite(counts).all() and (counts >= 0).all()):
        return Figure.unknown(f"the counted {counter} are not usable")
    if counts.min() == counts.max():
        return Figure(float(counts[0]), float(counts[0]), float(counts[0]), len(counts))
    ends = Sample(counts).interval(0.5, confidence)
    value = float(np.median(counts))
    return Figure(value, count=len(counts)) if ends is None else Figure(value, *ends, len(counts))
