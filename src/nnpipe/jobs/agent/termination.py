"""Terminate processes and all their descendants."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable

from nnpipe.jobs.agent.processes import ProcessIdentity, identity, process, send

SURELY = 10.0
"""Seconds that killed processes may take to be gone; only one that waits for a broken disk takes longer."""

_PAUSE = 0.02


def reap() -> dict[int, int]:
    """Hear of children that ended: exit statuses by number, negative for signals."""
    found: dict[int, int] = {}
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                break
            found[pid] = os.waitstatus_to_exitcode(status)
    return found


def end(find: Callable[[], Iterable[int]], grace: float, reaped: Callable[[], object] = lambda: None) -> list[int]:
    """End processes: ask them to (SIGTERM), and kill what is still there after a while.

    Parameters
    ----------
    find
        Gives the numbers of those that are there; asked again and again, for they may start others meanwhile.
    grace
        Seconds between asking and killing.
    reaped
        Called now and then; a parent hears of its children's end there.

    Returns
    -------
    list of int
        Those that did not even end when they were killed.
    """
    asked: set[ProcessIdentity] = set()
    begun = time.monotonic()
    while True:
        reaped()
        here = [who for pid in find() if _lives(pid) and (who := identity(pid)) is not None]
        waited = time.monotonic() - begun
        if not here or waited > grace + SURELY:
            return [who.pid for who in here]
        for who in here:
            if waited >= grace:
                send(who, signal.SIGKILL)
            elif who not in asked:
                asked.add(who)
                send(who, signal.SIGTERM)
                send(who, signal.SIGCONT)  # one that is stopped hears nothing
        time.sleep(_PAUSE)


def _lives(pid: int) -> bool:
    found = process(pid)
    return found is not None and not found.ended
