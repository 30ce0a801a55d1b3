"""A table at the foot of a terminal that is drawn again while a search runs, below the lines of ended trials."""

from __future__ import annotations

import logging
import shutil
import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TextIO

from nnpipe.core.foreign_text import harmless
from nnpipe.report.formatting import clean
from nnpipe.searching.trial_store import TrialStore
from nnpipe.workflows.search.search_progress import SearchProgress

log = logging.getLogger("nnpipe")

_EVERY = 1.0  # seconds
_UP, _CLEAR, _DIM, _PLAIN = "\x1b[{}A\r", "\x1b[J", "\x1b[2m", "\x1b[0m"


class LiveTable:
    """Draws the state of a search again and again, in a thread, until the block ends.

    It reads the trials from their store, so it also shows what other processes do.

    Parameters
    ----------
    store
        The trials.
    progress
        The state as lines.
    stream
        The terminal.
    width
        Returns the number of columns of the terminal.
    """

    def __init__(
        self,
        store: TrialStore,
        progress: SearchProgress,
        stream: TextIO,
        width: Callable[[], int] = lambda: shutil.get_terminal_size().columns,
    ) -> None:
        self._store, self._progress, self._stream, self._width = store, progress, stream, width
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._version = 0
        self._drawn = 0

    def __enter__(self) -> LiveTable:
        changes = self._store.since(0)
        self._version = changes.version
        self._progress.skip(changes.trials)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        with self._lock:
            self._write([], [])

    def draw(self, *above: str) -> None:
        """Read what has changed, and draw the table, below some further lines."""
        with self._lock:
            changes = self._store.since(self._version)
            self._version = changes.version
            self._progress.learn(changes.trials)
            self._write(above, self._progress.lines())

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                self.draw()
            except Exception as error:  # the search goes on without its table
                log.debug("the table cannot be drawn: %s", error)
            self._over.wait(_EVERY)

    def _write(self, above: Sequence[str], table: Sequence[str]) -> None:
        columns = max(self._width() - 1, 20)
        back = _UP.format(self._drawn) if self._drawn else ""
        lines = [*map(harmless, above), *(f"{_DIM}{clean(line, columns)}{_PLAIN}" for line in table)]
        self._stream.write(f"{back}{_CLEAR}" + "".join(f"{line}\n" for line in lines))
        self._stream.flush()
        self._drawn = len(table)
