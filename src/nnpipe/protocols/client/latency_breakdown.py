"""The division of the latency of runs on a target into inference, transfer, and time on this host."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.core.errors import NNPipeError, RemoteProtocolError
from nnpipe.protocols.conversation.payloads import Counter, unpack_stamps

NS = 1_000_000_000
_COLUMNS = 6  # asked and answered on the host's clock; received, started, stopped and replied on the target's


class Parts:
    """The timestamps of all runs of a session.

    Parameters
    ----------
    counter
        The kind of the target's counter.
    rate
        Counts per second; 0 if nanoseconds are counted, or the rate is unknown.

    Attributes
    ----------
    keeps_time
        Whether counts can be converted to time.
    """

    def __init__(self, counter: Counter, rate: int) -> None:
        self._rate = rate
        self.keeps_time = counter is Counter.WALL or (counter is Counter.CYCLES and rate > 0)
        self._stamps = array("q")
        self._extend: Callable[[tuple[int, ...]], None] = self._stamps.extend

    def note(self, asked: int, answered: int, payload: bytes | memoryview, alone: bool = True) -> None:
        """Store the timestamps of a run: the host's, and the target's, which came alone or before the outputs."""
        try:
            self._extend((asked, answered, *unpack_stamps(payload, alone)))
        except OverflowError:
            raise RemoteProtocolError("the target's counter shows more than 63 bits hold") from None

    def between(self, start_ns: np.ndarray, end_ns: np.ndarray) -> dict[str, np.ndarray]:
        """Divide the time of the runs between these timestamps into parts, as ``RemoteSession.split`` does."""
        rows = self._rows()
        asked = rows[:, 0]
        at = np.searchsorted(asked, start_ns)
        known = at < len(rows)
        known[known] = (asked[at[known]] >= start_ns[known]) & (rows[at[known], 1] <= end_ns[known])
        if not known.all():
            raise NNPipeError("the session was not run at the times that are to be divided up")
        columns = self._divided(rows[at])
        if self.keeps_time:
            columns["host_ns"] = (end_ns - start_ns) - columns["target_ns"] - columns["wire_ns"]
        return columns

    def last(self, count: int) -> dict[str, np.ndarray]:
        """Divide the time of the last ``count`` runs into parts."""
        rows = self._rows()
        return self._divided(rows[len(rows) - count :])

    def to_ns(self, counts: Any) -> Any:
        """Convert counts to nanoseconds."""
        return counts if self._rate in (0, NS) else np.rint(counts * (NS / self._rate)).astype(np.int64)

    def _rows(self) -> npt.NDArray[np.int64]:
        return np.array(self._stamps, np.int64).reshape(-1, _COLUMNS)

    def _divided(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        asked, answered, received, started, stopped, replied = rows.T
        if not self.keeps_time:
            return {"target_counts": stopped - started}
        inference = self.to_ns(stopped - started)
        held = self.to_ns(replied - received)
        return {"target_ns": inference, "wire_ns": (answered - asked) - inference, "serve_ns": held - inference}
