"""Energy from a file that an instrument writes."""

from __future__ import annotations

import time
from pathlib import Path

from nnpipe.core.arguments import argument
from nnpipe.core.energy_meter import EnergyMeter
from nnpipe.core.errors import NotSupported
from nnpipe.formats.power_trace import PowerTrace, read_power_trace
from nnpipe.meters._traced import TracedReading


class PowerTraceMeter(EnergyMeter):
    """A CSV file of power over time, which another program writes while nnpipe measures.

    Its first line names the columns: ``time`` in seconds since 1970, and ``power`` in watts, or ``voltage`` and
    ``current`` in volts and amperes; ``time_ms``, ``power_mw``, ``current_ma`` and the like are known, too.
    """

    trace_file: Path = argument(help="the file, which must reach to the end of the measurement", metavar="FILE.csv")
    clock_offset: float = argument(0.0, help="seconds to add to the file's times to get this machine's time of day")
    trace_interval: float = argument(0.001, help="seconds between two samples", minimum=1e-7, maximum=60.0)
    trace_wait: float = argument(
        2.0, help="seconds to wait after measuring for the last samples to be written", minimum=0.0, maximum=3600.0
    )

    def _open(self) -> TracedReading:
        if not self.trace_file.parent.is_dir():
            raise NotSupported(f"{self.trace_file}: there is no such folder, so nothing writes a trace there")
        return TracedReading(f"trace {self.trace_file.name}", self.trace_interval, self._read)

    def _read(self) -> PowerTrace:
        time.sleep(self.trace_wait)
        found = read_power_trace(self.trace_file)
        return PowerTrace(found.time_s + self.clock_offset, found.watts, found.trigger) if self.clock_offset else found
