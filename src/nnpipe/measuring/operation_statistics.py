"""The usual time of each operation over the runs of a profile, with its interval."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nnpipe.core.operation_times import OperationTimes
from nnpipe.measuring.order_statistics import interval_ranks, samples_needed

Floats = npt.NDArray[np.float64]


def usual_times(times: OperationTimes) -> tuple[Floats, Floats, Floats]:
    """Return the time of each step in a usual run, and the lower and upper ends of its 95 % interval.

    Each array is ``(steps + 1,)`` in nanoseconds; the last value is that of the part that belongs to no step.  A time
    is the mean over the runs whose wall time is in the middle half.  So the times add up to the mean wall time of
    these runs, and single slow runs do not matter.  The interval is that of the median by order statistics, widened to
    include the time; with fewer than six runs, its ends are the extremes.
    """
    table = np.vstack([times.table_ns, times.unattributed_ns])
    usual: Floats = table[:, middle_half(times.wall_ns)].mean(axis=1)
    ordered = np.sort(table, axis=1)
    low, high = interval_ranks(times.runs, 0.5) if times.runs >= samples_needed(0.5) else (0, times.runs - 1)
    return usual, np.minimum(usual, ordered[:, low]), np.maximum(usual, ordered[:, high])


def middle_half(values: Floats) -> npt.NDArray[np.intp]:
    """Return the positions of the values between the quartiles."""
    order = np.argsort(values, kind="stable")
    cut = len(values) // 4
    return order[cut : len(values) - cut]
