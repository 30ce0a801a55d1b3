"""Reservation of disk space for a file, in larger pieces than those in which it is written."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import sys
from collections.abc import Callable

_KEEP_SIZE = 1  # reserving does not change the file's size, which shows how much has been written
_WINDOW = 8 << 20  # bytes reserved at a time; at most this much stays reserved if the process is killed


class SpaceReservation:
    """Reserves disk space ahead of writing, if the system can.

    Without it, writing takes half as long again, since the file system allocates
    space for each write.  A failure is ignored: the write will report it.

    Parameters
    ----------
    descriptor
        The file descriptor.
    at
        The position at which writing begins, in bytes.
    size
        The size of the whole file in bytes; nothing is reserved beyond it.
    """

    def __init__(self, descriptor: int, at: int, size: int) -> None:
        self._descriptor = descriptor
        self._end = at
        self._size = size

    def reach(self, end: int) -> None:
        """Reserve space up to this byte."""
        while self._end < end:
            until = min(self._end + _WINDOW, self._size)
            if until <= self._end or not _reserved(self._descriptor, self._end, until - self._end):
                self._end = self._size  # do not try again
                return
            self._end = until

    def give_back(self, end: int) -> None:
        """Release the reserved space after the first ``end`` bytes, which have been written."""
        if self._end > end:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, end)


def _reserved(descriptor: int, at: int, length: int) -> bool:
    fallocate = _fallocate()
    return fallocate is not None and fallocate(descriptor, _KEEP_SIZE, at, length) == 0


@functools.cache
def _fallocate() -> Callable[[int, int, int, int], int] | None:
    """Return Linux's ``fallocate``; the portable function of ``os`` makes the file longer, and may write zeros."""
    if not sys.platform.startswith("linux"):
        return None
    library = ctypes.CDLL(None)
    function = getattr(library, "fallocate64", None) or getattr(library, "fallocate", None)
    if function is None:
        return None
    function.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    call: Callable[[int, int, int, int], int] = function
    return call
