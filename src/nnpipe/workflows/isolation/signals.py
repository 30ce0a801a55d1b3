"""Shutting down cleanly on SIGTERM and Ctrl-C: signals are recorded, and current work is finished first."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager


class StopSignals:
    """Whether the process was asked to end, and a file descriptor that wakes a waiting thread."""

    def __init__(self, wake: int) -> None:
        self.wake = wake
        self._came = False

    def note(self, *_: object) -> None:
        """Record a signal."""
        self._came = True

    def came(self) -> bool:
        """Return whether a signal was received."""
        return self._came


@contextmanager
def stop_signals() -> Iterator[StopSignals]:
    """Record SIGTERM and Ctrl-C during a ``with`` block instead of ending at once."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    signals = StopSignals(read)
    before = {number: signal.signal(number, signals.note) for number in (signal.SIGTERM, signal.SIGINT)}
    old = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    try:
        yield signals
    finally:
        signal.set_wakeup_fd(old)
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(read)
        os.close(write)
