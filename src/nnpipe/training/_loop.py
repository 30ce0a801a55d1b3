"""The training loop: epochs, evaluations, and the figures and checkpoints of each."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

from nnpipe.core.errors import ConfigError
from nnpipe.core.progress import Progress, tell
from nnpipe.training._batches import Feed, share_of, size_of, tensors_of
from nnpipe.training._best_epoch import better, check_monitor, monitored
from nnpipe.training._checkpointing import Checkpointer
from nnpipe.training._evaluation import Evaluator, figures_of
from nnpipe.training._forward import outputs_of
from nnpipe.training._hooks import Hooks
from nnpipe.training._metric_sums import MetricSums
from nnpipe.training._steps import Steps
from nnpipe.training.distributed import Team
from nnpipe.training.final_weights import choose_final_weights
from nnpipe.training.fit import Fit
from nnpipe.training.step import LearningStep, default_step


class Loop:
    """The epochs of one training.

    ``amid`` is the place within an epoch from which a resumed training goes on, as
    :meth:`Checkpointer.restore <nnpipe.training._checkpointing.Checkpointer.restore>` returns it.
    """

    def __init__(
        self,
        fit: Fit,
        hooks: Hooks,
        step: LearningStep,
        steps: Steps,
        checkpointer: Checkpointer,
        team: Team,
        progress: Progress,
        amid: Mapping[str, Any] | None,
    ) -> None:
        self._fit = fit
        self._hooks = hooks
        self._step = step
        self._steps = steps
        self._checkpointer = checkpointer
        self._evaluator = Evaluator(fit, hooks, team, progress)
        self._team = team
        self._progress = progress
        splits = [(d, s) for d, parts in fit.datasets.items() for s in parts]
        self._training = {f"{d}/{s}": fit.datasets[d][s] for d, s in splits if s in fit.options.train_splits}
        self._evaluated = [(d, s) for d, s in splits if s not in fit.options.train_splits]
        self._feed = Feed(self._training, fit.options.mixing == "interleaved")
        self._metric_sums: dict[str, MetricSums] = {}
        self._amid = amid

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
        choose_final_weights(fit, self._steps, self._checkpointer, self._evaluator)

    def _begin_epoch(self) -> None:
        fit = self._fit
        self._metric_sums = {name: MetricSums(fit.metrics) for name in self._training}
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
        fit, steps, hooks, team = self._fit, self._steps, self._hooks, self._team
        options, device, metric_sums = fit.options, fit.device, self._metric_sums
        watch_begin, watch_end = hooks.has("on_batch_begin"), hooks.has("on_batch_end")
        step, checked, every = self._step, self._step is default_step, options.checkpoint_every
        fit.model.train()
        feed = self._progress(self._feed, f"epoch {fit.epoch}/{options.num_epochs}", self.batches)
        for name, given in feed:
            given, size = (given, size_of(given)) if team.world == 1 else share_of(given, team.rank, team.world)
            batch = tensors_of(given, device)
            fit.dataset = name.partition("/")[0]
            if watch_begin:
                hooks.call("on_batch_begin", batch, batch=batch)
            steps.begin(fit.epoch, fit.step, given["sample_id"], size)
            found: Any = step(fit, batch)
            outputs = found if checked or not found else outputs_of(found, batch, step)
            fit.batch += 1
            if size and outputs:
                metric_sums[name].add(outputs, options.train_metrics)
            stepped = steps.end()
            if stepped:
                self._count_step()
            if watch_end:
                hooks.call("on_batch_end", batch, outputs or {}, batch=batch)
            if stepped and every and fit.step % every == 0:
                steps.check_all()
                self._checkpointer.checkpoint(metric_sums, self._feed)
        if steps.flush():
            self._count_step()
        steps.check_all()

    def _count_step(self) -> None:
        self._fit.step += 1
        self._fit.gradient_norm = self._steps.norm

    @property
    def batches(self) -> int | None:
        """The number of batches in an epoch; None if a sequence has no length."""
        try:
            return len(self._feed)
        except TypeError:
            return None

    # -- the end of an epoch --------------------------------------------------------------------

    def _finish_epoch(self) -> None:
        fit, options = self._fit, self._fit.options
        row = {
            f"{name}/{key}": value
            for name, sums in self._metric_sums.items()
            for key, value in figures_of(sums, self._team, fit.metrics).items()
        }
        last = fit.epoch >= options.num_epochs
        if self._evaluated and (last or fit.epoch % options.evaluate_every == 0):
            row |= self._evaluator.evaluate(self._evaluated, self._steps.average)
        fit.history.append(epoch=fit.epoch, step=fit.step, learning_rate=fit.rates[0], **row)
        figure, best = self._judge(row)
        for one in self._steps.by_name.values():
            one.rate.after_epoch(figure)
        average = self._steps.average
        # Callbacks see the weights with which the row's figures were measured.
        with nullcontext() if average is None else average.in_place():
            self._hooks.call_aside("on_epoch_end")
        tell(self._progress, fit.epoch, options.num_epochs, row)
        fit.batch = 0
        self._steps.check_all()
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
