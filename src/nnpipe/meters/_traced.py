"""Readings that integrate a trace of power between marks."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise

from nnpipe.core.energy_meter import MeterReading
from nnpipe.formats.power_trace import PowerTrace


class TracedReading(MeterReading):
    """Marks are times of day; the trace is fetched when the energy is asked for.

    Parameters
    ----------
    source, resolution_s
        As of every reading.
    trace
        Returns the trace, with times in seconds since 1970; it is called once all marks are set.
    close
        Releases the instrument.
    clock
        The time of day in seconds.
    """

    def __init__(
        self,
        source: str,
        resolution_s: float,
        trace: Callable[[], PowerTrace],
        close: Callable[[], object] = lambda: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.source, self.resolution_s = source, resolution_s
        self._trace, self._close, self._clock = trace, close, clock
        self._marks: list[float] = []

    def mark(self) -> None:
        """Note the time of day."""
        self._marks.append(self._clock())

    def joules(self) -> list[float]:
        """Return the energy of each span in the trace."""
        if len(self._marks) < 2:
            return []
        trace = self._trace()
        return [trace.energy(begin, end) for begin, end in pairwise(self._marks)]

    def close(self) -> None:
        """Release the instrument."""
        self._close()
