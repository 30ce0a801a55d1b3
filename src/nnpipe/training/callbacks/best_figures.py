"""The best value of each figure, and the epoch in which it was reached."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from nnpipe.experiment.state import State
from nnpipe.training.callbacks.writing_callback import WritingCallback, write_table, writes_after
from nnpipe.training.figure_direction import less_is_better

if TYPE_CHECKING:
    from nnpipe.training.fit import Fit

_OTHERS = ("epoch", "step", "learning_rate")


class BestFigures(WritingCallback):
    """Write for each figure its best, first and last value and the best epoch, into ``tables/best.json``.

    The best value is the least of losses and errors and the greatest of accuracies and the like, as metrics of tasks,
    a ``QualityMetric`` and objects of torchmetrics say.  Of a figure of which neither is known, the table has the
    least and the greatest value.
    """

    frameworks = ("torch", "keras")
    formerly: ClassVar[tuple[str, ...]] = ("CallbackReportingBestMetrics",)
    answers: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            "CallbackSaveLastModel": "the trainer keeps the last weights and the best by itself; its options "
            "keep_best, keep_every and on_divergence say how many, and what follows a loss that is not finite",
            "CallbackEarlyStopping": "the trainer's options patience, min_delta and monitor stop it early",
            "ModelCheckpoint": "the trainer keeps the last weights and the best by itself; see its option keep_best",
            "EarlyStopping": "the trainer's options patience, min_delta and monitor stop it early",
        }
    )

    def __init__(self) -> None:
        # By figure: the first value, then the least and the greatest ones, each with its epoch.
        self.state = State(figures={})

    def on_epoch_end(self, fit: Fit) -> None:
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
        if writes_after(fit):
            self._write(fit)

    def on_fit_end(self, fit: Fit) -> None:
        """Write the table a last time."""
        if self.state.figures:
            self._write(fit)

    def _write(self, fit: Fit) -> None:
        figures = self.state.figures
        write_table(fit, "best", (_row(fit, name, kept) for name, kept in sorted(figures.items())))


def _row(fit: Fit, name: str, kept: list[Any]) -> dict[str, Any]:
    first, least, least_epoch, greatest, greatest_epoch = kept
    less = less_is_better(name, fit.metrics)
    row: dict[str, Any] = {"figure": name}
    if less is None:
        row |= {"least": least, "least_epoch": least_epoch, "greatest": greatest, "greatest_epoch": greatest_epoch}
    else:
        row |= {"best": least if less else greatest, "best_epoch": least_epoch if less else greatest_epoch}
    return row | {"first": first, "last": fit.history.last.get(name)}
