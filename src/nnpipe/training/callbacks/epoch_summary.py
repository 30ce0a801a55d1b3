"""A line of text for each epoch."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, ClassVar

from nnpipe.core.files import write_text
from nnpipe.experiment.append_only import AppendOnly
from nnpipe.experiment.state import State
from nnpipe.training.callbacks.callback import Callback
from nnpipe.training.callbacks.writing_callback import folder_of, writes_after

if TYPE_CHECKING:
    from nnpipe.training.fit import Fit

_OTHERS = ("epoch", "step", "learning_rate")


class EpochSummary(Callback):
    """Log a line for each epoch, and write all of them to ``tables/epochs.txt`` where the run has a folder.

    An arrow shows whether a figure rose or fell since the last line; a star marks
    the best epoch so far.  Lines go to the log ``nnpipe.training``, level INFO.
    """

    frameworks = ("torch", "keras")
    formerly: ClassVar[tuple[str, ...]] = ("CallbackEpochSummary",)

    def __init__(self) -> None:
        self.state = State(lines=AppendOnly(), previous={})
        self._began = 0.0

    def on_fit_begin(self, fit: Fit) -> None:
        """Start the clock; the time of a resumed epoch is that of its remaining part."""
        self._began = perf_counter()

    def on_epoch_begin(self, fit: Fit) -> None:
        """Start the clock."""
        self._began = perf_counter()

    def on_epoch_end(self, fit: Fit) -> None:
        """Log the line."""
        row, state = fit.history.last, self.state
        parts = []
        for name, value in row.items():
            if name in _OTHERS:
                continue
            before = state.previous.get(name)
            arrow = "" if before is None or before == value else "↓" if value < before else "↑"
            parts.append(f"{name} {value:.4g}{arrow}")
        star = " *" if fit.best_epoch == fit.epoch else ""
        line = f"epoch {fit.epoch}/{fit.options.num_epochs}{star}  step {fit.step}  rate {row['learning_rate']:.3g}  "
        line += f"{perf_counter() - self._began:.1f} s  {'  '.join(parts)}"
        fit.log.info(line)
        state.previous = {**state.previous, **row}
        state.lines.append(line)
        if fit.folder is not None and writes_after(fit):
            self._write(fit)

    def on_fit_end(self, fit: Fit) -> None:
        """Write all lines."""
        if fit.folder is not None and self.state.lines:
            self._write(fit)

    def _write(self, fit: Fit) -> None:
        write_text(folder_of(fit).table("epochs", ending="txt"), "\n".join(self.state.lines) + "\n")
