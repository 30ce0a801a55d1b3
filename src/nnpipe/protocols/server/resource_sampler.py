"""A sampler of the resources of a process and of its machine."""

from __future__ import annotations

import contextlib
import math
import time

from nnpipe.measuring.gpu import GPUs
from nnpipe.protocols.conversation.payloads import NO_GPU, pack_row


class ResourceSampler:
    """Samples the resources of one process.

    Parameters
    ----------
    pid
        The process ID.
    gpus
        The machine's GPUs, already open.

    Attributes
    ----------
    stopped
        Whether the process was stopped by a signal such as SIGSTOP when the last sample was taken.
    """

    def __init__(self, pid: int, gpus: GPUs) -> None:
        import psutil

        self._psutil = psutil
        self._gpus = gpus
        self.stopped = False
        self._process: psutil.Process | None = None
        with contextlib.suppress(psutil.Error):
            self._process = psutil.Process(pid)
            self._process.cpu_percent()

    def row(self) -> bytes | None:
        """Return a sample in the form of STATS, or None if the process has ended."""
        if self._process is None:
            return None
        try:
            with self._process.oneshot():
                cpu = self._process.cpu_percent()
                resident = self._process.memory_info().rss
                self.stopped = self._process.status() == self._psutil.STATUS_STOPPED
        except self._psutil.Error:
            return None
        memory = self._psutil.virtual_memory()
        gpu = dict(zip(self._gpus.columns, self._gpus.read(), strict=True))
        return pack_row(
            time.perf_counter_ns(),
            resident,
            memory.total - memory.available,
            int(gpu.get("gpu_bytes", NO_GPU)),
            cpu,
            gpu.get("gpu_percent", math.nan),
        )
