"""Starting, cancelling and going on with a job on this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nnpipe.jobs.agent import files
from nnpipe.jobs.agent.folder_lock import take
from nnpipe.jobs.agent.processes import send
from nnpipe.jobs.agent.status import bury, look, stand, who_of
from nnpipe.jobs.agent.termination import SURELY

_PAUSE = 0.05
_TELLING = 120.0  # seconds that a supervisor may take to tell of an end that it has written down, on a busy machine


class Refused(Exception):
    """What was asked for cannot be done now; the text says why."""


def start(folder: Path, job: Mapping[str, Any], program: Sequence[str]) -> None:
    """Start a job in a session of its own, and return when somebody supervises it.

    Parameters
    ----------
    folder
        The job's, which is there already.
    job
        What is to be done: ``id``, ``command``, ``directory``, ``environment`` (further variables), ``outputs``,
        ``grace`` in seconds, and ``afterwards``, a command for when it has ended, or None; with a number of seconds
        as ``every`` it is also started that often while the job runs.
    program
        What runs this package.

    Raises
    ------
    Refused
        If it runs already, or could not be started.
    """
    with _locked(folder) as lock:
        if files.read(folder, files.JOB) is not None:
            raise Refused("there is a job already")
        # Whoever sees this file sees the lock, too, until the job has ended.
        files.write(folder, files.JOB, {"attempt": 1, **job})
        _launch(folder, program, lock)


def cancel(folder: Path, grace: float | None = None) -> dict[str, Any]:
    """End a job with all its processes, and say how it stands then.

    Parameters
    ----------
    folder
        The job's.
    grace
        Seconds that its processes have to end by themselves; by default what the job says.
    """
    if stand(folder)[2] is not None:
        return look(folder)
    job = files.read(folder, files.JOB)
    if job is None:
        bury(folder, force=True)
        return look(folder)
    seconds = float(job.get("grace", 10.0)) if grace is None else grace
    files.write(folder, files.CANCEL, {"grace": seconds, "at": time.time()})
    limit = time.monotonic() + seconds + SURELY + 5.0
    asked = False
    while time.monotonic() < limit:
        if not asked:  # one that has not been started yet reads the file
            asked = any(send(one, signal.SIGTERM) for one in who_of(folder)[-1:])
        if stand(folder)[2] is not None:
            return look(folder)
        time.sleep(_PAUSE)
    bury(folder, force=True)
    return look(folder)


def resume(
    folder: Path, command: Sequence[str], attempt: int, program: Sequence[str], environment: Mapping[str, str]
) -> None:
    """Start a job that has ended once more, in the same folder, as the attempt of that number.

    The environment holds variables that it has besides those of the attempt before.

    Raises
    ------
    Refused
        If it runs, or was completed.
    """
    found = look(folder)
    if found["ended"] is None:
        raise Refused("it runs already")
    if found["state"] == "completed":
        raise Refused("it is completed")
    with _locked(folder, _TELLING) as lock:
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
def _locked(folder: Path, telling: float = 0.0) -> Iterator[int]:
    """Take the folder's lock; wait so many seconds for a supervisor that has written down the end and still tells it.

    It keeps the lock meanwhile, so that what it tells of an attempt cannot come after the next one has begun.
    """
    limit = time.monotonic() + telling
    while (lock := take(folder)) is None:
        if not telling or files.read(folder, files.ENDED) is None:
            raise Refused("it runs already")
        if time.monotonic() > limit:
            raise Refused(f"it has ended, but what is done about its end goes on for {telling:g} s; try again later")
    try:
        yield lock
    finally:
        os.close(lock)


def _launch(folder: Path, program: Sequence[str], lock: int) -> None:
    """Start the warden, which inherits the lock, and wait until it has told that somebody supervises the job."""
    ready, theirs = os.pipe()
    with open(folder / files.LOG, "ab") as log:
        process = subprocess.Popen(
            [*program, "run", str(folder), str(theirs), str(lock)],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, pass_fds=(theirs, lock),
        )  # fmt: skip
    os.close(theirs)
    with open(ready, "rb") as handle:
        told = handle.read()
    process.returncode = 0  # it goes on by itself
    if told != b"ready\n":
        raise Refused(f"it could not be started; the end of {folder / files.LOG} tells why")
