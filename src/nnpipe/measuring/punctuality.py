"""Check whether a schedule was kept: a load that comes late is not the load that was requested."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nnpipe.measuring.series import Series

LATE_NS = 100_000
"""A query that is sent so much after it could have been was sent late."""


@dataclass(frozen=True)
class Punctuality:
    """How well the schedule of a server scenario was kept where only the harness could be late.

    A query could be sent when it was due, or when the one before had been
    answered if that was later.  Waiting for that is queueing: part of the
    latency, and no fault of the harness.

    Parameters
    ----------
    queries
        How many there were.
    late
        How many of them were sent more than :data:`LATE_NS` after they could have been.
    median_ns, p99_ns, worst_ns
        Of how long after.
    queued
        How many came while another was being answered.
    """

    queries: int
    late: int
    median_ns: int
    p99_ns: int
    worst_ns: int
    queued: int

    @classmethod
    def of(cls, inference: Series) -> Punctuality | None:
        """Judge a series; ``None`` where nothing was scheduled."""
        if "scheduled_ns" not in inference or not len(inference):
            return None
        after, queued = lateness(inference)
        median, p99 = np.quantile(after, [0.5, 0.99])
        late = int(np.count_nonzero(after > LATE_NS))
        return cls(len(after), late, int(median), int(p99), int(after.max()), int(np.count_nonzero(queued)))


def lateness(inference: Series) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Return how long after it could have been each query was sent, in nanoseconds, and whether it had to queue."""
    due = inference["scheduled_ns"]
    answered = due + inference["latency_ns"]
    free = np.concatenate([due[:1], answered[:-1]])
    return inference["start_ns"] - np.maximum(due, free), free > due
