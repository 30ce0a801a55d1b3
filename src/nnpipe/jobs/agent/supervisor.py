"""The two processes beside a script: a supervisor that starts and ends it, and a warden that outlives the supervisor.

Both belong to a session of their own, so that neither a closed terminal nor
Ctrl-C reaches them.  The warden adopts whatever the job's processes leave
behind (``PR_SET_CHILD_SUBREAPER``), so that a grandchild which began a session
of its own is found.  If the supervisor is killed the warden ends the rest, and
the other way round; if both are killed at once, the script is (by
``PR_SET_PDEATHSIG``), and whoever looks next ends what is left.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from nnpipe.jobs.agent import files
from nnpipe.jobs.agent.final_state import GUARD_KILLED, SUPERVISOR_KILLED, ended
from nnpipe.jobs.agent.output_checks import checked, snapshot
from nnpipe.jobs.agent.processes import descendants, identity
from nnpipe.jobs.agent.relay import Relay
from nnpipe.jobs.agent.termination import end, reap

MARK = "NNPIPE_JOB"
"""The variable that all processes of a job have in their environment."""

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h
_STOPS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGHUP") if hasattr(signal, name))
_BETWEEN = 1.0  # seconds between two looks at what is to be relayed
_HEARD = frozenset({*_STOPS, *([signal.SIGCHLD] if hasattr(signal, "SIGCHLD") else [])})


def run(folder: Path, ready: int | None, *, relayed: bool = False) -> NoReturn:
    """Carry out a job as the leader of a session that holds the folder's lock, and exit with 0 if it is completed.

    ``ready`` is told of the start.  With ``relayed``, progress and the end are also told by the standard output.
    """
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    signal.pthread_sigmask(signal.SIG_BLOCK, _HEARD)
    signal.signal(signal.SIGCHLD, lambda *_: None)  # what is ignored may not be waited for on every system
    warden = os.getpid()
    supervisor = os.fork()
    if not supervisor:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        status = 1
        try:
            if os.getppid() == warden:
                _Supervisor(folder, warden, ready, Relay(folder) if relayed else None).supervise()
                status = 0
        except BaseException:
            traceback.print_exc()
        os._exit(status)
    if ready is not None:
        os.close(ready)
    statuses: dict[int, int] = {}
    while supervisor not in statuses:
        heard = signal.sigwait(_HEARD)
        if heard in _STOPS:
            with contextlib.suppress(ProcessLookupError):
                os.kill(supervisor, signal.SIGTERM)
        statuses |= reap()
    if files.read(folder, files.ENDED) is None:
        end(lambda: descendants(os.getpid()), 0.0, reap)
        job = files.read(folder, files.JOB) or {}
        cancelled = files.read(folder, files.CANCEL) is not None
        record = ended(job, cancelled=cancelled, cause=SUPERVISOR_KILLED)
        files.write(folder, files.ENDED, record)
        if relayed:
            Relay(folder).end(record)
        _afterwards(job, wait=False)
    completed = (files.read(folder, files.ENDED) or {}).get("state") == "completed"
    if relayed:  # all of it has been told, and nobody knows the folder
        shutil.rmtree(folder, ignore_errors=True)
    os._exit(0 if completed else 1)


class _Supervisor:
    """Starts the script, waits for it, and tells how it ended."""

    def __init__(self, folder: Path, warden: int, ready: int | None, relay: Relay | None) -> None:
        self._folder, self._warden, self._ready, self._relay = folder, warden, ready, relay
        self._job = files.read(folder, files.JOB) or {}
        self._statuses: dict[int, int] = {}
        self._told, self._teller = time.monotonic(), 0

    def supervise(self) -> None:
        """Do all of it, and write down how it ended."""
        job, folder = self._job, self._folder
        me = os.getpid()
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
        cause, status, outputs, cancelled = "", None, [], False
        try:
            who = {"warden": _told(self._warden), "supervisor": _told(me), "script": None}
            files.write(folder, files.PROCESSES, who)
            self._tell_ready()
            directory = Path(job["directory"]).expanduser()
            before = files.read(folder, files.BEFORE)
            if before is None:  # what is gone on with may have written some before
                before = snapshot(job["outputs"], directory)
                files.write(folder, files.BEFORE, before)
            if files.read(folder, files.CANCEL) is None:
                began, script = {"at": time.time()}, self._start(directory)
                files.write(folder, files.PROCESSES, who | {"script": _told(script), "began": began})
                status, cause = self._wait(script)
            cancelled = status is None and not cause
            # Also after an end by itself: what a script leaves running is of no job any more.
            left = end(lambda: descendants(me), self._grace(), self._reap)
            if left:
                cause = cause or f"processes {', '.join(map(str, left))} could not be ended"
            if status == 0:
                outputs = checked(job["outputs"], directory, before)
        except (OSError, ValueError, KeyError, subprocess.SubprocessError) as error:
            cause = _words(error)
            end(lambda: descendants(me), 0.0, self._reap)
        record = ended(job, status=status, cancelled=cancelled, cause=cause, outputs=outputs)
        files.write(folder, files.ENDED, record)
        if self._relay is not None:
            self._relay.end(record)
        _afterwards(job, wait=True)

    def _tell_ready(self) -> None:
        if self._ready is not None:
            with contextlib.suppress(OSError):  # nobody may wait any more
                os.write(self._ready, b"ready\n")
                os.close(self._ready)

    def _start(self, directory: Path) -> int:
        job, me = self._job, os.getpid()
        environment = {**os.environ, **job["environment"], MARK: job["id"]}
        environment["NNPIPE_PROGRESS"] = str(self._folder.resolve() / files.PROGRESS)

        def prepare() -> None:
            os.setpgid(0, 0)
            for stop in _STOPS:  # shells let what they start in the background ignore some
                signal.signal(stop, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _HEARD)
            _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != me:
                os._exit(1)

        # Not subprocess's own waiting: every child is waited for in one place.
        program, *arguments = job["command"]
        started = subprocess.Popen(
            [program or sys.executable, *arguments],
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            preexec_fn=prepare,
        )
        started.returncode = 0
        return started.pid

    def _wait(self, script: int) -> tuple[int | None, str]:
        """Return the script's status; none, and perhaps why, if it is to end before that."""
        while True:
            heard = self._hear()
            self._reap()
            if script in self._statuses:
                return self._statuses[script], ""
            if heard is not None and heard in _STOPS:
                if files.read(self._folder, files.CANCEL) is not None:
                    return None, ""
                if os.getppid() != self._warden:
                    return None, GUARD_KILLED
                return None, f"it was told to end ({signal.Signals(heard).name}), as when a machine is shut down"

    def _hear(self) -> int | None:
        """Wait for a signal; where somebody is to be told how far it is, do that meanwhile."""
        every = self._job.get("every")
        if self._relay is None and not every:
            return signal.sigwait(_HEARD)
        if self._relay is not None:
            self._relay.tell()
        if every and time.monotonic() >= self._told + every and self._teller in (*self._statuses, 0):
            self._told, self._teller = time.monotonic(), _afterwards(self._job, wait=False)
        heard = signal.sigtimedwait(_HEARD, _BETWEEN)
        return None if heard is None else heard.si_signo

    def _grace(self) -> float:
        asked = files.read(self._folder, files.CANCEL) or {}
        try:
            return min(3600.0, max(0.0, float(asked.get("grace", self._job["grace"]))))
        except (TypeError, ValueError, KeyError):
            return 10.0

    def _reap(self) -> None:
        self._statuses |= reap()


def _afterwards(job: Mapping[str, Any], *, wait: bool) -> int:
    """Start what is to be done when the end is written down, such as telling the run database; give its number."""
    command = job.get("afterwards")
    if not command:
        return 0
    try:
        environment = {**os.environ, **job.get("environment", {}), **job.get("afterwards_environment", {})}
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, env=environment,
            preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_UNBLOCK, _HEARD),
        )  # fmt: skip
        if wait:
            process.wait()
        else:
            process.returncode = 0
        return process.pid
    except OSError as error:
        sys.stderr.write(f"nnpipe: {command[0]}: {_words(error)}\n")
        return 0


def _told(pid: int) -> dict[str, Any] | None:
    found = identity(pid)
    return None if found is None else found.to_json()


def _words(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{error.filename or ''}: {error.strerror or error}".removeprefix(": ")
    return f"{type(error).__name__}: {error}"


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
