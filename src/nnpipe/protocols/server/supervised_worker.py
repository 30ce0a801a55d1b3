"""The supervision of a worker process, which is monitored, and killed if necessary; its client
is told the reason.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import signal
import time

from nnpipe.core.child_processes import get_signal_name
from nnpipe.core.runtime_protocol import ServerOptions
from nnpipe.measuring.counters import GPUs
from nnpipe.protocols.channels.stream_socket import PollableChannel
from nnpipe.protocols.conversation.frame import ErrorCode
from nnpipe.protocols.conversation.payloads import NO_GPU, ErrorPayload, pack_row
from nnpipe.protocols.server.admission import PendingClient
from nnpipe.protocols.server.shared_page import Phase, SharedPage
from nnpipe.protocols.server.worker import end, refuse


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


_GRACE = 1.0  # seconds for a worker to end after its client has left
_SECOND_LOOK = 0.02  # seconds after which an exceeded time limit is checked again
_STOPPED = 3.0  # seconds for which a worker may be stopped (SIGSTOP) while its client waits
# seconds at most that count between two checks, since the supervisor may have been stopped, too
_LONGEST_LOOK = 0.5
_MOMENT = 0.1  # seconds for a worker to finish sending an answer before it is killed
log = logging.getLogger("nnpipe")


class SupervisedWorker:
    """A worker process from the view of its supervisor.

    Parameters
    ----------
    pid
        The process ID; this object waits for the process.
    guest
        The client that the worker serves.
    board
        The shared page with the worker's state.
    options
        The server's options with the time limits.
    gpus
        The machine's GPUs, already open, for samples of the worker's resources.
    """

    def __init__(
        self, pid: int, guest: PendingClient, board: SharedPage, options: ServerOptions, gpus: GPUs
    ) -> None:
        self._pid = pid
        self._guest = guest
        self._board = board
        self._limits = {Phase.RUNNING: options.run_timeout, Phase.LOADING: options.load_timeout}
        self._left_at: float | None = None
        self._status: int | None = None
        self._sampler = ResourceSampler(pid, gpus)
        self.descriptor = os.pidfd_open(pid) if hasattr(os, "pidfd_open") else None
        self._late_since: float | None = None
        self._looked_at = time.monotonic()
        self._stopped_for = 0.0

    def look(self) -> bool:
        """Return whether the worker has ended; kill it if it exceeds a time limit or its client
        has left.
        """
        if self._reap():
            self._tell_if_died()
            return True
        row = self._sampler.row()
        if row is not None:
            self._board.add_row(row)
        if self._is_stopped():
            log.warning(
                "the process that served %s is stopped and does not go on, it is killed",
                self._guest.name,
            )
            self.kill(ErrorPayload(ErrorCode.DIED, f"it was stopped for {_STOPPED:g} s"))
            return True
        phase, seconds, _ = self._board.read_phase()
        limit = self._limits.get(phase)
        if limit is None or seconds <= limit:
            self._late_since = None
        elif self._late_since is None:
            # checked twice, since the worker may write while the page is read
            self._late_since = time.monotonic()
        elif time.monotonic() - self._late_since > _SECOND_LOOK:
            what = "loading the model" if phase is Phase.LOADING else "the inference"
            log.warning("%s took more than %g s, its process is killed", what, limit)
            self.kill(ErrorPayload(ErrorCode.TIMEOUT, f"{what} took more than {limit:g} s"))
            return True
        if (
            self.has_left()
            and self._left_at is not None
            and time.monotonic() - self._left_at > _GRACE
        ):
            self.kill(None)
            return True
        return False

    def _is_stopped(self) -> bool:
        """Return whether the worker has been stopped for too long by a signal from outside."""
        now = time.monotonic()
        passed, self._looked_at = min(now - self._looked_at, _LONGEST_LOOK), now
        self._stopped_for = self._stopped_for + passed if self._sampler.stopped else 0.0
        return self._stopped_for > _STOPPED

    def has_left(self) -> bool:
        """Return whether the client has closed the connection."""
        if self._left_at is None and self._guest.has_left():
            self._left_at = time.monotonic()
        return self._left_at is not None

    def kill(self, failure: ErrorPayload | None) -> None:
        """Kill the worker, and tell the client the reason if possible."""
        if failure is not None:
            self._let_finish_sending()
        if self._status is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
        while not self._reap():
            time.sleep(0.001)
        if failure is not None:
            self._tell(failure)

    def _let_finish_sending(self) -> None:
        """Wait a moment if the worker is sending, since nothing else can be sent in the middle
        of a frame.
        """
        deadline = time.monotonic() + _MOMENT
        while (
            self._board.read_phase()[0] is Phase.SENDING
            and time.monotonic() < deadline
            and not self._reap()
        ):
            time.sleep(0.001)

    def _reap(self) -> bool:
        if self._status is None:
            with contextlib.suppress(InterruptedError):
                pid, status = os.waitpid(self._pid, os.WNOHANG)
                if pid:
                    self._status = status
        return self._status is not None

    def _tell_if_died(self) -> None:
        assert self._status is not None
        code = os.waitstatus_to_exitcode(self._status)
        if code == 0:
            return
        how = f"by {get_signal_name(-code)}" if code < 0 else f"with status {code}"
        phase = self._board.read_phase()[0]
        what = {
            Phase.LOADING: " while it loaded the model",
            Phase.RUNNING: " while it ran the model",
        }.get(phase, "")
        log.warning("the process that served %s ended %s%s", self._guest.name, how, what)
        self._tell(ErrorPayload(ErrorCode.DIED, f"it ended {how}{what}"))

    def _tell(self, failure: ErrorPayload) -> None:
        """Send a message in the worker's place, unless it may have stopped in the middle of a
        frame, or uses TLS.
        """
        phase, _, number = self._board.read_phase()
        channel, conversation = self._guest.channel, self._guest.conversation
        if not isinstance(channel, PollableChannel) or channel.opaque:
            return
        if phase is Phase.SENDING or not channel.is_writable():
            end(channel)  # so that earlier bytes arrive
            return
        conversation.number = number
        refuse(channel, conversation, failure)

    def close(self) -> None:
        """Release the client, the page and the process, which has ended."""
        self._guest.channel.close()
        self._board.close()
        if self.descriptor is not None:
            os.close(self.descriptor)
