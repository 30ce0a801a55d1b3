"""The two processes beside a script: a supervisor that starts and ends it, and a warden that
outlives the supervisor.

Both run in their own session, so that neither a closed terminal nor Ctrl-C
affects them.  The warden adopts orphaned processes of the job
(``PR_SET_CHILD_SUBREAPER``), so that a grandchild in its own session is found.  If
either of the two is killed, the other one terminates the rest.  If both are killed
at once, the script is killed, too (by ``PR_SET_PDEATHSIG``), and the next check
of the job's state terminates the rest.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import time
import traceback
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from nnpipe.jobs.agent import files
from nnpipe.jobs.agent.processes import (
    ProcessIdentity,
    get_identity,
    get_process_state,
    list_descendants,
)
from nnpipe.jobs.agent.termination import end, reap

# Reports are enclosed in control characters that programs do not print (ASCII's record and unit
# separators).
_TOLD = re.compile(r"\x1e(\{[^\x1e\x1f]*\})\x1f\n?")
_PIECE = 1 << 16


class Relay:
    """Writes new progress of a job to standard output."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._begin = folder, 0

    def tell(self) -> None:
        """Write the progress since the last call."""
        while True:
            data, _ = files.read_piece(self._folder, files.PROGRESS, self._begin, _PIECE)
            if not data:
                return
            self._begin += len(data)
            _write({"progress": data.decode("latin-1")})

    def end(self, record: dict[str, Any]) -> None:
        """Write the record of the job's end."""
        self.tell()
        _write({"ended": record})


def split_output(text: str) -> tuple[str, bytes, dict[str, Any] | None]:
    """Split a job's output into the script's output, its progress file, and the record of the
    end.
    """
    progress, end_of = b"", None
    for said in _TOLD.findall(text):
        try:
            told = json.loads(said)
        except ValueError:
            continue
        if isinstance(told.get("progress"), str):
            progress += told["progress"].encode("latin-1", "replace")
        if isinstance(told.get("ended"), dict):
            end_of = told["ended"]
    return _TOLD.sub("", text), progress, end_of


def _write(told: dict[str, Any]) -> None:
    os.write(1, b"\x1e" + json.dumps(told).encode() + b"\x1f\n")


SUPERVISOR_KILLED = "the process that supervised it was killed"
GUARD_KILLED = "the process that guarded its supervisor was killed"
RESTARTED = "the machine was restarted while it ran"
VANISHED = "all its processes were killed"
NEVER_STARTED = "it was never started: the command that submitted it was ended"


