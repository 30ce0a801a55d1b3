"""Read the state of a job, running or ended, from its folder and the processes of this machine."""

from __future__ import annotations

import base64
import contextlib
import os
import time
from pathlib import Path
from typing import Any

from nnpipe.jobs.agent import files
from nnpipe.jobs.agent.final_state import NEVER_STARTED, RESTARTED, VANISHED, ended
from nnpipe.jobs.agent.folder_lock import held, take
from nnpipe.jobs.agent.processes import ProcessIdentity, descendants, fate, marked
from nnpipe.jobs.agent.supervisor import MARK
from nnpipe.jobs.agent.termination import end

MOST = 1 << 20
"""Bytes of a log or of progress that are given at once."""

TAIL = 1 << 17
"""Bytes of progress that are read to see how far a job is."""

_ATTEMPTS, _PAUSE = 20, 0.05


def look(folder: Path, *, progress: int = -TAIL, log: int = -1, most: int = MOST) -> dict[str, Any]:
    """Return how a job stands, and give what was written since the last look.

    A job whose processes are gone, though nobody wrote down its end, is
    declared failed here, and what it left running is ended.

    Parameters
    ----------
    folder
        The job's.
    progress, log
        The byte to read each file from; a negative one counts from the end.
    most
        Bytes to give of each at most.

    Returns
    -------
    dict
        ``state``: absent (there is no job), creating, initialising, completed, cancelled or failed; ``reason``;
        ``ended``, what is written about the end, or None; ``processes``; ``progress`` and ``log`` in base 64, with
        ``progress_size`` and ``log_size``.
    """
    state, reason, end_of = stand(folder)
    found: dict[str, Any] = {
        "state": state, "reason": reason, "ended": end_of, "processes": files.read(folder, files.PROCESSES) or {},
    }  # fmt: skip
    for key, name, begin in (("progress", files.PROGRESS, progress), ("log", files.LOG, log)):
        data, size = files.piece(folder, name, begin, most)
        found |= {key: base64.b64encode(data).decode("ascii"), f"{key}_size": size}
    return found


def stand(folder: Path) -> tuple[str, str, dict[str, Any] | None]:
    """Return a job's state, the reason, and what is written about its end; see :func:`look`."""
    if files.read(folder, files.JOB) is None:
        if marked(MARK, folder.name):
            return "initialising", f"its folder {folder} is gone, and its processes go on", None
        return "absent", "", None
    for _ in range(_ATTEMPTS):
        end_of = files.read(folder, files.ENDED)
        if end_of is not None:
            return str(end_of.get("state")), str(end_of.get("reason")), end_of
        who = who_of(folder)
        fates = [fate(one) for one in who]
        if "elsewhere" in fates:
            return "initialising", f"it runs on {who[0].host}; only there can be seen how it goes", None
        if "alive" in fates:
            break
        if not held(folder):
            buried = bury(folder)
            if buried is not None:
                return str(buried["state"]), str(buried["reason"]), buried
        elif not who:  # whoever starts it is at it
            break
        else:  # somebody else looks, and will write down the end
            time.sleep(_PAUSE)
    started = (files.read(folder, files.PROCESSES) or {}).get("script") is not None
    return ("initialising" if started else "creating"), "", None


def who_of(folder: Path) -> list[ProcessIdentity]:
    """Return the warden and the supervisor, as far as they are known."""
    told = files.read(folder, files.PROCESSES) or {}
    found = [ProcessIdentity.from_json(told.get(name)) for name in ("warden", "supervisor")]
    return [one for one in found if one is not None]


def remains(folder: Path) -> set[int]:
    """Find the processes of a job: warden and supervisor, what they started, and what bears its mark."""
    job = files.read(folder, files.JOB) or {}
    found: set[int] = set()
    for one in who_of(folder):
        if fate(one) == "alive":
            found |= {one.pid, *descendants(one.pid)}
    found |= marked(MARK, str(job.get("id", folder.name)))
    return found - {os.getpid()}


def bury(folder: Path, *, force: bool = False) -> dict[str, Any] | None:
    """Write down the end of a job whose processes are gone, and end what they left running; give what is written.

    With ``force`` they are ended, whatever they are doing.  None if somebody else is at it, or there is no job.
    """
    if force:
        end(lambda: remains(folder), 0.0)
    try:
        lock = take(folder)
    except OSError:  # the folder is gone
        return None
    if lock is None:
        return None
    try:
        job, end_of = files.read(folder, files.JOB), files.read(folder, files.ENDED)
        if job is None or end_of is not None:
            return end_of
        end(lambda: remains(folder), 0.0)
        who = who_of(folder)
        restarted = any(fate(one) == "restarted" for one in who)
        cause = RESTARTED if restarted else VANISHED if who else NEVER_STARTED
        cancelled = files.read(folder, files.CANCEL) is not None
        end_of = ended(job, cancelled=cancelled, cause="" if cancelled else cause)
        with contextlib.suppress(OSError):  # it is so, though a full disk keeps it from being written
            files.write(folder, files.ENDED, end_of)
        return end_of
    finally:
        os.close(lock)
