"""The history as a table, as pictures, as its best figures, and as a line for each epoch."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from time import perf_counter
from types import MappingProxyType
from typing import IO, TYPE_CHECKING, Any, ClassVar

import numpy as np

from nnpipe.core.argument_checks import check_call
from nnpipe.core.files import write_text
from nnpipe.core.foreign_text import format_csv
from nnpipe.experiment.state import AppendOnly, State
from nnpipe.training._best_epoch import less_is_better
from nnpipe.training.callbacks.callback import (
    Callback,
    WritingCallback,
    create_figure,
    get_run_folder,
    is_write_due,
    save_figure,
    write_table,
)

if TYPE_CHECKING:
    from nnpipe.training.fit import TrainingRun


class HistoryTable(WritingCallback):
    """Append a line to ``tables/live.csv`` at the end of each epoch, for programs that follow a
    training.

    Lines are on the disk when the epoch ends, and earlier ones are not written again, so that an
    epoch costs the same however many there were before.  If an epoch has figures that no epoch had
    before, the table is written anew with the new columns.  A resumed run continues the file,
    shortened to the epochs of its checkpoint.
    """

    frameworks = ("torch", "keras")
    formerly: ClassVar[tuple[str, ...]] = ("CSVLogger",)  # of Lightning and of Keras

    def __init__(self) -> None:
        # The bytes of the file that belong to finished epochs, and its columns.
        self.state = State(size=0, names=[])
        self._file: IO[bytes] | None = None

    def on_fit_begin(self, fit: TrainingRun) -> None:
        """Open the file; if its content is lost, write the history again from the start."""
        super().on_fit_begin(fit)
        path = get_run_folder(fit).table("live", ending="csv")
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("r+b" if path.exists() else "w+b")
        if self._file.seek(0, os.SEEK_END) < self.state.size:
            self.state.size, self.state.names = 0, []
        self._file.truncate(self.state.size)
        self._file.seek(self.state.size)
        if not self.state.size and len(fit.history):
            self._write(fit, anew=True)

    def on_epoch_end(self, fit: TrainingRun) -> None:
        """Write the epoch's line."""
        self._write(fit, anew=not set(fit.history.last) <= set(self.state.names))

    def _write(self, fit: TrainingRun, anew: bool) -> None:
        file = self._file
        assert file is not None  # on_fit_begin has opened it
        if anew:
            self.state.names = list(fit.history.names)
            file.truncate(0)
            file.seek(0)
        rows: Any = fit.history.rows() if anew else [fit.history.last]
        file.write(format_csv(self.state.names, rows, header=anew).encode())
        file.flush()
        os.fsync(file.fileno())
        self.state.size = file.tell()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None


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
    formerly: ClassVar[tuple[str, ...]] = (
        "CallbackReportingRecordHistory",
        "CallbackExportHistory",
    )

    def __init__(self, every: int = 1) -> None:
        check_call(HistoryPlots, locals())
        self.every = every

    def on_epoch_end(self, fit: TrainingRun) -> None:
        """Draw every ``every`` epochs; less often after many."""
        if fit.epoch % self.every == 0 and is_write_due(fit):
            self._write(fit)

    def on_fit_end(self, fit: TrainingRun) -> None:
        """Draw all epochs."""
        self._write(fit)

    def _write(self, fit: TrainingRun) -> None:
        history = fit.history
        names = history.names
        write_text(
            get_run_folder(fit).table("history", ending="csv"), format_csv(names, history.rows())
        )

        panels: dict[str, list[tuple[str, str]]] = {}
        for name in names:
            # An output without a loss has the loss 0 in all epochs, which is not worth a panel.
            if name not in _OTHERS and not (
                name.endswith("/loss") and not np.nan_to_num(history[name]).any()
            ):
                dataset, split, figure = name.split("/", 2)
                panels.setdefault(figure, []).append((f"{dataset}/{split}", name))
        if not panels:
            return
        columns = min(3, len(panels))
        rows = -(-len(panels) // columns)
        picture = create_figure(4.2 * columns, 3.0 * rows)
        grid = picture.subplots(rows, columns, squeeze=False).ravel()
        epochs = history["epoch"]
        for axes, (figure, lines) in zip(grid, panels.items(), strict=False):
            for label, name in lines:
                values = history[name]
                known = np.isfinite(values)
                axes.plot(
                    epochs[known],
                    values[known],
                    marker="o" if len(epochs) < 30 else None,
                    ms=3,
                    label=label,
                )
            if fit.best_epoch:
                axes.axvline(
                    fit.best_epoch,
                    color="grey",
                    lw=0.8,
                    ls=":",
                    label=f"best epoch, {fit.best_epoch}",
                )
            axes.set(title=figure, xlabel="epoch")
            axes.xaxis.get_major_locator().set_params(integer=True)
            axes.grid(alpha=0.3)
            axes.legend(fontsize=7)
        for axes in grid[len(panels) :]:
            axes.remove()
        save_figure(fit, "history", picture)


class BestFigures(WritingCallback):
    """Write for each figure its best, first and last value and the best epoch, into
    ``tables/best.json``.

    The best value is the least of losses and errors and the greatest of accuracies and the like, as
    metrics of tasks, a ``QualityMetric`` and objects of torchmetrics say.  Of a figure of which
    neither is known, the table has the least and the greatest value.
    """

    frameworks = ("torch", "keras")
    formerly: ClassVar[tuple[str, ...]] = ("CallbackReportingBestMetrics",)
    answers: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            "CallbackSaveLastModel": "the trainer keeps the last weights and the best by itself; "
            "its options keep_best, keep_every and on_divergence say how many, and what follows a "
            "loss that is not finite",
            "CallbackEarlyStopping": "the trainer's options patience, min_delta and monitor stop it early",
            "ModelCheckpoint": "the trainer keeps the last weights and the best by itself; see its option keep_best",
            "EarlyStopping": "the trainer's options patience, min_delta and monitor stop it early",
        }
    )

    def __init__(self) -> None:
        # By figure: the first value, then the least and the greatest ones, each with its epoch.
        self.state = State(figures={})

    def on_epoch_end(self, fit: TrainingRun) -> None:
        """Compare the epoch's figures with those before, and write the table."""
        figures = dict(self.state.figures)
        for name, value in fit.history.last.items():
            if name in _OTHERS or not math.isfinite(value):
                continue
            before = figures.get(name, [value, value, fit.epoch, value, fit.epoch])
            first, least, least_epoch, greatest, greatest_epoch = before
            if value < least:
                least, least_epoch = value, fit.epoch
            if value > greatest:
                greatest, greatest_epoch = value, fit.epoch
            figures[name] = [first, least, least_epoch, greatest, greatest_epoch]
        self.state.figures = figures
        if is_write_due(fit):
            self._write(fit)

    def on_fit_end(self, fit: TrainingRun) -> None:
        """Write the table a last time."""
        if self.state.figures:
            self._write(fit)

    def _write(self, fit: TrainingRun) -> None:
        figures = self.state.figures
        write_table(
            fit, "best", (_build_row(fit, name, kept) for name, kept in sorted(figures.items()))
        )


