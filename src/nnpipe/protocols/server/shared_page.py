"""What a worker process shows its supervisor, and the supervisor the worker: a page of shared memory.

The worker writes what it is doing, for a supervisor cannot ask a process that
hangs; the supervisor writes samples of the worker's resources, so that taking
them does not disturb the inference.
"""

from __future__ import annotations

import mmap
import time
from enum import IntEnum

from nnpipe.protocols.conversation.payloads import ROW_SIZE

ROWS = 4096
_NUMBER, _SINCE, _COUNT = 1, 2, 3  # words of eight bytes
_ROWS_AT = 64


class Phase(IntEnum):
    """What a worker is doing."""

    WAITING = 0
    SENDING = 1
    LOADING = 2
    RUNNING = 3


class Board:
    """The page; made before the worker is forked, so that both have it.

    Each field has one writer, which writes what is being done before the
    phase, and the supervisor reads them the other way round: a phase is never
    shown with the time of something earlier.
    """

    def __init__(self) -> None:
        self._page = mmap.mmap(-1, _ROWS_AT + ROWS * ROW_SIZE)
        # An item of this view is written and read in one piece; struct clears what it packs into before it writes.
        self._words = memoryview(self._page).cast("Q")
        self._read = 0
        self.phase = self._page
        """Its first byte is the phase; the worker sets it, often, where the time does not matter."""

    def begin(self, phase: int, number: int) -> None:
        """Worker: say what is being done from now on, and for which request."""
        words = self._words
        words[_NUMBER] = number
        words[_SINCE] = time.monotonic_ns()
        self._page[0] = phase

    def doing(self) -> tuple[Phase, float, int]:
        """Supervisor: what the worker does, for how many seconds since it began something, and for which request."""
        phase = Phase(self._page[0])
        since = self._words[_SINCE]
        return phase, (time.monotonic_ns() - since) / 1e9, self._words[_NUMBER]

    def add_row(self, row: bytes) -> None:
        """Supervisor: add a sample of the worker's resources; the oldest goes when there is no room."""
        count = self._words[_COUNT]
        at = _ROWS_AT + count % ROWS * ROW_SIZE
        self._page[at : at + ROW_SIZE] = row
        self._words[_COUNT] = count + 1

    def new_rows(self) -> bytes:
        """Worker: the samples that came since the last call, those lost for lack of room left out."""
        count = self._words[_COUNT]
        # The oldest could be overwritten while it is read here.
        first = max(self._read, count - (ROWS - 16))
        self._read = count
        rows = (self._page[at : at + ROW_SIZE] for at in (_ROWS_AT + i % ROWS * ROW_SIZE for i in range(first, count)))
        return b"".join(rows)

    def close(self) -> None:
        """Give the page back."""
        self._words.release()
        self._page.close()
