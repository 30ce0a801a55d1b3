"""A page of memory that a worker process and its supervisor share.

The worker writes its state, since a supervisor cannot ask a process that hangs.
The supervisor writes samples of the worker's resources, so that sampling does not
disturb the inference.
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
    """The state of a worker."""

    WAITING = 0
    SENDING = 1
    LOADING = 2
    RUNNING = 3


class SharedPage:
    """The shared page; it is made before the worker is forked, so that both processes have it.

    Each field has one writer.  The worker writes the other fields before the
    phase, and the supervisor reads them in the opposite order.  So a phase is
    never read with the time of an earlier one.
    """

    def __init__(self) -> None:
        self._page = mmap.mmap(-1, _ROWS_AT + ROWS * ROW_SIZE)
        # An item of this view is written and read atomically; struct would clear its destination
        # before it writes.
        self._words = memoryview(self._page).cast("Q")
        self._read = 0
        self.phase = self._page
        """The page; its first byte is the phase, which the worker often sets alone if the time
        does not matter.
        """

    def begin(self, phase: int, number: int) -> None:
        """Worker: begin a phase for a request."""
        words = self._words
        words[_NUMBER] = number
        words[_SINCE] = time.monotonic_ns()
        self._page[0] = phase

    def read_phase(self) -> tuple[Phase, float, int]:
        """Supervisor: return the worker's phase, the seconds since it began, and the number of
        the request.
        """
        phase = Phase(self._page[0])
        since = self._words[_SINCE]
        return phase, (time.monotonic_ns() - since) / 1e9, self._words[_NUMBER]

    def add_row(self, row: bytes) -> None:
        """Supervisor: add a sample of the worker's resources; it replaces the oldest if the page
        is full.
        """
        count = self._words[_COUNT]
        at = _ROWS_AT + count % ROWS * ROW_SIZE
        self._page[at : at + ROW_SIZE] = row
        self._words[_COUNT] = count + 1

    def read_new_rows(self) -> bytes:
        """Worker: return the samples since the last call, except for replaced ones."""
        count = self._words[_COUNT]
        # The oldest sample could be overwritten while it is read here.
        first = max(self._read, count - (ROWS - 16))
        self._read = count
        rows = (
            self._page[at : at + ROW_SIZE]
            for at in (_ROWS_AT + i % ROWS * ROW_SIZE for i in range(first, count))
        )
        return b"".join(rows)

    def close(self) -> None:
        """Release the page."""
        self._words.release()
        self._page.close()
