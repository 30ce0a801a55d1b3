"""Check whether a schedule was kept: a load that comes late is not the load that was requested."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nnpipe.measuring.series import Series

LATE_NS = 100_000
"""A query counts as late if it was sent later than possible by more than this, in nanoseconds."""


@dataclass(frozen=True)
class Punctuality:
    """How well the load generator kept the schedule of a server scenario.

    A query can be sent when it is due or, if later, when the previous one has been
    answered.  Waiting for that answer is queueing: it is part of the latency, not
    a delay of the load generator.

    Parameters
    ----------
    queries
        The number of queries.
    late
        The number of queries that were sent more than :data:`LATE_NS` later than possible.
    median_ns, p99_ns, worst_ns
        Statistics of the delay, in nanoseconds.
    queued
        The number of queries that were due while another was being answered.
    """

    queries: int
    late: int
    median_ns: int
    p99_ns: int
    worst_ns: int
    queued: int

    @classmethod
    def from_series(cls, inference: Series) -> Punctuality | None:
        """Return the punctuality of a series; ``None`` if it has no schedule."""
        if "scheduled_ns" not in inference or not len(inference):
            return None
        after, queued = compute_lateness(inference)
        median, p99 = np.quantile(after, [0.5, 0.99])
        late = int(np.count_nonzero(after > LATE_NS))
        return cls(
            len(after), late, int(median), int(p99), int(after.max()), int(np.count_nonzero(queued))
        )


def compute_lateness(inference: Series) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Return how much later than possible each query was sent, in nanoseconds, and whether it
    had to queue.
    """
    due = inference["scheduled_ns"]
    answered = due + inference["latency_ns"]
    free = np.concatenate([due[:1], answered[:-1]])
    return inference["start_ns"] - np.maximum(due, free), free > due
