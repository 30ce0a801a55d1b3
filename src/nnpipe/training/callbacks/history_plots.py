"""Losses and metrics over the epochs, as pictures and as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from nnpipe.core.argument_checks import check_call
from nnpipe.core.files import write_text
from nnpipe.core.foreign_text import csv_text
from nnpipe.training.callbacks.writing_callback import WritingCallback, folder_of, new_figure, save_figure, writes_after

if TYPE_CHECKING:
    from nnpipe.training.fit import Fit

_OTHERS = ("epoch", "step", "learning_rate")


class HistoryPlots(WritingCallback):
    """Draw each figure of the history over the epochs, in a panel with a line for each split.

    Writes ``pictures/history.png`` and ``tables/history.csv``.

    Parameters
    ----------
    every
        Draw every so many epochs; the last epoch is always drawn.
    """

    frameworks = ("torch", "keras")
    draws = True
    formerly: ClassVar[tuple[str, ...]] = ("CallbackReportingRecordHistory", "CallbackExportHistory")

    def __init__(self, every: int = 1) -> None:
        check_call(HistoryPlots, locals())
        self.every = every

    def on_epoch_end(self, fit: Fit) -> None:
        """Draw every ``every`` epochs; less often after many."""
        if fit.epoch % self.every == 0 and writes_after(fit):
            self._write(fit)

    def on_fit_end(self, fit: Fit) -> None:
        """Draw all epochs."""
        self._write(fit)

    def _write(self, fit: Fit) -> None:
        history = fit.history
        names = history.names
        write_text(folder_of(fit).table("history", ending="csv"), csv_text(names, history.rows()))

        panels: dict[str, list[tuple[str, str]]] = {}
        for name in names:
            # An output without a loss has the loss 0 in all epochs, which is not worth a panel.
            if name not in _OTHERS and not (name.endswith("/loss") and not np.nan_to_num(history[name]).any()):
                dataset, split, figure = name.split("/", 2)
                panels.setdefault(figure, []).append((f"{dataset}/{split}", name))
        if not panels:
            return
        columns = min(3, len(panels))
        rows = -(-len(panels) // columns)
        picture = new_figure(4.2 * columns, 3.0 * rows)
        grid = picture.subplots(rows, columns, squeeze=False).ravel()
        epochs = history["epoch"]
        for axes, (figure, lines) in zip(grid, panels.items(), strict=False):
            for label, name in lines:
                values = history[name]
                known = np.isfinite(values)
                axes.plot(epochs[known], values[known], marker="o" if len(epochs) < 30 else None, ms=3, label=label)
            if fit.best_epoch:
                axes.axvline(fit.best_epoch, color="grey", lw=0.8, ls=":", label=f"best epoch, {fit.best_epoch}")
            axes.set(title=figure, xlabel="epoch")
            axes.xaxis.get_major_locator().set_params(integer=True)
            axes.grid(alpha=0.3)
            axes.legend(fontsize=7)
        for axes in grid[len(panels) :]:
            axes.remove()
        save_figure(fit, "history", picture)
