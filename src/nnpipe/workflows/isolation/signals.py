"""Ending cleanly when a signal asks for it: like Ctrl-C, or, for servers, after the current
work.
"""

from __future__ import annotations

import os
import signal
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

INTERRUPTED = 128 + signal.SIGINT
"""The exit status of a command after Ctrl-C."""

_ENDING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))
# seconds; who ends a process often sends several signals, and a terminal that closes does, too
_TOGETHER = 2.0


class EndSignals:
    """The signals that have asked this process to end.

    Attributes
    ----------
    status
        The exit status that tells of the signal, 130 without any.
    """

    def __init__(self) -> None:
        self.status = int(INTERRUPTED)
        self._process = os.getpid()
        self._last = float("-inf")

    def end(self, number: int, _: object) -> None:
        """Raise :class:`KeyboardInterrupt` for a signal; one that follows at once must not
        disturb what that does.
        """
        if os.getpid() != self._process:  # of a process that was forked
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        since, self._last = time.monotonic() - self._last, time.monotonic()
        if since > _TOGETHER:
            self.status = 128 + number
            _suppress_closed_terminal()
            raise KeyboardInterrupt


@contextmanager
def handle_end_signals() -> Iterator[EndSignals]:
    """Let SIGTERM and SIGHUP interrupt the main thread like Ctrl-C inside the block; ignored
    ones stay ignored.
    """
    signals, before = EndSignals(), {}
    if threading.current_thread() is threading.main_thread():
        wanted = [number for number in _ENDING if signal.getsignal(number) is signal.SIG_DFL]
        before = {number: signal.signal(number, signals.end) for number in wanted}
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _suppress_closed_terminal() -> None:
    """Let output go nowhere if it went to a terminal that is closed, since each further line
    would be an error.
    """
    for descriptor in (1, 2):
        try:
            if stat.S_ISCHR(os.fstat(descriptor).st_mode) and not os.isatty(descriptor):
                with open(os.devnull, "wb") as nothing:
                    os.dup2(nothing.fileno(), descriptor)
        except OSError:
            pass


class StopSignals:
    """Whether the process was asked to end, and a file descriptor that wakes a waiting thread."""

    def __init__(self, wake: int) -> None:
        self.wake = wake
        self._came = False

    def note(self, *_: object) -> None:
        """Record a signal."""
        self._came = True

    def has_signal(self) -> bool:
        """Return whether a signal was received."""
        return self._came


@contextmanager
def stop_signals() -> Iterator[StopSignals]:
    """Record SIGTERM, SIGHUP and Ctrl-C during a ``with`` block instead of ending at once."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    signals = StopSignals(read)
    before: dict[int, Any] = {}
    for number in (*_ENDING, signal.SIGINT):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as after nohup
            before[number] = signal.signal(number, signals.note)
    old = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    try:
        yield signals
    finally:
        signal.set_wakeup_fd(old)
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(read)
        os.close(write)
