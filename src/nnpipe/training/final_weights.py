"""The weights that a model has after a training, and the figures that were measured with them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nnpipe.core.files import write_text

if TYPE_CHECKING:
    from nnpipe.training.fit import Fit

TABLE = "final_weights"
"""The table of a run's folder that holds this."""


@dataclass(frozen=True)
class FinalWeights:
    """Which weights the model has after a training, and with it every export of the model.

    Attributes
    ----------
    which
        ``"last"``, ``"best"`` or ``"average"``, as in :class:`~nnpipe.training.options.TrainerOptions`.
    epoch
        The epoch after which the model had these weights.
    figures
        The figures of exactly these weights, named as in a history.
    """

    which: str
    epoch: int
    figures: Mapping[str, float]

    def __str__(self) -> str:
        said = {"last": "those of the last step", "best": "the best", "average": "their moving average"}
        return f"{said.get(self.which, self.which)}, after epoch {self.epoch}"

    def to_json(self) -> dict[str, Any]:
        """Return the weights' kind, epoch and figures as JSON can hold them."""
        return {"weights": self.which, "epoch": self.epoch, **self.figures}


def wanted(fit: Fit) -> str:
    """Return which weights the model should have at the end: by default those whose figures the history shows."""
    averaged = fit.options.ema_decay is not None or fit.options.swa_start is not None
    return fit.options.weights or ("average" if averaged else "last")


def figures_at(fit: Fit, epoch: int) -> dict[str, float]:
    """Return the figures of the splits that were evaluated after an epoch; empty if there was no evaluation."""
    row = next((row for row in fit.history.rows() if row.get("epoch") == epoch), {})
    trained = tuple(f"{name}/{split}/" for name in fit.datasets for split in fit.options.train_splits)
    return {name: value for name, value in row.items() if "/" in name and not name.startswith(trained)}


def tell_final(fit: Fit) -> None:
    """Write to the log and to the run's folder which weights the model has."""
    final = fit.final
    if final is None or not final.epoch:
        return
    fit.log.info("the model has these weights: %s", final)
    if fit.folder is not None:
        write_text(fit.folder.table(TABLE), json.dumps([final.to_json()], indent=1) + "\n")


def end(fit: Fit, which: str, epoch: int, figures: Mapping[str, float]) -> None:
    """Record which weights the model has, for callbacks and in the history."""
    fit.final = FinalWeights(which, epoch, figures)
    fit.history.about = fit.final.to_json() | ({"unfinished": fit.stopping} if fit.unfinished else {})
