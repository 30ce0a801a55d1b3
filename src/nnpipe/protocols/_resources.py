"""Samples of a process and of the machine it runs on."""

from __future__ import annotations

import contextlib
import math
import time

from nnpipe.protocols._payloads import NO_GPU, pack_row


class ResourceSampler:
    """Looks at one process.

    Parameters
    ----------
    pid
        The process.
    """

    def __init__(self, pid: int) -> None:
        import psutil

        self._psutil = psutil
        self._process: psutil.Process | None = None
        with contextlib.suppress(psutil.Error):
            self._process = psutil.Process(pid)
            self._process.cpu_percent()

    def row(self) -> bytes | None:
        """Take a sample, as STATS carries it; None when the process is gone."""
        if self._process is None:
            return None
        try:
            with self._process.oneshot():
                cpu = self._process.cpu_percent()
                resident = self._process.memory_info().rss
        except self._psutil.Error:
            return None
        used = self._psutil.virtual_memory().used
        return pack_row(time.perf_counter_ns(), resident, used, NO_GPU, cpu, math.nan)
