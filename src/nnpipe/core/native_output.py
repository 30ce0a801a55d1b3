"""Keeping native libraries from writing over the terminal, without losing what they said."""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_TAIL = 1 << 16
_turns = threading.RLock()


def _begin_anew() -> None:
    global _turns
    _turns = threading.RLock()  # another thread may have held it when the process was forked


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)


@contextmanager
def native_output_held() -> Iterator[Callable[[], str]]:
    """Hold what is written to the standard error while the block runs.

    Some libraries print notices from C++, past Python's ``sys.stderr``; the
    file descriptor itself has to be turned away.  That holds for the whole
    process, threads included, so the block should be short.  A second thread
    waits until the first's has ended: two that overlapped would put back what
    the other had turned away.

    Yields
    ------
    callable
        Gives what has been written so far (its last 64 KiB), for an error
        message.

    Notes
    -----
    What was held is dropped when the block ends.  Where there is no standard
    error to turn away, nothing is held.
    """
    with _turns:
        yield from _held()


def _held() -> Iterator[Callable[[], str]]:
    try:
        sys.stderr.flush()
        kept = os.dup(2)
    except (OSError, AttributeError, ValueError):  # a process without a standard error
        yield lambda: ""
        return
    with tempfile.TemporaryFile() as held:

        def so_far() -> str:
            sys.stderr.flush()
            end = held.seek(0, os.SEEK_END)
            held.seek(max(0, end - _TAIL))
            text = held.read().decode("utf-8", "replace")
            held.seek(0, os.SEEK_END)
            return text

        os.dup2(held.fileno(), 2)
        try:
            yield so_far
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)