def build_end_record(
    job: Mapping[str, Any],
    *,
    status: int | None = None,
    cancelled: bool = False,
    cause: str = "",
    outputs: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """Return the record of a job's end.

    Parameters
    ----------
    job
        The job.
    status
        The script's exit status, negative for a signal; None if it did not end by itself.
    cancelled
        Whether the job was cancelled.
    cause
        Another reason for the end.
    outputs
        The result of the check of the outputs.

    Returns
    -------
    dict
        ``state`` (completed, cancelled or failed), ``reason``, ``status``, ``outputs``, ``attempt``
        and ``at``, seconds since 1970.
    """
    state, reason = _determine_state(status, cancelled, cause, outputs)
    return {
        "state": state,
        "reason": reason,
        "status": status,
        "outputs": [dict(one) for one in outputs],
        "attempt": job.get("attempt", 1),
        "at": time.time(),
    }


def _determine_state(
    status: int | None, cancelled: bool, cause: str, outputs: Sequence[Mapping[str, Any]]
) -> tuple[str, str]:
    if cancelled:
        return "cancelled", cause
    if cause:
        return "failed", cause
    if status is None:
        return "failed", "nobody knows how it ended"
    if status < 0:
        return "failed", _describe_signal(-status)
    if status:
        return "failed", f"the script ended with status {status}"
    faults = [f"{one['path']} {one['fault']}" for one in outputs if one["fault"]]
    if faults:
        more = f" (and {len(faults) - 3} more)" if len(faults) > 3 else ""
        return "failed", f"the script ended with status 0, but {'; '.join(faults[:3])}{more}"
    return "completed", ""


def _describe_signal(number: int) -> str:
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    hint = ", as the system does when memory runs out" if name == "SIGKILL" else ""
    return f"the script was ended by {name}{hint}"


_BLOCK = 1 << 20


def snapshot_outputs(outputs: Iterable[str], directory: Path) -> dict[str, Any]:
    """Return the present state of each output: inode, time of change, size and SHA-256; None if
    it is missing.
    """
    return {name: _read_output_state(directory / name) for name in outputs}


def check_outputs(
    outputs: Iterable[str], directory: Path, before: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Check the outputs of a job that has finished.

    Returns
    -------
    list of dict
        The ``path``, ``size``, ``sha256`` and ``fault`` of each output.  ``fault`` is empty if the
        file exists, is not empty, and was written by the job.
    """
    return [_check_output(name, directory / name, before.get(name)) for name in outputs]


def _check_output(name: str, path: Path, before: Any) -> dict[str, Any]:
    try:
        now = _read_output_state(path)
    except OSError as error:
        return _build_fault(name, f"cannot be read ({error.strerror or error})")
    if now is None:
        return _build_fault(name, "is no file" if path.exists() else "was not written")
    if not now["size"]:
        return _build_fault(name, "is empty")
    stale = now == before
    fault = "lay there before the job began, and was not written anew" if stale else ""
    return {"path": name, "size": now["size"], "sha256": now["sha256"], "fault": fault}


def _build_fault(name: str, fault: str) -> dict[str, Any]:
    return {"path": name, "size": 0, "sha256": "", "fault": fault}


def _read_output_state(path: Path) -> dict[str, Any] | None:
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # opening a pipe would wait for its other end
            return None
        with open(path, "rb") as handle:
            found = os.fstat(handle.fileno())
            digest = hashlib.sha256()
            while block := handle.read(_BLOCK):
                digest.update(block)
    except FileNotFoundError:
        return None
    return {
        "inode": found.st_ino,
        "mtime_ns": found.st_mtime_ns,
        "size": found.st_size,
        "sha256": digest.hexdigest(),
    }


MARK = "NNPIPE_JOB"
"""The environment variable of all processes of a job."""

OWNER = "NNPIPE_OWNER"
"""The environment variable with the process, in the form of JSON, without which a job on its
machine must not go on.
"""

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h
_STOPS = tuple(
    getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGHUP") if hasattr(signal, name)
)
_BETWEEN = 1.0  # seconds between two reports through the output
_HEARD = frozenset({*_STOPS, *([signal.SIGCHLD] if hasattr(signal, "SIGCHLD") else [])})


def run(folder: Path, ready: int | None, *, relayed: bool = False) -> NoReturn:
    """Run a job as a session leader that holds the folder's lock, and exit with status 0 if it is
    completed.

    The start is reported to the descriptor ``ready``.  With ``relayed``, progress and the end are
    also written to standard output.
    """
    _call_prctl(_PR_SET_CHILD_SUBREAPER, 1)
    signal.pthread_sigmask(signal.SIG_BLOCK, _HEARD)
    signal.signal(
        signal.SIGCHLD, lambda *_: None
    )  # some systems do not let a process wait for children if the signal is ignored
    warden = os.getpid()
    supervisor = os.fork()
    if not supervisor:
        _call_prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
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
        end(lambda: list_descendants(os.getpid()), 0.0, reap)
        job = files.read(folder, files.JOB) or {}
        cancelled = files.read(folder, files.CANCEL) is not None
        record = build_end_record(job, cancelled=cancelled, cause=SUPERVISOR_KILLED)
        files.write_end(folder, record)
        if relayed:
            Relay(folder).end(record)
        _start_afterwards(job, wait=False)
    completed = (files.read(folder, files.ENDED) or {}).get("state") == "completed"
    if relayed:  # everything has been reported, and no other process knows the folder
        shutil.rmtree(folder, ignore_errors=True)
    os._exit(0 if completed else 1)


class _Supervisor:
    """Starts the script, waits for it, and records its end."""

    def __init__(self, folder: Path, warden: int, ready: int | None, relay: Relay | None) -> None:
        self._folder, self._warden, self._ready, self._relay = folder, warden, ready, relay
        self._job = files.read(folder, files.JOB) or {}
        self._owner = _get_owner(self._job)
        self._statuses: dict[int, int] = {}
        self._told, self._teller = time.monotonic(), 0

    def supervise(self) -> None:
        """Run the script to its end, and record that."""
        job, folder = self._job, self._folder
        me = os.getpid()
        _call_prctl(_PR_SET_CHILD_SUBREAPER, 1)
        cause, status, outputs, cancelled = "", None, [], False
        try:
            who = {
                "warden": _get_identity_json(self._warden),
                "supervisor": _get_identity_json(me),
                "script": None,
            }
            files.write(folder, files.PROCESSES, who)
            self._tell_ready()
            directory = Path(job["directory"]).expanduser()
            before = files.read(folder, files.BEFORE)
            if before is None:  # earlier attempts of a resumed job may have written some outputs
                before = snapshot_outputs(job["outputs"], directory)
                files.write(folder, files.BEFORE, before)
            if files.read(folder, files.CANCEL) is None:
                began, script = {"at": time.time()}, self._start(directory)
                files.write(
                    folder,
                    files.PROCESSES,
                    who | {"script": _get_identity_json(script), "began": began},
                )
                status, cause = self._wait(script)
            cancelled = status is None and not cause
            # Also if the script ended by itself: it must not leave processes running.
            left = end(lambda: list_descendants(me), self._get_grace(), self._reap)
            if left:
                cause = cause or f"processes {', '.join(map(str, left))} could not be ended"
            if status == 0:
                outputs = check_outputs(job["outputs"], directory, before)
        except (OSError, ValueError, KeyError, subprocess.SubprocessError) as error:
            cause = _format_error(error)
            end(lambda: list_descendants(me), 0.0, self._reap)
        record = build_end_record(
            job, status=status, cancelled=cancelled, cause=cause, outputs=outputs
        )
        files.write_end(folder, record)
        if self._relay is not None:
            self._relay.end(record)
        _start_afterwards(job, wait=True)

    def _tell_ready(self) -> None:
        if self._ready is not None:
            with contextlib.suppress(OSError):  # the starting process may have ended
                os.write(self._ready, b"ready\n")
                os.close(self._ready)

    def _start(self, directory: Path) -> int:
        job, me = self._job, os.getpid()
        environment = {**os.environ, **job["environment"], MARK: job["id"]}
        environment["NNPIPE_PROGRESS"] = str(self._folder.resolve() / files.PROGRESS)

        def prepare() -> None:
            os.setpgid(0, 0)
            for stop in _STOPS:  # shells start background processes with some signals ignored
                signal.signal(stop, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _HEARD)
            _call_prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != me:
                os._exit(1)

        # Not with subprocess's own waiting, since all children are waited for in one place.
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
        """Return the script's exit status; None and a reason if the job is to end before the
        script.
        """
        while True:
            heard = self._wait_for_signal()
            self._reap()
            if script in self._statuses:
                return self._statuses[script], ""
            if heard is not None and heard in _STOPS:
                if files.read(self._folder, files.CANCEL) is not None:
                    return None, ""
                if os.getppid() != self._warden:
                    return None, GUARD_KILLED
                return (
                    None,
                    f"it was told to end ({signal.Signals(heard).name}), as when a machine is shut "
                    f"down",
                )
            if self._owner is not None and get_process_state(self._owner) != "alive":
                return None, "the process that it works for has ended"

    def _wait_for_signal(self) -> int | None:
        """Wait for a signal, and report progress meanwhile if needed."""
        every = self._job.get("every")
        if self._relay is None and not every and self._owner is None:
            return signal.sigwait(_HEARD)
        if self._relay is not None:
            self._relay.tell()
        if (
            every
            and time.monotonic() >= self._told + every
            and self._teller in (*self._statuses, 0)
        ):
            self._told, self._teller = time.monotonic(), _start_afterwards(self._job, wait=False)
        heard = signal.sigtimedwait(_HEARD, _BETWEEN)
        return None if heard is None else heard.si_signo

    def _get_grace(self) -> float:
        asked = files.read(self._folder, files.CANCEL) or {}
        try:
            return min(3600.0, max(0.0, float(asked.get("grace", self._job["grace"]))))
        except (TypeError, ValueError, KeyError):
            return 10.0

    def _reap(self) -> None:
        self._statuses |= reap()


def _start_afterwards(job: Mapping[str, Any], *, wait: bool) -> int:
    """Start the command that follows the end, for example to update the run database, and return
    its process ID.
    """
    command = job.get("afterwards")
    if not command:
        return 0
    try:
        environment = {
            **os.environ,
            **job.get("environment", {}),
            **job.get("afterwards_environment", {}),
        }
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            env=environment,
            preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_UNBLOCK, _HEARD),
        )
        if wait:
            process.wait()
        else:
            process.returncode = 0
        return process.pid
    except OSError as error:
        sys.stderr.write(f"nnpipe: {command[0]}: {_format_error(error)}\n")
        return 0


def _get_identity_json(pid: int) -> dict[str, Any] | None:
    found = get_identity(pid)
    return None if found is None else found.to_json()


def _get_owner(job: Mapping[str, Any]) -> ProcessIdentity | None:
    try:
        return ProcessIdentity.from_json(json.loads(job["environment"][OWNER]))
    except (KeyError, TypeError, ValueError):
        return None


def _format_error(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{error.filename or ''}: {error.strerror or error}".removeprefix(": ")
    return f"{type(error).__name__}: {error}"


def _call_prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
