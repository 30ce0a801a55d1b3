"""Read the state of a job, running or ended, from its folder and the processes of this machine."""

from __future__ import annotations

import base64
import contextlib
import os
import time
from pathlib import Path
from typing import Any

from nnpipe.jobs.agent import files
from nnpipe.jobs.agent.folder_lock import is_locked, try_lock
from nnpipe.jobs.agent.processes import (
    ProcessIdentity,
    find_processes_with_variable,
    get_process_state,
    list_descendants,
)
from nnpipe.jobs.agent.supervisor import MARK, NEVER_STARTED, RESTARTED, VANISHED, build_end_record
from nnpipe.jobs.agent.termination import end

MOST = 1 << 20
"""The most bytes of a log or of progress that are returned at once."""

TAIL = 1 << 17
"""The bytes of progress that are read to determine how far a job is."""

_ATTEMPTS, _PAUSE = 20, 0.05


def look(folder: Path, *, progress: int = -TAIL, log: int = -1, most: int = MOST) -> dict[str, Any]:
    """Return the state of a job, with parts of its progress and log.

    If the processes of a job have ended without recording its end, it is
    recorded as failed here, and processes that it left running are terminated.

    Parameters
    ----------
    folder
        The job's folder.
    progress, log
        The position in each file from which to read; a negative one counts from the end.
    most
        The most bytes to return of each.

    Returns
    -------
    dict
        ``state``: absent (there is no job), creating, initialising, completed, cancelled or failed;
        ``reason``; ``ended``, the record of the end, or None; ``processes``; ``progress`` and
        ``log`` in base 64, with ``progress_size`` and ``log_size``.
    """
    state, reason, end_of = check_job_state(folder)
    found: dict[str, Any] = {
        "state": state,
        "reason": reason,
        "ended": end_of,
        "processes": files.read(folder, files.PROCESSES) or {},
    }
    for key, name, begin in (("progress", files.PROGRESS, progress), ("log", files.LOG, log)):
        data, size = files.read_piece(folder, name, begin, most)
        found |= {key: base64.b64encode(data).decode("ascii"), f"{key}_size": size}
    return found


def check_job_state(folder: Path) -> tuple[str, str, dict[str, Any] | None]:
    """Return a job's state, the reason, and the record of its end; see :func:`look`."""
    if files.read(folder, files.JOB) is None:
        if find_processes_with_variable(MARK, folder.name):
            return "initialising", f"its folder {folder} is gone, and its processes go on", None
        return "absent", "", None
    for _ in range(_ATTEMPTS):
        end_of = files.read(folder, files.ENDED)
        if end_of is not None:
            return str(end_of.get("state")), str(end_of.get("reason")), end_of
        who = list_supervising_processes(folder)
        states = [get_process_state(one) for one in who]
        if "elsewhere" in states:
            return (
                "initialising",
                f"it runs on {who[0].host}; only there can be seen how it goes",
                None,
            )
        if "alive" in states:
            break
        if not is_locked(folder):
            recorded = record_end(folder)
            if recorded is not None:
                return str(recorded["state"]), str(recorded["reason"]), recorded
        elif not who:  # it is being started
            break
        else:  # another process is checking the job, and will record its end
            time.sleep(_PAUSE)
    started = (files.read(folder, files.PROCESSES) or {}).get("script") is not None
    return ("initialising" if started else "creating"), "", None


def list_supervising_processes(folder: Path) -> list[ProcessIdentity]:
    """Return the identities of the warden and the supervisor, if known."""
    told = files.read(folder, files.PROCESSES) or {}
    found = [ProcessIdentity.from_json(told.get(name)) for name in ("warden", "supervisor")]
    return [one for one in found if one is not None]


def list_job_processes(folder: Path) -> set[int]:
    """Return the IDs of a job's processes: warden, supervisor, their descendants, and all with
    its variable.
    """
    job = files.read(folder, files.JOB) or {}
    found: set[int] = set()
    for one in list_supervising_processes(folder):
        if get_process_state(one) == "alive":
            found |= {one.pid, *list_descendants(one.pid)}
    found |= find_processes_with_variable(MARK, str(job.get("id", folder.name)))
    return found - {os.getpid()}


def record_end(folder: Path, *, force: bool = False) -> dict[str, Any] | None:
    """Record the end of a job whose processes have ended, terminate those left running, and return
    the record.

    With ``force``, all processes are terminated.  Return None if another process is doing this, or
    there is no job.
    """
    if force:
        end(lambda: list_job_processes(folder), 0.0)
    try:
        lock = try_lock(folder)
    except OSError:  # the folder is gone
        return None
    if lock is None:
        return None
    try:
        job, end_of = files.read(folder, files.JOB), files.read(folder, files.ENDED)
        if job is None or end_of is not None:
            return end_of
        end(lambda: list_job_processes(folder), 0.0)
        who = list_supervising_processes(folder)
        restarted = any(get_process_state(one) == "restarted" for one in who)
        cause = RESTARTED if restarted else VANISHED if who else NEVER_STARTED
        cancelled = files.read(folder, files.CANCEL) is not None
        end_of = build_end_record(job, cancelled=cancelled, cause="" if cancelled else cause)
        # the result is valid even if a full disk prevents writing it
        with contextlib.suppress(OSError):
            files.write_end(folder, end_of)
        return end_of
    finally:
        os.close(lock)
