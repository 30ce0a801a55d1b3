"""Progress of downloads and extractions: a bar on a terminal, an occasional line elsewhere."""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

from nnpipe.core.foreign_text import get_raw_stream, sanitize_text

_SECONDS_BETWEEN_LINES = 15.0


def format_size(count: int) -> str:
    """Return a number of bytes in readable form, such as ``9.9 MB``."""
    amount = float(count)
    for unit in ("B", "kB", "MB"):
        if amount < 1000:
            return f"{amount:.0f} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} GB"


class ByteProgress:
    """Shows the progress in bytes on standard error, or nothing if ``shown`` is false.

    On a terminal this is a tqdm bar.  Elsewhere (a log file, CI), a line is
    printed at most every 15 seconds.
    """

    def __init__(self, name: str, *, shown: bool = True, stream: TextIO | None = None):
        self._name = name
        self._stream = sys.stderr if stream is None else stream
        self._shown = shown and self._stream is not None
        self._total: int | None = None
        self._position = 0
        self._bar: Any = None
        self._next_line = time.monotonic() + _SECONDS_BETWEEN_LINES

    def __enter__(self) -> ByteProgress:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def print_line(self, text: str) -> None:
        """Print one line, above the bar if there is one."""
        if not self._shown:
            return
        if self._bar is not None:
            self._bar.clear()
        print(text, file=self._stream, flush=True)

    def begin(self, position: int, total: int | None) -> None:
        """Start, or start again, at ``position`` of ``total`` bytes (``None`` if not known)."""
        self.clear()
        self._position, self._total = position, total
        if self._shown and self._stream.isatty():
            self._bar = _create_tqdm_bar(self._name, position, total, self._stream)

    def advance(self, count: int) -> None:
        """Add ``count`` bytes."""
        self._position += count
        if self._bar is not None:
            self._bar.update(count)
        elif self._shown and time.monotonic() >= self._next_line:
            self._next_line = time.monotonic() + _SECONDS_BETWEEN_LINES
            of = "" if not self._total else f" of {format_size(self._total)}"
            self.print_line(f"{self._name}: {format_size(self._position)}{of}")

    def clear(self) -> None:
        """Close the bar, with its last state left on the terminal."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def _create_tqdm_bar(name: str, position: int, total: int | None, stream: TextIO) -> Any:
    try:
        from tqdm import tqdm
    except ImportError:
        return None
    return tqdm(
        desc=sanitize_text(name),
        initial=position,
        total=total,
        unit="B",
        unit_scale=True,
        file=get_raw_stream(stream),
        dynamic_ncols=True,
    )


# A lock between processes, which is released when its holder dies.
#
# The operating system holds the lock on an open file, so that even ``kill -9`` releases it and
# there are no stale locks.  The holder removes the lock file; a process that has waited therefore
# checks that the file it locked still has that name, and starts again if not.

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
            # Some network file systems do not support locks.  The checksum at the end still
            # protects the content.
            if error.errno in _UNSUPPORTED:
                return True
            raise
        return True


@contextmanager
def file_lock(path: Path, on_wait: Callable[[], None] | None = None) -> Iterator[None]:
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
