"""A lock that lets only one process at a time start or supervise a job."""

from __future__ import annotations

import os
import time
from pathlib import Path

from nnpipe.jobs.agent.files import LOCK

try:
    import fcntl
except ImportError:  # Windows, where jobs are submitted to other machines only
    fcntl = None  # type: ignore[assignment]

_PATIENCE = 1.0  # seconds to wait, since a process that only checks the lock holds it for a moment


def try_lock(folder: Path) -> int | None:
    """Take a folder's lock, and return its file descriptor; None if another process holds it.

    The lock belongs to the descriptor and to all processes that inherit it.  It is
    released when the last of them ends for any reason.
    """
    handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    end = time.monotonic() + _PATIENCE
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return handle
        except BlockingIOError:
            if time.monotonic() > end:
                os.close(handle)
                return None
            time.sleep(0.02)
        except OSError:  # a file system without locks
            return handle


def is_locked(folder: Path) -> bool:
    """Return whether a process holds a folder's lock."""
    try:
        handle = os.open(folder / LOCK, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks
        return False
    finally:
        os.close(handle)
    return False