def _build_row(fit: TrainingRun, name: str, kept: list[Any]) -> dict[str, Any]:
    first, least, least_epoch, greatest, greatest_epoch = kept
    less = less_is_better(name, fit.metrics)
    row: dict[str, Any] = {"figure": name}
    if less is None:
        row |= {
            "least": least,
            "least_epoch": least_epoch,
            "greatest": greatest,
            "greatest_epoch": greatest_epoch,
        }
    else:
        row |= {
            "best": least if less else greatest,
            "best_epoch": least_epoch if less else greatest_epoch,
        }
    return row | {"first": first, "last": fit.history.last.get(name)}


class EpochSummary(Callback):
    """Log a line for each epoch, and write all of them to ``tables/epochs.txt`` where the run has a
    folder.

    An arrow shows whether a figure rose or fell since the last line; a star marks
    the best epoch so far.  Lines go to the log ``nnpipe.training``, level INFO.
    """

    frameworks = ("torch", "keras")
    formerly: ClassVar[tuple[str, ...]] = ("CallbackEpochSummary",)

    def __init__(self) -> None:
        self.state = State(lines=AppendOnly(), previous={})
        self._began = 0.0

    def on_fit_begin(self, fit: TrainingRun) -> None:
        """Start the clock; the time of a resumed epoch is that of its remaining part."""
        self._began = perf_counter()

    def on_epoch_begin(self, fit: TrainingRun) -> None:
        """Start the clock."""
        self._began = perf_counter()

    def on_epoch_end(self, fit: TrainingRun) -> None:
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
        line = (
            f"epoch {fit.epoch}/{fit.options.num_epochs}{star}  step {fit.step}  rate "
            f"{row['learning_rate']:.3g}  "
        )
        line += f"{perf_counter() - self._began:.1f} s  {'  '.join(parts)}"
        fit.log.info(line)
        state.previous = {**state.previous, **row}
        state.lines.append(line)
        if fit.folder is not None and is_write_due(fit):
            self._write(fit)

    def on_fit_end(self, fit: TrainingRun) -> None:
        """Write all lines."""
        if fit.folder is not None and self.state.lines:
            self._write(fit)

    def _write(self, fit: TrainingRun) -> None:
        write_text(
            get_run_folder(fit).table("epochs", ending="txt"), "\n".join(self.state.lines) + "\n"
        )
