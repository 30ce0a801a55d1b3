"""Keeping native libraries from writing over the terminal, without losing what they said."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_TAIL = 1 << 16


@contextmanager
def native_output_held() -> Iterator[Callable[[], str]]:
    """Hold what is written to the standard error while the block runs.

    Some libraries print notices from C++, past Python's ``sys.stderr``; the
    file descriptor itself has to be turned away.  That holds for the whole
    process, threads included, so the block should be short.

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
