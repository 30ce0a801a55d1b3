"""Start, cancel and resume a job on this machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nnpipe.jobs.agent import files
from nnpipe.jobs.agent.folder_lock import try_lock
from nnpipe.jobs.agent.processes import send
from nnpipe.jobs.agent.status import check_job_state, list_supervising_processes, look, record_end
from nnpipe.jobs.agent.supervisor import run
from nnpipe.jobs.agent.termination import SURELY

_PAUSE = 0.05
# seconds that a supervisor on a busy machine may need to report an end that it has recorded
_TELLING = 120.0


class Refused(Exception):
    """A request cannot be carried out now; the text gives the reason."""


class NeverReady(Refused):
    """A job's processes ended before they were ready, for instance because they were killed."""


def start(folder: Path, job: Mapping[str, Any], program: Sequence[str]) -> None:
    """Start a job in its own session, and return when its supervisor is running.

    Parameters
    ----------
    folder
        The job's folder, which exists.
    job
        The job: ``id``, ``command``, ``directory``, ``environment`` (further variables),
        ``outputs``, ``grace`` in seconds, and ``afterwards``, a command to run when the job has
        ended, or None.  If ``every`` is given, in seconds, that command is also started at this
        interval while the job runs.
    program
        The command that runs this package.

    Raises
    ------
    Refused
        If the job is already running, or could not be started.
    """
    with _lock_folder(folder) as lock:
        if files.read(folder, files.JOB) is not None:
            raise Refused("there is a job already")
        # Whenever another process sees this file, the lock is held, until the job has ended.
        files.write(folder, files.JOB, {"attempt": 1, **job})
        _launch(folder, program, lock)


def cancel(folder: Path, grace: float | None = None) -> dict[str, Any]:
    """Cancel a job with all its processes, and return its state.

    Parameters
    ----------
    folder
        The job's folder.
    grace
        Seconds for its processes to end by themselves; by default those of the job.
    """
    if check_job_state(folder)[2] is not None:
        return look(folder)
    job = files.read(folder, files.JOB)
    if job is None:
        record_end(folder, force=True)
        return look(folder)
    seconds = float(job.get("grace", 10.0)) if grace is None else grace
    files.write(folder, files.CANCEL, {"grace": seconds, "at": time.time()})
    limit = time.monotonic() + seconds + SURELY + 5.0
    asked = False
    while time.monotonic() < limit:
        if not asked:  # a job that has not been started yet will read the file
            asked = any(
                send(one, signal.SIGTERM) for one in list_supervising_processes(folder)[-1:]
            )
        if check_job_state(folder)[2] is not None:
            (folder / files.CANCEL).unlink(missing_ok=True)  # it may have ended before the request
            return look(folder)
        time.sleep(_PAUSE)
    record_end(folder, force=True)
    return look(folder)


def resume(
    folder: Path,
    command: Sequence[str],
    attempt: int,
    program: Sequence[str],
    environment: Mapping[str, str],
) -> None:
    """Start an ended job again in the same folder, as attempt number ``attempt``.

    ``environment`` holds variables in addition to those of the previous attempt.

    Raises
    ------
    Refused
        If the job is running, or was completed.
    """
    found = look(folder)
    if found["ended"] is None:
        raise Refused("it runs already")
    if found["state"] == "completed":
        raise Refused("it is completed")
    with _lock_folder(folder, _TELLING) as lock:
        job = files.read(folder, files.JOB) or {}
        if files.read(folder, files.ENDED) is None:
            raise Refused("it runs already")
        again = {"attempt": attempt, "command": list(command)}
        again["environment"] = {**job.get("environment", {}), **environment}
        files.write(folder, files.JOB, job | again)
        for name in (files.CANCEL, files.PROCESSES):
            (folder / name).unlink(missing_ok=True)
        os.replace(folder / files.ENDED, folder / f"ended.{attempt - 1}.json")
        _launch(folder, program, lock)


@contextmanager
def _lock_folder(folder: Path, telling: float = 0.0) -> Iterator[int]:
    """Take the folder's lock; wait up to ``telling`` seconds for a supervisor that is still
    reporting the end.

    The supervisor keeps the lock until then, so that its report cannot come after the next attempt
    has begun.
    """
    limit = time.monotonic() + telling
    while (lock := try_lock(folder)) is None:
        if not telling or files.read(folder, files.ENDED) is None:
            raise Refused("it runs already")
        if time.monotonic() > limit:
            raise Refused(
                f"it has ended, but what is done about its end goes on for {telling:g} s; try "
                f"again later"
            )
    try:
        yield lock
    finally:
        os.close(lock)


def _launch(folder: Path, program: Sequence[str], lock: int) -> None:
    """Start the warden, which inherits the lock, and wait until it reports that the supervisor
    is running.
    """
    ready, theirs = os.pipe()
    with open(folder / files.LOG, "ab") as log:
        process = subprocess.Popen(
            [*program, "run", str(folder), str(theirs), str(lock)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            pass_fds=(theirs, lock),
        )
    os.close(theirs)
    with open(ready, "rb") as handle:
        told = handle.read()
    if told == b"ready\n":
        process.returncode = 0  # it continues without this process
        return
    try:
        status = process.wait(SURELY)
    except subprocess.TimeoutExpired:
        process.returncode = status = 0
    if status < 0:
        raise NeverReady(f"it was ended by {signal.Signals(-status).name} while it started")
    raise NeverReady(
        f"it could not be started; the end of {folder / files.LOG} tells why, unless it was killed"
    )


TASK = "task.json"
SENT, REPORTS = "\0sent", "\0progress"
"""The placeholders of the script and the progress file in a command, until their paths are
known.
"""


def run_sent_job(sent: Path) -> None:
    """Run the job that was sent to a folder, and exit with status 0 if it is completed."""
    job = json.loads((sent / TASK).read_bytes())
    folder = Path(tempfile.mkdtemp(prefix="nnpipe-job-"))
    places = {SENT: str(sent / job["file"]), REPORTS: str(folder / files.PROGRESS)}
    job["command"] = [places.get(word, word) for word in job["command"]]
    if try_lock(folder) is None:
        sys.exit(f"nnpipe: {folder} cannot be locked")
    files.write(folder, files.JOB, job)
    run(folder, None, relayed=True)
