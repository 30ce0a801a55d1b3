"""Terminate processes and all their descendants."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable

from nnpipe.jobs.agent.processes import ProcessIdentity, get_identity, process, send

SURELY = 10.0
"""Seconds for killed processes to end; only a process that waits for a broken disk takes longer."""

_PAUSE = 0.02


def reap() -> dict[int, int]:
    """Reap ended children, and return their exit statuses by process ID, negative for signals."""
    found: dict[int, int] = {}
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                break
            found[pid] = os.waitstatus_to_exitcode(status)
    return found


def end(
    find: Callable[[], Iterable[int]], grace: float, reaped: Callable[[], object] = lambda: None
) -> list[int]:
    """Terminate processes: send SIGTERM, and kill those that still run after the grace period.

    Parameters
    ----------
    find
        Returns the IDs of the running processes; called repeatedly, since they may start others.
    grace
        The seconds between SIGTERM and SIGKILL.
    reaped
        Called repeatedly; a parent reaps its children there.

    Returns
    -------
    list of int
        The IDs of processes that did not end even when killed.
    """
    asked: set[ProcessIdentity] = set()
    begun = time.monotonic()
    while True:
        reaped()
        here = [who for pid in find() if _is_alive(pid) and (who := get_identity(pid)) is not None]
        waited = time.monotonic() - begun
        if not here or waited > grace + SURELY:
            return [who.pid for who in here]
        for who in here:
            if waited >= grace:
                send(who, signal.SIGKILL)
            elif who not in asked:
                asked.add(who)
                send(who, signal.SIGTERM)
                send(who, signal.SIGCONT)  # a stopped process does not handle signals
        time.sleep(_PAUSE)


def _is_alive(pid: int) -> bool:
    found = process(pid)
    return found is not None and not found.ended
