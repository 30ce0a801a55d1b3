"""Keep libraries from writing to the terminal, without losing their messages."""

from __future__ import annotations

import logging
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
def capture_native_output() -> Iterator[Callable[[], str]]:
    """Capture the output to standard error while the block runs.

    Some libraries print from C++ without using Python's ``sys.stderr``, so the
    file descriptor itself is redirected.  This affects all threads of the
    process, so the block should be short.  A second thread waits until the
    first thread's block has ended, since overlapping redirections would restore
    the wrong descriptor.

    Yields
    ------
    callable
        Returns the captured text so far (its last 64 KiB), for an error
        message.

    Notes
    -----
    The captured text is dropped when the block ends.  If the process has no
    standard error, nothing is captured.
    """
    with _turns:
        yield from _capture_stderr()


def _capture_stderr() -> Iterator[Callable[[], str]]:
    try:
        sys.stderr.flush()
        kept = os.dup(2)
    except (OSError, AttributeError, ValueError):  # a process without a standard error
        yield lambda: ""
        return
    with tempfile.TemporaryFile() as held:

        def read_so_far() -> str:
            sys.stderr.flush()
            end = held.seek(0, os.SEEK_END)
            held.seek(max(0, end - _TAIL))
            text = held.read().decode("utf-8", "replace")
            held.seek(0, os.SEEK_END)
            return text

        os.dup2(held.fileno(), 2)
        try:
            yield read_so_far
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)


@contextmanager
def suppress_log_messages(*names: str, level: int = logging.CRITICAL) -> Iterator[None]:
    """Let loggers pass only messages of a level or above inside the block."""
    loggers = [logging.getLogger(name) for name in names]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(level)
    try:
        yield
    finally:
        for logger, each in zip(loggers, before, strict=True):
            logger.setLevel(each)
