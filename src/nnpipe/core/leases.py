"""Temporary folders and files that belong to one process while it lives.

A process that is killed cannot remove its temporary files.  So each process
locks its own; the system releases the lock when the process ends for any
reason, and the next process removes whatever is not locked.  Where others
write the files and might replace them, which would end a lock, the names say to
which process they belong.
"""

from __future__ import annotations

import contextlib
import os
import platform
import secrets
import shutil
import stat
import tempfile
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows: nothing is locked, and a process removes only its own files
    fcntl = None  # type: ignore[assignment]

_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
_OLD = 86_400.0  # seconds for which an interrupted upload is kept, so that a client can resume it
_TEMPORARY = "nnpipe-tmp-"


class LeasedFolder:
    """A new folder that belongs to this process and is removed when it is closed.

    Parameters
    ----------
    parent
        The folder in which it is made.
    prefix
        The beginning of its name.

    Attributes
    ----------
    path
        The folder.
    """

    def __init__(self, parent: Path, prefix: str) -> None:
        while True:
            self.path = parent / f"{prefix}{secrets.token_hex(8)}"
            self.path.mkdir(mode=0o700)
            # Between the two calls, another process may take the folder for an abandoned one and
            # remove it.
            self._lock = _open_folder(self.path)
            if self._lock is None:
                if self.path.is_dir():  # a system that cannot open folders
                    return
                continue
            mine = try_lock(self._lock)
            if mine is None or (mine and _is_at(self._lock, self.path)):
                return
            os.close(self._lock)

    def close(self) -> None:
        """Remove the folder with its content; closing it twice does no harm."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.close()


@contextlib.contextmanager
def create_temporary_folder() -> Iterator[Path]:
    """Yield a new folder, which is removed at the end of the block, or by the next caller if
    this process is killed.
    """
    parent = get_shared_temporary_folder()
    remove_abandoned_folders(parent, _TEMPORARY)
    with LeasedFolder(parent, _TEMPORARY) as folder:
        yield folder


@contextlib.contextmanager
def redirect_temporary_files() -> Iterator[Path]:
    """Let all temporary files of this process be in a :func:`create_temporary_folder` until the end
    of the block."""
    with create_temporary_folder() as folder:
        before, tempfile.tempdir = tempfile.tempdir, str(folder)
        try:
            yield folder
        finally:
            tempfile.tempdir = before


def get_shared_temporary_folder() -> Path:
    """Return the folder for temporary files that all processes of this machine share."""
    folder = Path(tempfile.gettempdir())
    return folder.parent if folder.name.startswith(_TEMPORARY) else folder


def remove_abandoned_folders(parent: Path, prefix: str) -> None:
    """Remove each :class:`LeasedFolder` whose process has ended."""
    for path in _list_own_paths(parent, prefix, ""):
        handle = _open_folder(path)
        if handle is not None:
            if try_lock(handle):
                shutil.rmtree(path, ignore_errors=True)
            os.close(handle)


def remove_abandoned_files(parent: Path, prefix: str, suffix: str) -> None:
    """Remove files with this prefix and suffix that are not locked and have not been written to
    for a day.
    """
    for path in _list_own_paths(parent, prefix, suffix):
        remove_abandoned_file(path, _OLD)


def remove_abandoned_file(path: Path, idle: float) -> None:
    """Remove a file of this user that is not locked and has not been written to for ``idle``
    seconds.

    The time matters in network folders, where other machines may not see a lock.
    """
    with contextlib.suppress(OSError):
        handle = os.open(path, os.O_RDONLY | _NO_FOLLOW | getattr(os, "O_NONBLOCK", 0))
        try:
            status = os.fstat(handle)
            mine = stat.S_ISREG(status.st_mode) and _is_mine(status)
            old = time.time() - status.st_mtime > idle
            if mine and old and try_lock(handle) and _is_at(handle, path):
                path.unlink()
        finally:
            os.close(handle)


@contextlib.contextmanager
def lease_file(path: Path) -> Iterator[None]:
    """Make a file and keep it locked until the block or the process ends, even if the file is
    renamed.
    """
    handle = open_leased(path)
    try:
        yield
    finally:
        if handle is not None:
            os.close(handle)


def open_leased(path: Path) -> int | None:
    """Open a file for reading and writing, make it if it does not exist, and lock it.

    Returns
    -------
    int or None
        The file descriptor; closing it releases the lock.  None if another process holds the lock,
        if the file is a link or has several names, or if files cannot be locked: then the caller
        must use another file.
    """
    for _ in range(10):
        try:
            handle = os.open(
                path, os.O_RDWR | os.O_CREAT | _NO_FOLLOW | getattr(os, "O_NONBLOCK", 0), 0o666
            )
        except OSError:
            return None
        status = os.fstat(handle)
        alone = stat.S_ISREG(status.st_mode) and status.st_nlink <= 1 and _is_mine(status)
        if not alone or not try_lock(handle):
            break
        if _is_at(handle, path):
            return handle
        os.close(handle)  # its former owner has renamed it in the meantime
    else:
        return None
    os.close(handle)
    return None


def try_lock(handle: int) -> bool | None:
    """Lock the file of a descriptor; return False if another process holds the lock, None if
    locking is impossible.
    """
    if fcntl is None:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def get_owner_token() -> str:
    """Return a part of file names that says to which process a file belongs: machine, process ID
    and start time.
    """
    return f"{_get_machine_token()}-{os.getpid():x}-{_start_of(os.getpid()) or 0:x}"


def has_owner_ended(token: str) -> bool | None:
    """Return whether the process of an :func:`get_owner_token` has ended; None if it is on another
    machine.
    """
    machine, pid, start = token.split("-")
    if machine != _get_machine_token() or os.name != "posix":
        return None
    found = _start_of(int(pid, 16))
    if found is not None:
        return f"{found:x}" != start
    if os.path.exists("/proc/self/stat"):
        return True
    try:
        os.kill(int(pid, 16), 0)
    except ProcessLookupError:
        return True
    except OSError:
        pass
    return False


def _get_machine_token() -> str:
    """Return eight digits for this boot of this machine, and this container."""
    known = platform.node()
    with contextlib.suppress(OSError):
        known = Path("/proc/sys/kernel/random/boot_id").read_text("ascii") + str(
            Path("/proc/self/ns/pid").readlink()
        )
    return f"{zlib.crc32(known.encode()):08x}"


def _start_of(pid: int) -> int | None:
    """Return when a process was started, in ticks since the boot; None if it has ended, or the
    system does not say.
    """
    try:
        # The name, in brackets, may contain any character (man 5 proc).
        words = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if words[0] in (b"Z", b"X") else int(words[19])


def _list_own_paths(parent: Path, prefix: str, suffix: str) -> list[Path]:
    """Return the files and folders of this user with this prefix and suffix."""
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
    """Return whether a path names the file of a descriptor."""
    try:
        there, here = path.lstat(), os.fstat(handle)
    except OSError:
        return False
    return (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)


def _open_folder(path: Path) -> int | None:
    try:
        return os.open(path, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | _NO_FOLLOW)
    except OSError:  # it is gone or not a folder, or the system cannot open folders
        return None
