"""The trainer of PyTorch models."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError
from nnpipe.core.files import FULL, check_destination
from nnpipe.core.progress import Progress, silent
from nnpipe.experiment.history import History
from nnpipe.experiment.module import Module
from nnpipe.training._checkpointing import Checkpointer, find_inexact_sequences
from nnpipe.training._evaluation import Evaluator
from nnpipe.training._forward import move_to_device, recompute_activations
from nnpipe.training._hooks import Hooks, check_callbacks
from nnpipe.training._loop import Loop
from nnpipe.training._optimisers import (
    check_device,
    check_others,
    check_schedule,
    check_splits,
    check_step,
    convert_datasets,
    require_module,
    resolve_optimisers,
    resolve_schedules,
)
from nnpipe.training._random import preserve_rng_state, seed_all
from nnpipe.training._reproducibility import make_steps, reproducibility_settings
from nnpipe.training._whole_metrics import resolve_wanted_metrics
from nnpipe.training.callbacks.callback import Callback, WritingCallback
from nnpipe.training.callbacks.selection import DEFAULT, check_frameworks, choose
from nnpipe.training.checkpoints import LAST, CheckpointWriter, save_elsewhere, size_of_state
from nnpipe.training.distributed import Team, check_sharded, join_team, shard
from nnpipe.training.final_weights import tell_final
from nnpipe.training.fit import TrainingRun
from nnpipe.training.optimization import OptimiserFactory, Schedule, TorchSchedule
from nnpipe.training.options import TrainerOptions
from nnpipe.training.run_folder import RunFolder
from nnpipe.training.run_page import record_status
from nnpipe.training.step import LearningStep, default_step

Datasets = Mapping[str, Mapping[str, Any]]
"""Sequences of batches by data set and split."""


@dataclass(frozen=True)
class Trainer(Module):
    """Trains PyTorch modules on batches that are dictionaries.

    A module's ``forward(batch)`` returns outputs by name, or a single one::

        class Net(torch.nn.Module):
            def forward(self, batch):
                logits = self.layers(batch["image"])
                return {"label": ClassificationOutput(logits, batch["label"])}

        trainer = Trainer(TrainerOptions(num_epochs=3))
        history = trainer.fit(Net(), {"mnist": {"train": ..., "test": ...}}, folder="runs/mnist")

    Attributes
    ----------
    options
        Options that do not depend on the model or the data.
    callbacks
        Observers of the training, called in this order.  They belong to one training at a time.
        By default those of ``--callbacks default`` if there is a folder; ``()`` for none.
    """

    options: TrainerOptions = field(default_factory=TrainerOptions)
    callbacks: Sequence[Callback] | None = None

    def __post_init__(self) -> None:
        check_call(Trainer, vars(self))

    def build(self, make: Callable[..., Any], *arguments: Any) -> Any:
        """Return what ``make`` returns, called with generators seeded by ``options.seed`` and
        restored afterwards.

        ::

            model = trainer.build(Net)
        """
        self._check()
        with preserve_rng_state(self.options.device):
            seed_all(self.options.seed, self.options.device)
            return make(*arguments)

    def fit(
        self,
        model: Any,
        datasets: Datasets,
        *,
        folder: str | Path | None = None,
        optimiser: OptimiserFactory | Mapping[str, OptimiserFactory | Any] | Any = None,
        schedule: Schedule | TorchSchedule | Mapping[str, Schedule | TorchSchedule] | None = None,
        parameters: Iterable[Any] | Mapping[str, Iterable[Any]] | None = None,
        step: LearningStep = default_step,
        metrics: Mapping[str, Any] = MappingProxyType({}),
        resume: bool = True,
        identity: Mapping[str, Any] = MappingProxyType({}),
        progress: Progress = silent,
    ) -> History:
        """Train a model.

        On the CPU, equal arguments give bit-identical weights, history and metrics,
        however often the run was killed and started again.

        Parameters
        ----------
        model
            A ``torch.nn.Module``.  It is moved to the device and trained in place; afterwards it is
            in inference mode and has the weights that ``options.weights`` names.
        datasets
            Sequences of batches, or PyTorch's ``DataLoader``, by data set and split.  The model is
            trained on the splits of ``options.train_splits`` and evaluated on the others.  For a
            single data set, its splits by name are enough, or only the sequence to train on.
        folder
            The run's folder, for checkpoints; if it has a checkpoint, the run continues
            from the last one.  None to write nothing.
        optimiser
            A PyTorch optimiser, or a function that makes one for the parameters; by default
            :class:`~nnpipe.training.optimization.AdamW`.  Or several by name: without
            ``parameters``, one whose name is that of a part of the model (``"generator"`` of
            ``model.generator``) trains this part.
        schedule
            The learning rate by step; by default it is constant.  One for all optimisers, or
            schedules by their names.
        parameters
            The parameters to train, or PyTorch's groups of them; by default all that require a
            gradient. Of several optimisers, by their names.
        step
            Learns from a batch; see :mod:`nnpipe.training.step`.
        metrics
            Further metrics by output, ``{"label": ["roc_auc", MulticlassAUROC(10)]}``, in lists or
            by names of their own: names of metrics of the output's :class:`~nnpipe.core.task.Task`,
            a :class:`~nnpipe.core.quality_metric.QualityMetric`, or objects as of torchmetrics.
        resume
            Whether to continue from the folder's last checkpoint.  Otherwise a new run begins, and
            the pictures, tables and checkpoints of the previous one are removed.
        identity
            Further values on which the weights depend, such as the arguments of the model;
            a run can only be continued with equal ones.
        progress
            Shows the progress.

        Returns
        -------
        History
            A row for each epoch; see :class:`~nnpipe.training.fit.TrainingRun`.

        Raises
        ------
        TrainingError
            If the loss is not finite or a callback failed; the message names the samples.
        ConfigError
            If arguments do not fit together, the folder's run was begun with different ones, or
            another training is writing there.
        """
        self._check()
        check_others(folder, resume, identity, progress)
        check_schedule(schedule)
        check_step(step)
        where = None if folder is None else RunFolder(Path(folder))
        if where is not None:
            where.check()
        model, given = require_module(model), convert_datasets(datasets, self.options.seed)
        check_splits(given, self.options)
        callbacks = self.callbacks_for(where)
        # The folder is released last: checkpoints are written until the writer is closed.
        with (
            join_team(self.options.device) as members,
            preserve_rng_state(self.options.device),
            ExitStack() as claims,
        ):
            # Each process draws its own random numbers, for example for dropout.
            seed_all(self.options.seed + members.rank, self.options.device)
            move_to_device(model, self.options)
            if shard(model, self.options.shard, members, self.options.device):
                check_sharded(self.callbacks or (), optimiser, parameters)
                callbacks = ()
            if self.options.on_divergence == "rollback" and (where is None or members.world > 1):
                raise ConfigError(
                    "on_divergence='rollback' needs a folder with checkpoints, and a single process"
                )
            made = resolve_optimisers(optimiser, model, parameters)
            schedules = resolve_schedules(schedule, made)
            wanted = resolve_wanted_metrics(metrics, members.world)
            fit = TrainingRun(
                model,
                next(iter(made.values())),
                given,
                where,
                self.options,
                optimisers=made,
                metrics=wanted,
            )
            hooks = Hooks(callbacks if members.rank == 0 else (), fit)
            writer = CheckpointWriter()
            done = False
            try:
                self._run(
                    fit, hooks, writer, members, claims, schedules, step, resume, identity, progress
                )
                done = True
            except OSError as error:
                if where is None or not (writer.failed or error.errno in FULL):
                    raise
                raise save_elsewhere(dict(model.state_dict()), where, fit.epoch, error) from error
            finally:
                _end(fit, hooks, writer, done)
        return fit.history

    def _run(
        self,
        fit: TrainingRun,
        hooks: Hooks,
        writer: CheckpointWriter,
        members: Team,
        claims: ExitStack,
        schedules: Mapping[str, Schedule | TorchSchedule | None],
        step: LearningStep,
        resume: bool,
        identity: Mapping[str, Any],
        progress: Progress,
    ) -> None:
        fit.steps = steps = make_steps(fit, schedules, members.world, step)
        course = (
            {}
            if fit.folder is None
            else reproducibility_settings(fit, steps.rates, step) | dict(identity)
        )
        checkpointer = Checkpointer(fit, hooks, step, steps, writer, members, course)
        amid = None
        if fit.folder is not None:
            if members.rank == 0:
                _tell_inexact(fit)
                claims.enter_context(fit.folder.lock_for_training(course, resume=resume))
            last = fit.folder.checkpoint(LAST)
            if resume and last.exists():
                amid = checkpointer.restore(last)
            if members.rank == 0:
                check_destination(last, 2 * size_of_state(dict(fit.model.state_dict())))
                claims.enter_context(record_status(fit))
        claims.enter_context(recompute_activations(fit.model, self.options.recompute))
        hooks.call_aside("on_fit_begin")
        shown = progress if members.rank == 0 else silent
        Loop(fit, hooks, step, steps, checkpointer, members, shown, amid).run()
        if fit.stopping:
            fit.log.info("the training stopped: %s", fit.stopping)
        if members.rank == 0:
            tell_final(fit)
        hooks.call_aside("on_fit_end")

    def _check(self) -> None:
        if not isinstance(self.options, TrainerOptions):
            raise ConfigError(
                f"Trainer: options is a {type(self.options).__name__}, no TrainerOptions"
            )
        self.options.check_ready()
        check_device(self.options.device)
        check_callbacks(self.callbacks or ())
        check_frameworks(self.callbacks or (), "torch")

    def callbacks_for(self, folder: RunFolder | None) -> Sequence[Callback]:
        """Return the callbacks of a training that writes to a folder, or to none."""
        if self.callbacks is not None:
            return self.callbacks
        return () if folder is None else choose([DEFAULT], framework="torch", known={})

    def evaluate(
        self,
        model: Any,
        datasets: Datasets,
        *,
        metrics: Mapping[str, Any] = MappingProxyType({}),
        progress: Progress = silent,
    ) -> dict[str, float]:
        """Return the figures of all splits, named as in a history, without training or writing
        files.

        ``metrics`` are further ones, as :meth:`fit` takes them.  Callbacks see the batches, except
        those that write files.
        """
        self._check()
        model, datasets = require_module(model), convert_datasets(datasets, self.options.seed)
        with join_team(self.options.device) as members:
            move_to_device(model, self.options)
            fit = TrainingRun(
                model,
                None,
                datasets,
                None,
                self.options,
                metrics=resolve_wanted_metrics(metrics, members.world),
            )
            parts = [part for callback in self.callbacks or () for part in callback.parts()]
            seeing = [part for part in parts if not isinstance(part, WritingCallback)]
            hooks = Hooks(seeing if members.rank == 0 else (), fit)
            evaluator = Evaluator(fit, hooks, members, progress if members.rank == 0 else silent)
            done = False
            try:
                evaluator.check_metrics()
                found = evaluator.evaluate(
                    [(name, split) for name, parts in datasets.items() for split in parts]
                )
                done = True
            finally:
                _end(fit, hooks, CheckpointWriter(), done)
        return found


def _end(fit: TrainingRun, hooks: Hooks, writer: CheckpointWriter, done: bool) -> None:
    """End threads and processes; after an error, further errors are logged and do not hide it."""
    fit.model.eval()
    try:
        try:
            writer.close()
        finally:
            hooks.close()
    except Exception as error:
        if done:
            raise
        fit.log.error("while ending the training: %s", error, exc_info=error)
    finally:
        if not done:
            for parts in fit.datasets.values():
                for sequence in parts.values():
                    sequence.close()


def _tell_inexact(fit: TrainingRun) -> None:
    found = find_inexact_sequences(fit.datasets)
    if found:
        fit.log.warning(
            "what %s gives depends on time: if this run is killed it can go on, but not to the bit",
            " and ".join(found),
        )
