"""A lock so that one process at a time starts or supervises a job."""

from __future__ import annotations

import os
import time
from pathlib import Path

from nnpipe.jobs.agent.files import LOCK

try:
    import fcntl
except ImportError:  # Windows, where jobs are submitted to other machines only
    fcntl = None  # type: ignore[assignment]

_PATIENCE = 1.0  # whoever only looks holds it for a moment


def take(folder: Path) -> int | None:
    """Take a folder's lock; None if somebody has it.

    It belongs to the descriptor, and so to whoever inherits that; it ends with
    the last of them, however they end.
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


def held(folder: Path) -> bool:
    """Return whether somebody has a folder's lock."""
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
