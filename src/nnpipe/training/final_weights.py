"""The weights that a model has after a training, and the figures that were measured with them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nnpipe.core.files import write_text
from nnpipe.training._sharding import load_weights

if TYPE_CHECKING:
    from nnpipe.training._checkpointing import Checkpointer
    from nnpipe.training._evaluation import Evaluator
    from nnpipe.training._hooks import Hooks
    from nnpipe.training._steps import Steps
    from nnpipe.training.distributed import Team
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


def choose_final_weights(
    fit: Fit, steps: Steps, checkpointer: Checkpointer, evaluator: Evaluator, describing: Hooks, team: Team
) -> None:
    """Load the final weights into the model and record which they are; all processes must call this.

    If they are others than those that were evaluated last, the callbacks of ``describing`` see them, too.
    """
    which, epoch = wanted(fit), fit.epoch
    if which == "best" and not fit.best_epoch:
        fit.log.warning("no epoch was judged, so there are no best weights: the model keeps the last ones")
        which = "last"
    averaged = which == "average" and steps.swa is not None and steps.swa.count > 0
    if which == "average" and steps.swa is not None and not averaged:
        fit.log.warning(
            "no epoch from swa_start on was finished, so there is no average: the model keeps the last weights"
        )
        which = "last"
    if which == "best":
        model, average = checkpointer.best_weights()
        load_weights(fit.model, dict(model) | dict(average or {}))
        epoch = fit.best_epoch
    elif which == "average" and steps.average is not None:
        steps.average.stay()
    elif averaged and steps.swa is not None:
        steps.swa.stay()
        evaluator.estimate_statistics()
    # A row is measured with the average if there is one, and its epoch may have had no evaluation.
    measured = not averaged and (which != "last" or steps.average is None)
    figures = figures_at(fit, epoch) if measured else {}
    evaluated = [(d, s) for d, parts in fit.datasets.items() for s in parts if s not in fit.options.train_splits]
    describes = not measured or (which == "best" and epoch != fit.epoch)
    describes = team.gathered(describes and describing.has("on_epoch_end"))[0]  # only the first process has callbacks
    last_epoch, fit.epoch = fit.epoch, epoch
    if evaluated and epoch and (describes or not figures):
        figures = evaluator.evaluate(evaluated, hooks=describing)
    end(fit, which, epoch, figures)
    if describes:
        describing.call_aside("on_epoch_end")
    fit.epoch = last_epoch


def end(fit: Fit, which: str, epoch: int, figures: Mapping[str, float]) -> None:
    """Record which weights the model has, for callbacks and in the history."""
    fit.final = FinalWeights(which, epoch, figures)
    fit.history.about = fit.final.to_json() | ({"unfinished": fit.stopping} if fit.unfinished else {})
