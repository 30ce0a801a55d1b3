"""The weights that a model has after a training, and the figures that were measured with them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError
from nnpipe.core.files import write_text
from nnpipe.training.checkpoints import load_weights, read_weights

if TYPE_CHECKING:
    from nnpipe.experiment.database.database import RunDatabase
    from nnpipe.training.fit import TrainingRun

TABLE = "final_weights"
"""The table of a run's folder that holds this."""


@dataclass(frozen=True)
class FinalWeights:
    """Which weights the model has after a training, and with it every export of the model.

    Attributes
    ----------
    which
        ``"last"``, ``"best"`` or ``"average"``, as in
        :class:`~nnpipe.training.options.TrainerOptions`.
    epoch
        The epoch after which the model had these weights.
    figures
        The figures of exactly these weights, named as in a history.
    """

    which: str
    epoch: int
    figures: Mapping[str, float]

    def __str__(self) -> str:
        said = {
            "last": "those of the last step",
            "best": "the best",
            "average": "their moving average",
        }
        return f"{said.get(self.which, self.which)}, after epoch {self.epoch}"

    def to_json(self) -> dict[str, Any]:
        """Return the weights' kind, epoch and figures as JSON can hold them."""
        return {"weights": self.which, "epoch": self.epoch, **self.figures}


def choose_final_weights(fit: TrainingRun) -> str:
    """Return which weights the model should have at the end: by default those whose figures the
    history shows.
    """
    averaged = fit.options.ema_decay is not None or fit.options.swa_start is not None
    return fit.options.weights or ("average" if averaged else "last")


def get_epoch_figures(fit: TrainingRun, epoch: int) -> dict[str, float]:
    """Return the figures of the splits that were evaluated after an epoch; empty if there was no
    evaluation.
    """
    row = next((row for row in fit.history.rows() if row.get("epoch") == epoch), {})
    trained = tuple(
        f"{name}/{split}/" for name in fit.datasets for split in fit.options.train_splits
    )
    return {
        name: value for name, value in row.items() if "/" in name and not name.startswith(trained)
    }


def tell_final(fit: TrainingRun) -> None:
    """Write to the log and to the run's folder which weights the model has."""
    final = fit.final
    if final is None or not final.epoch:
        return
    fit.log.info("the model has these weights: %s", final)
    if fit.folder is not None:
        write_text(fit.folder.table(TABLE), json.dumps([final.to_json()], indent=1) + "\n")


def end(fit: TrainingRun, which: str, epoch: int, figures: Mapping[str, float]) -> None:
    """Record which weights the model has, for callbacks and in the history."""
    fit.final = FinalWeights(which, epoch, figures)
    fit.history.about = fit.final.to_json() | (
        {"unfinished": fit.stopping} if fit.unfinished else {}
    )


@dataclass(frozen=True, kw_only=True)
class StartingWeights:
    """Gives a model the best weights of a run of the same database, which becomes a parent.

    In a configuration::

        start:
          - class: nnpipe.training.final_weights.StartingWeights
            arguments: {run: digits_before, model: {reference: network}, names: {layers.: layers.}}

    Parameters
    ----------
    run
        The run's identity, or the name of its experiment.
    model
        A module, or an object with one as its attribute ``module``.
    names
        Prefixes of names of weights in the run, and what replaces them in the model.  If there are
        any, only weights with one of these prefixes are loaded, and others stay as they are.
    artifact
        The file of weights.
    """

    run: str
    model: Any
    names: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    artifact: str = "checkpoints/best.state"

    def __post_init__(self) -> None:
        check_call(StartingWeights, vars(self))

    def load(self, database: RunDatabase) -> str:
        """Load the weights, and return the identity of the run.

        Raises
        ------
        ConfigError
            If there is no such run, it is not completed, it has no such file, or its weights do not
            fit the model.
        ArtifactError
            If all weights are to be loaded and do not fit the model.
        """
        run = database.runs.get(self.run)
        if run.status != "completed":
            raise ConfigError(f"{self.run}: run {run.id[:12]} is {run.status}; complete it first")
        if self.artifact not in {artifact.name for artifact in database.artifacts.list(run.id)}:
            raise ConfigError(
                f"{self.run}: run {run.id[:12]} has no {self.artifact}; a training that evaluates "
                f"a split "
                "keeps its best weights"
            )
        path = database.artifacts.path(run.id, self.artifact)
        model = getattr(self.model, "module", self.model)
        if not self.names:
            load_weights(path, model)
            return run.id
        chosen = {
            new + name[len(old) :]: value
            for name, value in read_weights(path).items()
            for old, new in self.names.items()
            if name.startswith(old)
        }
        own = model.state_dict()
        wrong = [
            n
            for n, v in chosen.items()
            if n not in own or getattr(own[n], "shape", None) != getattr(v, "shape", None)
        ]
        if wrong or not chosen:
            what = (
                f"{', '.join(wrong[:5])} of it do not fit the model"
                if wrong
                else f"nothing in it begins with {', '.join(self.names)}"
            )
            raise ConfigError(f"{self.run}: {self.artifact} of run {run.id[:12]}: {what}")
        model.load_state_dict({**own, **chosen})
        return run.id
