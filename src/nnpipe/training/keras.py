"""Trainings of Keras models with the same callbacks, run folders and exact resume."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from nnpipe.core.errors import ConfigError
from nnpipe.core.files import FULL
from nnpipe.experiment.state_file import read_state
from nnpipe.training._best_epoch import check_monitor, get_monitored_figure, update_best_epoch
from nnpipe.training._hooks import Hooks, check_callbacks
from nnpipe.training.callbacks.callback import Callback
from nnpipe.training.callbacks.selection import check_frameworks
from nnpipe.training.checkpoints import (
    BEST,
    CHECKPOINT,
    LAST,
    WEIGHTS,
    CheckpointWriter,
    copy_state,
    read_checkpoint,
    save_elsewhere,
)
from nnpipe.training.final_weights import end, get_epoch_figures, tell_final
from nnpipe.training.fit import TrainingRun
from nnpipe.training.options import TrainerOptions
from nnpipe.training.run_folder import RunFolder, check_same_settings
from nnpipe.training.run_page import tell_end
from nnpipe.training.run_settings import describe_data, describe_keras
from nnpipe.training.run_status import tell


def get_weights_by_path(model: Any) -> dict[str, Any]:
    """Return the weights of a model by their paths."""
    return {variable.path: np.array(variable.numpy()) for variable in model.weights}


def list_variables(owner: Any) -> list[Any]:
    """Return the variables of a model or an optimiser, in their order."""
    return [np.array(variable.numpy()) for variable in owner.variables]


def match_values(owner: Any, values: list[Any], path: Path) -> list[tuple[Any, Any]]:
    """Return the variables of a model or an optimiser, each with its stored value.

    Raises
    ------
    ConfigError
        If the values are of another model; the message names the ``path`` of the checkpoint.
    """
    variables = list(owner.variables)
    if [tuple(v.shape) for v in variables] != [np.shape(value) for value in values]:
        raise ConfigError(f"{path}: of another model; use another folder")
    return list(zip(variables, values, strict=True))


class KerasTrainingRun(TrainingRun):
    """A running Keras training; ``model`` is a ``keras.Model`` and ``optimiser`` a Keras
    optimiser.
    """

    @property
    def framework(self) -> str:
        """The framework of the model: ``"keras"``."""
        return "keras"

    @property
    def rates(self) -> list[float]:
        """The learning rate that the last step used."""
        rate = getattr(self.optimiser, "_learning_rate", None)
        if callable(rate):  # a schedule; the optimiser itself returns the rate of the next step
            return [float(rate(max(0, int(self.optimiser.iterations) - 1)))]
        return [float(self.optimiser.learning_rate)]


class KerasTraining:
    """Calls callbacks, keeps the history and writes checkpoints for a training loop of a Keras
    model.

    ::

        with KerasTraining(model, optimiser, data, options, callbacks=callbacks, folder=folder) as training:
            training.begin()
            while training.goes_on:
                training.begin_epoch()
                for batch in ...:
                    training.begin_batch("digits", batch)
                    ...  # a step
                    training.end_batch(batch, outputs)
                training.end_epoch({"digits/train/loss": loss})
            training.end()

    A checkpoint is written at the end of each epoch; a killed training continues
    after the last finished epoch.

    Parameters
    ----------
    model, optimiser
        The ``keras.Model`` and its optimiser, whose variables have been built.
    datasets
        Sequences by data set and split.
    options
        Options of the trainer.  Only ``num_epochs``, ``seed``, ``callback_errors`` and
        those that decide the best epoch are used.
    callbacks
        Observers of the training.
    folder
        The run's folder; None to write nothing.
    identity
        Values on which the weights depend; a run can only be continued with equal ones.
    resume
        Whether to continue from the folder's last checkpoint.

    Raises
    ------
    ConfigError
        If a callback needs PyTorch, or the optimiser averages weights itself.
    """

    def __init__(
        self,
        model: Any,
        optimiser: Any,
        datasets: Mapping[str, Mapping[str, Any]],
        options: TrainerOptions,
        *,
        callbacks: Sequence[Callback] = (),
        folder: Path | None = None,
        identity: Mapping[str, Any] | None = None,
        resume: bool = True,
    ) -> None:
        check_callbacks(callbacks)
        check_frameworks(callbacks, "keras")
        if getattr(optimiser, "use_ema", False):
            raise ConfigError(
                f"{type(optimiser).__name__} keeps an average of the weights (use_ema), which "
                f"Keras puts into the "
                "model after the last epoch: what is exported would not be what the figures tell "
                "of; leave it out"
            )
        self.fit = KerasTrainingRun(
            model, optimiser, datasets, None if folder is None else RunFolder(folder), options
        )
        self.hooks = Hooks(callbacks, self.fit, aside=_preserve_rng_state)
        self._identity = dict(identity or {})
        self._resume = resume
        self._writer = CheckpointWriter()
        self._stack = ExitStack()
        self._begun = False
        self._course: dict[str, Any] = {}
        self._best: dict[str, Any] | None = None

    @property
    def goes_on(self) -> bool:
        """Whether there are epochs left."""
        return not self.fit.stopping and self.fit.epoch < self.fit.options.num_epochs

    def begin(
        self,
        figures: Callable[[str, str], Iterable[str]] = lambda dataset, split: (),
        others: Iterable[str] = (),
    ) -> None:
        """Restore the folder's run, if there is one, and begin.

        Parameters
        ----------
        figures
            Takes the names of a data set and a split, and returns the names of its figures if they
            are known.
        others
            Further splits that will have figures.

        Raises
        ------
        ConfigError
            If the monitored figure will not exist, or the folder holds a different run.
        """
        fit = self.fit
        check_monitor(fit, figures, others)
        if fit.folder is not None:
            self._course = self._identity | {
                "data": describe_data(fit.datasets),
                **describe_keras(fit.model, fit.optimiser),
            }
            self._stack.enter_context(
                fit.folder.lock_for_training(self._course, resume=self._resume)
            )
            path = fit.folder.checkpoint(LAST)
            if self._resume and path.exists():
                self._restore(path)
            tell(fit, "running")
            self._begun = True
        self.hooks.call_aside("on_fit_begin")

    def begin_epoch(self) -> None:
        """Begin the next epoch."""
        self.fit.epoch += 1
        self.fit.batch = 0
        tell(self.fit, "running")
        self.hooks.call_aside("on_epoch_begin")

    def begin_batch(self, dataset: str, batch: dict[str, Any]) -> None:
        """Show a batch of arrays to the callbacks before its step."""
        self.fit.dataset = dataset
        self.hooks.call("on_batch_begin", batch, batch=batch)

    def end_batch(self, batch: dict[str, Any], outputs: dict[str, Any]) -> None:
        """Show a batch and its outputs to the callbacks after its step."""
        self.fit.batch += 1
        self.fit.step += 1
        self.hooks.call("on_batch_end", batch, outputs, batch=batch)

    def report_evaluated_batch(
        self, dataset: str, split: str, batch: dict[str, Any], outputs: dict[str, Any]
    ) -> None:
        """Show an evaluated batch and its outputs to the callbacks."""
        self.fit.dataset = dataset
        self.hooks.call("on_evaluate_batch", dataset, split, batch, outputs, batch=batch)

    def end_epoch(self, figures: Mapping[str, float]) -> None:
        """Record the figures of the epoch, named as the trainer names them, and write a
        checkpoint.
        """
        fit = self.fit
        fit.history.append(epoch=fit.epoch, step=fit.step, learning_rate=fit.rates[0], **figures)
        best = self._update_best(figures)
        self.hooks.call_aside("on_epoch_end")
        fit.batch = 0
        if fit.folder is not None:
            state = {
                "course": self._course,
                "fit": fit.state_dict(),
                "model": list_variables(fit.model),
                "optimiser": list_variables(fit.optimiser),
                "callbacks": self.hooks.state_dict(),
            }
            if best is not None:
                about = {"average": None, "epoch": fit.epoch, "monitor": best, "value": fit.best}
                self._writer.write(
                    fit.folder.checkpoint(BEST),
                    {"model": get_weights_by_path(fit.model), **about},
                    WEIGHTS,
                )
            self._writer.write(fit.folder.checkpoint(LAST), copy_state(state), CHECKPOINT)
            tell(fit, "running")
        elif best is not None and fit.options.weights == "best":
            self._best = get_weights_by_path(fit.model)

    def end(self) -> None:
        """Finish after the last epoch, and give the model its final weights."""
        fit, which = self.fit, "last"
        self._writer.wait()
        if fit.options.weights == "best" and fit.best_epoch:
            which = "best"
            if fit.folder is not None:
                self._best = read_state(fit.folder.checkpoint(BEST), kind=WEIGHTS)["model"]
            for variable, value in zip(fit.model.weights, (self._best or {}).values(), strict=True):
                variable.assign(value)
        epoch = fit.best_epoch if which == "best" else fit.epoch
        end(fit, which, epoch, get_epoch_figures(fit, epoch))
        tell_final(fit)
        self.hooks.call_aside("on_fit_end")

    def close(self, error: BaseException | None = None) -> None:
        """Write all queued files and the status, close callbacks and release the folder; raise
        what went wrong.
        """
        with self._stack:
            try:
                try:
                    self._writer.close()
                finally:
                    self.hooks.close()
            except Exception as other:
                self._tell_end(error or other)
                raise
            self._tell_end(error)

    def _tell_end(self, error: BaseException | None) -> None:
        if self._begun:
            self._begun = False
            tell_end(self.fit, error)

    def __enter__(self) -> KerasTraining:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        failed = error
        try:
            self.close(error)
        except Exception as other:
            if error is None:
                failed = other
            else:
                self.fit.log.error("while ending the training: %s", other, exc_info=other)
        folder = self.fit.folder
        if (
            folder is not None
            and isinstance(failed, OSError)
            and (self._writer.failed or failed.errno in FULL)
        ):
            raise save_elsewhere(
                get_weights_by_path(self.fit.model), folder, self.fit.epoch, failed
            ) from failed
        if failed is not error and failed is not None:
            raise failed

    def _update_best(self, figures: Mapping[str, float]) -> str | None:
        """Return the name of the monitored figure if this epoch is the best so far."""
        fit = self.fit
        name = get_monitored_figure(fit)
        if name is None or (name not in figures and fit.options.monitor is None):
            return None
        if name not in figures:
            raise ConfigError(
                f"there is no figure {name!r} to monitor; there are {', '.join(figures)}"
            )
        return name if update_best_epoch(fit, name, figures[name]) else None

    def _restore(self, path: Path) -> None:
        fit = self.fit
        state = read_checkpoint(path, self._writer.rows)
        check_same_settings(path, state["course"], self._course)
        pairs = [
            *match_values(fit.model, state["model"], path),
            *match_values(fit.optimiser, state["optimiser"], path),
        ]
        for variable, value in pairs:
            variable.assign(value)
        fit.load_state_dict(state["fit"])
        self.hooks.load_state_dict(state["callbacks"])


@contextmanager
def _preserve_rng_state(fit: TrainingRun) -> Iterator[None]:
    python, numpy = random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
