"""A training as the main module of an experiment, which a session calls."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from nnpipe.core.errors import ConfigError, TrainingError
from nnpipe.experiment.module import Module
from nnpipe.experiment.state import State
from nnpipe.training.callbacks.callback import Callback
from nnpipe.training.checkpoints import LAST
from nnpipe.training.final_weights import StartingWeights
from nnpipe.training.optimization import OptimiserFactory, Schedule, TorchSchedule
from nnpipe.training.run_folder import RunFolder, make_file_name
from nnpipe.training.step import LearningStep, default_step
from nnpipe.training.trainer import Datasets, Trainer

if TYPE_CHECKING:
    from nnpipe.experiment.database.database import RunDatabase
    from nnpipe.experiment.session import Session
    from nnpipe.training.fit import TrainingRun

log = logging.getLogger("nnpipe.training")

_LARGEST = 20_000_000  # bytes; larger files of a run's folder are not stored in the database


class Training(Module):
    """Trains a model when a session calls it: each epoch is a row of the session's history.

    The checkpoints in the run's folder hold weights, optimiser, random states and
    the place within an epoch; a resumed training continues from them exactly.  The
    session records figures after each epoch and, at the end, the last epoch's means
    as statistics and the folder's files as artifacts.

    Parameters
    ----------
    trainer
        The trainer, with its options and callbacks.
    model
        A ``torch.nn.Module``, or an object with one as its attribute ``module``, such as
        :class:`~nnpipe.training.network.Network`.
    datasets
        Sequences by data set and split.
    optimiser, schedule, step, metrics
        As :meth:`Trainer.fit <nnpipe.training.trainer.Trainer.fit>` takes them.
    folder
        The run's folder; by default ``runs/`` and the experiment's name.
    start
        Weights of other runs from which the training starts.  Those runs become parents of this
        one.
    """

    def __init__(
        self,
        trainer: Trainer,
        model: Any,
        datasets: Datasets,
        *,
        optimiser: OptimiserFactory | Mapping[str, OptimiserFactory] | None = None,
        schedule: Schedule | TorchSchedule | Mapping[str, Schedule | TorchSchedule] | None = None,
        step: LearningStep = default_step,
        metrics: Mapping[str, Any] = MappingProxyType({}),
        folder: str | None = None,
        start: Sequence[StartingWeights] = (),
    ) -> None:
        if not isinstance(trainer, Trainer):
            raise ConfigError(f"Training: trainer is a {type(trainer).__name__}, no Trainer")
        if not isinstance(datasets, Mapping) or not all(
            isinstance(parts, Mapping) for parts in datasets.values()
        ):
            raise ConfigError(
                "Training: datasets must be sequences by data set and split: {digits: {train: ...}}"
            )
        self.trainer = trainer
        self.model = model
        self.datasets = datasets
        self.optimiser = optimiser
        self.schedule = schedule
        self.step = step
        self.metrics = metrics
        self.folder = folder
        self.start = tuple(start)
        self.state = State(finished=False)

    def children(self) -> Any:
        """Yield the state that says whether it is finished; everything else is in the
        checkpoints.
        """
        yield "state", self.state

    def keeps(self) -> list[Any]:
        """Return the modules whose states are in the checkpoints."""
        sequences = [sequence for parts in self.datasets.values() for sequence in parts.values()]
        return [
            self.trainer,
            self.model,
            self._module,
            self.step,
            *(self.trainer.callbacks or ()),
            *sequences,
        ]

    def __len__(self) -> int:
        """Return the number of epochs."""
        return self.trainer.options.num_epochs

    def __call__(self, *arguments: Any) -> None:
        """Train the model; the argument is the session."""
        (session,) = arguments
        if self.state.finished:
            return
        folder = RunFolder(
            Path(self.folder) if self.folder else Path("runs") / make_file_name(session.experiment)
        )
        callbacks = self.trainer.callbacks_for(folder)
        trainer = dataclasses.replace(self.trainer, callbacks=(*callbacks, _Telling(session)))
        for weights in self.start:  # a checkpoint of this run replaces them
            session.database.add_parent(session.run_id, weights.load(session.database))
        tree = session.configuration.tree
        history = trainer.fit(
            self._module,
            self.datasets,
            folder=folder.path,
            optimiser=self.optimiser,
            schedule=self.schedule,
            step=self.step,
            metrics=self.metrics,
            identity={"experiment": {name: tree[name] for name in tree if name != session.main}},
            progress=session.progress,
        )
        session.history.load_state_dict(history.state_dict())
        if "unfinished" in history.about:
            raise TrainingError(f"the training stopped: {history.about['unfinished']}")
        session.statistics.clear()
        # Figures of training batches are of weights that changed meanwhile: they count where
        # nothing was evaluated.
        final = {name: value for name, value in history.about.items() if "/" in name}
        for name, value in (
            final or {name: value for name, value in history.last.items() if "/" in name}
        ).items():
            session.statistics.add(name, value)
        put_folder(session.database, session.run_id, folder)
        self.state.finished = True

    @property
    def _module(self) -> Any:
        model: Any = self.model
        if not isinstance(model, Module):
            return model
        if not hasattr(model, "module"):
            raise ConfigError(
                f"Training: model is a {type(model).__name__}, which has no torch.nn.Module as "
                f"module"
            )
        return model.module


def put_folder(database: RunDatabase, run: str, folder: RunFolder) -> None:
    """Store the files of a run's folder as artifacts, except the last checkpoint and very large
    files.
    """
    for path in [*folder.pictures(), *folder.tables(), *folder.list_others(), folder.page]:
        if not path.is_file() or path == folder.checkpoint(LAST):
            continue
        if path.stat().st_size > _LARGEST:
            log.warning(
                "%s is larger than %d MB: it stays where it is", path, _LARGEST // 1_000_000
            )
            continue
        database.artifacts.put_file(run, path.relative_to(folder.path).as_posix(), path)


class _Telling(Callback):
    """Reports each epoch to the session."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def children(self) -> Any:
        """Return none: the session saves itself."""
        return iter(())

    def on_epoch_end(self, fit: TrainingRun) -> None:
        """Add the history to the session and save it."""
        session = self._session
        # The training's own history is right: it may be older or newer than what the session saved
        # last.
        session.history.load_state_dict(fit.history.state_dict())
        session.callbacks.trigger("step", session)
        session.save_after_step()
