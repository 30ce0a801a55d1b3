"""A lock between processes, which is released when its holder dies.

The operating system holds the lock on an open file, so that even ``kill -9``
releases it and there are no stale locks.  The holder removes the lock file;
a process that has waited therefore checks that the file it locked still has
that name, and starts again if not.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_POLL_SECONDS = 0.05
_UNSUPPORTED = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}

if sys.platform == "win32":
    import msvcrt

    def _try_lock(descriptor: int) -> bool:
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError as error:
            if error.errno in {errno.EACCES, errno.EDEADLK}:
                return False
            raise
        return True

else:
    import fcntl

    def _try_lock(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:
            # Some network file systems do not support locks.  The checksum at the end still protects the content.
            if error.errno in _UNSUPPORTED:
                return True
            raise
        return True


@contextmanager
def locked(path: Path, on_wait: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold a lock on the file ``path`` inside the block.

    Parameters
    ----------
    path
        The lock file; its folder must exist.
    on_wait
        Called once if another process holds the lock.

    Raises
    ------
    OSError
        If the lock file cannot be created.
    """
    descriptor = _acquire(path, on_wait)
    try:
        yield
    finally:
        if sys.platform == "win32":
            os.close(descriptor)  # an open file cannot be removed on Windows
        with suppress(OSError):  # on Windows another process may have it open, and will remove it
            path.unlink(missing_ok=True)
        if sys.platform != "win32":
            os.close(descriptor)


def _acquire(path: Path, on_wait: Callable[[], None] | None) -> int:
    told = False
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            while not _try_lock(descriptor):
                if on_wait is not None and not told:
                    on_wait()
                told = True
                time.sleep(_POLL_SECONDS)
            if _is_current(descriptor, path):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _is_current(descriptor: int, path: Path) -> bool:
    try:
        named = path.stat()
    except FileNotFoundError:
        return False
    opened = os.fstat(descriptor)
    return (named.st_dev, named.st_ino) == (opened.st_dev, opened.st_ino)
