"""Folders and files that belong to one process for as long as it lives.

Whose process was killed cannot remove what it made.  So each of these is
locked by whoever uses it; the lock ends with the process, however that went,
and what nobody has locked is removed by the next one that looks.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import stat
import time
from collections.abc import Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows: nothing is locked, and nothing is removed that is not one's own
    fcntl = None  # type: ignore[assignment]

_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
_OLD = 86_400.0  # seconds for which an upload that broke off is kept, for a client that goes on with it


class LeasedFolder:
    """A new folder that is this process's own, and goes when it is closed.

    Parameters
    ----------
    parent
        Where it is made.
    prefix
        What its name begins with.

    Attributes
    ----------
    path
        The folder.
    """

    def __init__(self, parent: Path, prefix: str) -> None:
        while True:
            self.path = parent / f"{prefix}{secrets.token_hex(8)}"
            self.path.mkdir(mode=0o700)
            # Somebody may look between the two calls, and take it for one that was left behind.
            self._lock = _open_folder(self.path)
            if self._lock is None:
                if self.path.is_dir():  # a system that cannot open folders
                    return
                continue
            mine = locked(self._lock)
            if mine is None or (mine and _is_at(self._lock, self.path)):
                return
            os.close(self._lock)

    def close(self) -> None:
        """Remove it with all that is in it; closing twice does no harm."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.close()


def sweep(parent: Path, prefix: str) -> None:
    """Remove the :class:`LeasedFolder` of processes that are gone."""
    for path in _own(parent, prefix, ""):
        handle = _open_folder(path)
        if handle is not None:
            if locked(handle):
                shutil.rmtree(path, ignore_errors=True)
            os.close(handle)


def sweep_files(parent: Path, prefix: str, suffix: str) -> None:
    """Remove files of such names that nobody has locked and nobody has written to for a day."""
    for path in _own(parent, prefix, suffix):
        sweep_file(path, _OLD)


def sweep_file(path: Path, idle: float) -> None:
    """Remove a file of this user's that nobody has locked and nobody has written to for so many seconds.

    The time is for folders on a network where a lock is not seen by other machines.
    """
    with contextlib.suppress(OSError):
        handle = os.open(path, os.O_RDONLY | _NO_FOLLOW | getattr(os, "O_NONBLOCK", 0))
        try:
            status = os.fstat(handle)
            mine = stat.S_ISREG(status.st_mode) and _is_mine(status)
            old = time.time() - status.st_mtime > idle
            if mine and old and locked(handle) and _is_at(handle, path):
                path.unlink()
        finally:
            os.close(handle)


@contextlib.contextmanager
def leased(path: Path) -> Iterator[None]:
    """Make a file that nobody sweeps away until the block ends or the process does, under whatever name it is then."""
    handle = open_leased(path)
    try:
        yield
    finally:
        if handle is not None:
            os.close(handle)


def open_leased(path: Path) -> int | None:
    """Open a file to read and write, made if it is not there, and lock it.

    Returns
    -------
    int or None
        The descriptor, whose end is the end of the lock.  None where somebody else has the file, where it is a link
        or has another name as well, or where files cannot be locked: then another one must be used.
    """
    for _ in range(10):
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | _NO_FOLLOW | getattr(os, "O_NONBLOCK", 0), 0o666)
        except OSError:
            return None
        status = os.fstat(handle)
        alone = stat.S_ISREG(status.st_mode) and status.st_nlink <= 1 and _is_mine(status)
        if not alone or not locked(handle):
            break
        if _is_at(handle, path):
            return handle
        os.close(handle)  # whoever had it has moved it to its place meanwhile
    else:
        return None
    os.close(handle)
    return None


def locked(handle: int) -> bool | None:
    """Lock what a descriptor leads to; returns False if somebody has it, None where that cannot be done."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _own(parent: Path, prefix: str, suffix: str) -> list[Path]:
    """Return what this user owns in a folder, by name."""
    found = []
    with contextlib.suppress(OSError), os.scandir(parent) as items:
        for item in items:
            if item.name.startswith(prefix) and item.name.endswith(suffix):
                with contextlib.suppress(OSError):
                    if _is_mine(item.stat(follow_symlinks=False)):
                        found.append(Path(item.path))
    return found


def _is_mine(status: os.stat_result) -> bool:
    return not hasattr(os, "geteuid") or status.st_uid == os.geteuid()


def _is_at(handle: int, path: Path) -> bool:
    """Return whether a path leads to what a descriptor leads to."""
    try:
        there, here = path.lstat(), os.fstat(handle)
    except OSError:
        return False
    return (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)


def _open_folder(path: Path) -> int | None:
    try:
        return os.open(path, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | _NO_FOLLOW)
    except OSError:  # gone, no folder, or a system that cannot open folders
        return None
