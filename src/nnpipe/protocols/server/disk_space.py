"""Room on the disk for a file that is being written, taken in larger pieces than it is written in."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import sys
from collections.abc import Callable

_KEEP_SIZE = 1  # the file grows as it is written: its size says how much of it has come
_WINDOW = 8 << 20  # bytes reserved at a time: the most that a writer who dies leaves reserved for nothing


class Room:
    """Reserves blocks ahead of what is written, where the system can.

    A file system that finds blocks for each write anew takes half as long
    again.  What could not be reserved does no harm: the write will say why.

    Parameters
    ----------
    descriptor
        Of the file.
    at
        Where writing begins, in bytes.
    size
        Of the whole file; nothing is reserved beyond.
    """

    def __init__(self, descriptor: int, at: int, size: int) -> None:
        self._descriptor = descriptor
        self._end = at
        self._size = size

    def reach(self, end: int) -> None:
        """Have room up to this byte."""
        while self._end < end:
            until = min(self._end + _WINDOW, self._size)
            if until <= self._end or not _reserved(self._descriptor, self._end, until - self._end):
                self._end = self._size  # it will not go better the next time
                return
            self._end = until

    def give_back(self, end: int) -> None:
        """Keep no more than the first ``end`` bytes, which have been written."""
        if self._end > end:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, end)


def _reserved(descriptor: int, at: int, length: int) -> bool:
    fallocate = _fallocate()
    return fallocate is not None and fallocate(descriptor, _KEEP_SIZE, at, length) == 0


@functools.cache
def _fallocate() -> Callable[[int, int, int, int], int] | None:
    """Return Linux's call; the portable one of ``os`` makes the file longer, and where it must it writes zeros."""
    if not sys.platform.startswith("linux"):
        return None
    library = ctypes.CDLL(None)
    function = getattr(library, "fallocate64", None) or getattr(library, "fallocate", None)
    if function is None:
        return None
    function.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    call: Callable[[int, int, int, int], int] = function
    return call
