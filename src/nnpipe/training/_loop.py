"""The training loop: epochs, evaluations, and the figures and checkpoints of each."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

from nnpipe.core.errors import ConfigError, TrainingError
from nnpipe.core.progress import Progress, tell
from nnpipe.training._batches import Feed, ids_of, share_of, size_of, tensors_of
from nnpipe.training._best_epoch import better, check_monitor, monitored
from nnpipe.training._checkpointing import Checkpointer
from nnpipe.training._evaluation import Evaluator, figures_of
from nnpipe.training._forward import Forward, precision
from nnpipe.training._gradient_steps import GradientSteps
from nnpipe.training._hooks import Hooks
from nnpipe.training._metric_sums import MetricSums
from nnpipe.training.distributed import Team
from nnpipe.training.final_weights import choose_final_weights
from nnpipe.training.fit import Fit

# Fetching the loss from a GPU makes the host wait, so it is fetched only every few steps.
_STEPS_BETWEEN_CHECKS = 50


class Loop:
    """The epochs of one training.

    ``amid`` is the place within an epoch from which a resumed training goes on, as
    :meth:`Checkpointer.restore <nnpipe.training._checkpointing.Checkpointer.restore>` returns it.
    """

    def __init__(
        self,
        fit: Fit,
        hooks: Hooks,
        gradient_steps: GradientSteps,
        forward: Forward,
        checkpointer: Checkpointer,
        team: Team,
        progress: Progress,
        amid: Mapping[str, Any] | None,
    ) -> None:
        self._fit = fit
        self._hooks = hooks
        self._gradient_steps = gradient_steps
        self._forward = forward
        self._checkpointer = checkpointer
        self._evaluator = Evaluator(fit, hooks, team, progress)
        self._team = team
        self._progress = progress
        self._precision = precision(fit.options)
        splits = [(d, s) for d, parts in fit.datasets.items() for s in parts]
        self._training = {f"{d}/{s}": fit.datasets[d][s] for d, s in splits if s in fit.options.train_splits}
        self._evaluated = [(d, s) for d, s in splits if s not in fit.options.train_splits]
        self._feed = Feed(self._training, fit.options.mixing == "interleaved")
        self._metric_sums: dict[str, MetricSums] = {}
        self._amid = amid
        self._unchecked: list[tuple[Any, Any, int]] = []
        self._check_every = 1 if fit.device == "cpu" else _STEPS_BETWEEN_CHECKS

    # -- the course -----------------------------------------------------------------------------

    def run(self) -> None:
        """Run the remaining epochs, then give the model its final weights."""
        fit = self._fit
        check_monitor(fit, self._evaluator.names)
        while not fit.stopping and (self._amid is not None or fit.epoch < fit.options.num_epochs):
            self._begin_epoch()
            self._train()
            self._finish_epoch()
        self._checkpointer.wait()
        choose_final_weights(fit, self._gradient_steps, self._checkpointer, self._evaluator)

    def _begin_epoch(self) -> None:
        fit = self._fit
        self._metric_sums = {name: MetricSums() for name in self._training}
        if self._amid is not None:
            self._feed.load_state_dict(self._amid["feed"], fit.epoch)
            for name, sums in self._metric_sums.items():
                sums.load_state_dict(self._amid["tallies"][name])
            self._amid = None
            return
        fit.epoch += 1
        fit.batch = 0
        self._checkpointer.tell()
        self._feed.begin(fit.epoch)
        self._hooks.call_aside("on_epoch_begin")

    def _train(self) -> None:
        fit, gradient_steps, hooks, team = self._fit, self._gradient_steps, self._hooks, self._team
        options, device, metric_sums = fit.options, fit.device, self._metric_sums
        watch_begin, watch_end = hooks.has("on_batch_begin"), hooks.has("on_batch_end")
        plain, every = options.precision == "float32", options.checkpoint_every
        fit.model.train()
        feed = self._progress(self._feed, f"epoch {fit.epoch}/{options.num_epochs}", self.batches)
        for name, given in feed:
            given, size = (given, size_of(given)) if team.world == 1 else share_of(given, team.rank, team.world)
            batch = tensors_of(given, device)
            if watch_begin or watch_end:
                fit.dataset = name.partition("/")[0]
            if watch_begin:
                hooks.call("on_batch_begin", batch, batch=batch)
            if plain:
                loss, outputs = self._forward(batch)
            else:
                with self._precision():
                    loss, outputs = self._forward(batch)
            self._check(loss, given)
            gradient_steps.backward(loss, size)
            fit.batch += 1
            if size:
                metric_sums[name].add(outputs, options.train_metrics)
            stepped = gradient_steps.ready
            if stepped:
                self._step()
            if watch_end:
                hooks.call("on_batch_end", batch, outputs, batch=batch)
            if stepped and every and fit.step % every == 0:
                self._check_all()
                self._checkpointer.checkpoint(metric_sums, self._feed)
        if gradient_steps.pending:
            self._step()
        self._check_all()

    def _step(self) -> None:
        self._gradient_steps.step(self._fit.step)
        self._fit.step += 1
        self._fit.gradient_norm = self._gradient_steps.norm

    @property
    def batches(self) -> int | None:
        """The number of batches in an epoch; None if a sequence has no length."""
        try:
            return len(self._feed)
        except TypeError:
            return None

    def _check(self, loss: Any, batch: Mapping[str, Any]) -> None:
        self._unchecked.append((loss.detach(), batch["sample_id"], self._fit.step + 1))
        if len(self._unchecked) >= self._check_every:
            self._check_all()

    def _check_all(self) -> None:
        limit = self._fit.options.abort_above
        unchecked, self._unchecked = self._unchecked, []
        for loss, ids, step in unchecked:
            value = loss.item()
            if math.isfinite(value) and (limit is None or value <= limit):
                continue
            where = f"in epoch {self._fit.epoch}, step {step}{ids_of({'sample_id': ids})}"
            if math.isfinite(value):
                raise TrainingError(f"the loss is {value:.6g} {where}; abort_above is {limit:g}")
            raise TrainingError(f"the training diverged {where}: the loss is {value}; use a smaller learning rate")

    # -- the end of an epoch --------------------------------------------------------------------

    def _finish_epoch(self) -> None:
        fit, options = self._fit, self._fit.options
        row = {
            f"{name}/{key}": value
            for name, sums in self._metric_sums.items()
            for key, value in figures_of(sums, self._team).items()
        }
        last = fit.epoch >= options.num_epochs
        if self._evaluated and (last or fit.epoch % options.evaluate_every == 0):
            row |= self._evaluator.evaluate(self._evaluated, self._gradient_steps.average)
        fit.history.append(epoch=fit.epoch, step=fit.step, learning_rate=fit.rates[0], **row)
        figure, best = self._judge(row)
        self._gradient_steps.rate.after_epoch(figure)
        average = self._gradient_steps.average
        # Callbacks see the weights with which the row's figures were measured.
        with nullcontext() if average is None else average.in_place():
            self._hooks.call_aside("on_epoch_end")
        tell(self._progress, fit.epoch, options.num_epochs, row)
        fit.batch = 0
        self._check_all()
        self._checkpointer.epoch(best)

    def _judge(self, row: Mapping[str, float]) -> tuple[float | None, str | None]:
        """Return the monitored figure, and its name if this epoch is the best so far."""
        fit, options = self._fit, self._fit.options
        name = monitored(fit)
        if name is None:
            return None, None
        if name not in row:
            if any(name in previous for previous in fit.history.rows()) or options.evaluate_every > 1:
                return None, None
            raise ConfigError(f"there is no figure {name!r} to monitor; there are {', '.join(row)}")
        return row[name], name if better(fit, name, row[name]) else None
