"""The history as CSV, a row at the end of each epoch."""

from __future__ import annotations

import os
from typing import IO, TYPE_CHECKING, Any, ClassVar

from nnpipe.core.foreign_text import csv_text
from nnpipe.experiment.state import State
from nnpipe.training.callbacks.writing_callback import WritingCallback, folder_of

if TYPE_CHECKING:
    from nnpipe.training.fit import Fit


class HistoryTable(WritingCallback):
    """Append a line to ``tables/live.csv`` at the end of each epoch, for programs that follow a training.

    Lines are on the disk when the epoch ends, and earlier ones are not written again, so that an epoch costs the same
    however many there were before.  If an epoch has figures that no epoch had before, the table is written anew with
    the new columns.  A resumed run continues the file, shortened to the epochs of its checkpoint.
    """

    frameworks = ("torch", "keras")
    formerly: ClassVar[tuple[str, ...]] = ("CSVLogger",)  # of Lightning and of Keras

    def __init__(self) -> None:
        # The bytes of the file that belong to finished epochs, and its columns.
        self.state = State(size=0, names=[])
        self._file: IO[bytes] | None = None

    def on_fit_begin(self, fit: Fit) -> None:
        """Open the file; if its content is lost, write the history again from the start."""
        super().on_fit_begin(fit)
        path = folder_of(fit).table("live", ending="csv")
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("r+b" if path.exists() else "w+b")
        if self._file.seek(0, os.SEEK_END) < self.state.size:
            self.state.size, self.state.names = 0, []
        self._file.truncate(self.state.size)
        self._file.seek(self.state.size)
        if not self.state.size and len(fit.history):
            self._write(fit, anew=True)

    def on_epoch_end(self, fit: Fit) -> None:
        """Write the epoch's line."""
        self._write(fit, anew=not set(fit.history.last) <= set(self.state.names))

    def _write(self, fit: Fit, anew: bool) -> None:
        file = self._file
        assert file is not None  # on_fit_begin has opened it
        if anew:
            self.state.names = list(fit.history.names)
            file.truncate(0)
            file.seek(0)
        rows: Any = fit.history.rows() if anew else [fit.history.last]
        file.write(csv_text(self.state.names, rows, header=anew).encode())
        file.flush()
        os.fsync(file.fileno())
        self.state.size = file.tell()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None
