"""The training loop: epochs, evaluations, and the figures and checkpoints of each."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from time import monotonic
from typing import Any

from nnpipe.core.errors import ConfigError
from nnpipe.core.progress import Progress, tell
from nnpipe.training._batches import BatchSource, select_share, size_of, to_tensors
from nnpipe.training._best_epoch import (
    check_monitor,
    get_monitored_figure,
    update_best_epoch,
    update_kept_epochs,
)
from nnpipe.training._checkpointing import Checkpointer, EpochVerdict
from nnpipe.training._evaluation import Evaluator, compute_team_figures
from nnpipe.training._forward import normalize_outputs
from nnpipe.training._hooks import Hooks
from nnpipe.training._steps import Diverged, Steps
from nnpipe.training._whole_metrics import MetricSums, check_outputs
from nnpipe.training.checkpoints import LAST
from nnpipe.training.distributed import Team, broadcast_buffers, is_sharded, load_weights
from nnpipe.training.final_weights import choose_final_weights, end, get_epoch_figures
from nnpipe.training.fit import TrainingRun
from nnpipe.training.options import TrainerOptions
from nnpipe.training.step import LearningStep, default_step


class Passes:
    """The passes through the training data; one may go on over several epochs."""

    def __init__(self, feed: BatchSource) -> None:
        self.feed = feed
        self._batches: Iterator[tuple[str, Any]] | None = None

    @property
    def going(self) -> bool:
        """Whether a pass has begun and is not over."""
        return self._batches is not None

    @property
    def length(self) -> int | None:
        """The number of batches in a pass; None if a sequence has no length."""
        try:
            return len(self.feed)
        except TypeError:
            return None

    def begin(self, number: int) -> None:
        """Begin a pass, counted from 1."""
        self.feed.begin(number)
        self._batches = iter(self.feed)

    def resume(self, state: Mapping[str, Any], number: int) -> None:
        """Go to where a pass was left."""
        self.feed.load_state_dict(state, number)
        self._batches = iter(self.feed)

    def batches(self) -> Iterator[tuple[str, Any]]:
        """Return the remaining batches of the pass, with the names of their sequences."""
        assert self._batches is not None  # a pass is going on
        return self._batches

    def close(self) -> None:
        """End the pass, wherever it is."""
        batches, self._batches = self._batches, None
        if batches is not None and hasattr(batches, "close"):
            batches.close()


class StepLimits:
    """The steps and the time at which an epoch or a training ends.

    Attributes
    ----------
    last_step
        The number of steps after which the present epoch ends; infinite if it ends with the pass.
    timed
        Whether time is limited.
    time_is_up
        Whether the training has to stop, as :meth:`check_time` found.
    """

    def __init__(self, options: TrainerOptions, team: Team) -> None:
        self._options = options
        self._team = team
        self._until = math.inf if options.max_seconds is None else monotonic() + options.max_seconds
        self.timed = options.max_seconds is not None
        self.time_is_up = False
        self.last_step = math.inf

    def begin_epoch(self, epoch: int) -> None:
        """Set the limit of steps for an epoch."""
        options = self._options
        own = math.inf if options.epoch_steps is None else epoch * options.epoch_steps
        self.last_step = min(own, math.inf if options.max_steps is None else options.max_steps)

    def is_whole_epoch(self, epoch: int, step: int) -> bool:
        """Return whether an epoch that ended within a pass has all the steps of ``epoch_steps``."""
        return self._options.epoch_steps is not None and step >= epoch * self._options.epoch_steps

    def check_time(self) -> bool:
        """Return whether the time is up, on the clock of the first process; all processes must
        call it.
        """
        self.time_is_up = self._team.gather(monotonic() >= self._until)[0]
        return self.time_is_up


class Loop:
    """The epochs of one training.

    ``amid`` is the place within a pass through the data from which a resumed training goes on, as
    :meth:`Checkpointer.restore <nnpipe.training._checkpointing.Checkpointer.restore>` returns it.
    """

    def __init__(
        self,
        fit: TrainingRun,
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
        self._training = {
            f"{d}/{s}": fit.datasets[d][s] for d, s in splits if s in fit.options.train_splits
        }
        self._evaluated = [(d, s) for d, s in splits if s not in fit.options.train_splits]
        self._passes = Passes(BatchSource(self._training, fit.options.mixing == "interleaved"))
        self._limits = StepLimits(fit.options, team)
        self._metric_sums: dict[str, MetricSums] = {}
        self._amid = amid

    # -- the course -----------------------------------------------------------------------------

    def run(self) -> None:
        """Run the remaining epochs, then give the model its final weights."""
        fit, options = self._fit, self._fit.options
        check_monitor(fit, self._evaluator.names)
        if self._step is default_step:  # another one may make outputs that the model does not have
            self._evaluator.check_metrics()
        if options.on_divergence == "rollback" and fit.step == 0 and self._amid is None:
            self._checkpointer.begin()
        while self._goes_on:
            try:
                self._begin_epoch()
                self._train()
                if self._limits.time_is_up:
                    break
                self._finish_epoch()
            except Diverged as error:
                self._roll_back(error)
        self._passes.close()
        self._checkpointer.wait()
        if self._limits.time_is_up:
            fit.stop(f"{options.max_seconds:g} seconds are over; the same call goes on from here")
            fit.unfinished = True
            end(fit, "last", fit.epoch, {})
            return
        self._choose_final_weights()

    @property
    def _goes_on(self) -> bool:
        fit, options = self._fit, self._fit.options
        if fit.stopping:
            return False
        # An epoch that max_steps or max_seconds cut short goes on, and ends at once if there are no
        # more steps to make.
        within = self._amid is not None and self._amid["own"] is not None
        return within or (
            fit.epoch < options.num_epochs
            and (options.max_steps is None or fit.step < options.max_steps)
        )

    def _begin_epoch(self) -> None:
        fit, amid = self._fit, self._amid
        self._metric_sums = {name: MetricSums(fit.metrics) for name in self._training}
        self._amid = None
        if amid is not None:
            self._passes.resume(amid["feed"], fit.passes)
            if amid["own"] is not None:
                amid["own"].load_sums(self._metric_sums)
                return
        fit.epoch += 1
        fit.batch = 0
        self._checkpointer.tell()
        self._begin_pass()
        self._hooks.call_aside("on_epoch_begin")

    def _begin_pass(self) -> None:
        if not self._passes.going:
            self._fit.passes += 1
            self._passes.begin(self._fit.passes)

    def _train(self) -> None:
        """Learn from the batches of an epoch: those of a pass, or as many as there are steps to
        make.
        """
        fit, steps, limits = self._fit, self._steps, self._limits
        limits.begin_epoch(fit.epoch)
        fit.model.train()
        before = -1  # the first pass may be the rest of one, without a batch
        while not self._train_on_pass():
            if steps.flush(fit.step):
                self._count_step()
            self._passes.close()
            if not fit.options.epoch_steps or fit.step >= limits.last_step:
                break
            if fit.step == before:
                raise ConfigError(
                    "no batch of a whole pass through the data made a step, so the epoch would "
                    "never end"
                )
            before = fit.step
            self._begin_pass()
        steps.check_all()

    def _train_on_pass(self) -> bool:
        """Learn from the rest of a pass; return whether a limit ended the epoch before the pass
        was over.
        """
        fit, steps, hooks, team = self._fit, self._steps, self._hooks, self._team
        options, device, metric_sums, limits = (
            fit.options,
            fit.device,
            self._metric_sums,
            self._limits,
        )
        if fit.step >= limits.last_step:
            return True
        watch_begin, watch_end = hooks.has("on_batch_begin"), hooks.has("on_batch_end")
        step, checked, every = self._step, self._step is default_step, options.checkpoint_every
        what = f"epoch {fit.epoch}/{options.num_epochs}"
        alone, sequence = team.world == 1, ""
        # DistributedDataParallel shares buffers by itself
        apart = steps.reduces or is_sharded(fit.model)
        for name, given in self._progress(self._passes.batches(), what, self._passes.length):
            given, size = (
                (given, size_of(given)) if alone else select_share(given, team.rank, team.world)
            )
            batch = to_tensors(given, device, options.channels_last)
            if name is not sequence:
                sequence, fit.dataset = name, name.partition("/")[0]
            if watch_begin:
                hooks.call("on_batch_begin", batch, batch=batch)
            if apart:
                broadcast_buffers(fit.model)
            steps.begin(fit.epoch, fit.step, given["sample_id"], size)
            found: Any = step(fit, batch)
            outputs = found if checked or not found else normalize_outputs(found, batch, step)
            fit.batch += 1
            if size and outputs:
                metric_sums[name].add(outputs, options.train_metrics)
            stepped = steps.end()
            if stepped:
                self._count_step()
            if watch_end:
                hooks.call("on_batch_end", batch, outputs or {}, batch=batch)
            if not stepped:
                continue
            if fit.step >= limits.last_step:
                return True
            if limits.timed and limits.check_time():
                steps.check_all()
                self._checkpointer.checkpoint(metric_sums, self._passes.feed)
                return True
            if every and fit.step % every == 0:
                steps.check_all()
                self._checkpointer.checkpoint(metric_sums, self._passes.feed)
        return False

    def _count_step(self) -> None:
        fit = self._fit
        fit.step += 1
        if fit.options.clip_norm is not None:
            fit.gradient_norm = self._steps.norm

    def _roll_back(self, error: Diverged) -> None:
        """Go back to the last checkpoint, with smaller learning rates."""
        fit, options = self._fit, self._fit.options
        if options.on_divergence == "stop" or fit.folder is None:
            raise error
        done = fit.rollbacks + 1
        if done > options.max_rollbacks:
            raise Diverged(f"{error}; so it did after {options.max_rollbacks} rollbacks") from error
        self._passes.close()
        self._checkpointer.wait()
        self._amid = self._checkpointer.restore(fit.folder.checkpoint(LAST))
        # The checkpoint may be older than earlier rollbacks, and so may its rates.
        factor = options.rollback_factor ** (done - fit.rollbacks)
        fit.rollbacks = done
        for rate in self._steps.rates.values():
            rate.scale(factor)
        fit.log.warning(
            "%s; back to step %d, with the learning rates times %g (rollback %d of %d)",
            error,
            fit.step,
            factor,
            done,
            options.max_rollbacks,
        )

    # -- the end of an epoch --------------------------------------------------------------------

    def _finish_epoch(self) -> None:
        fit, options = self._fit, self._fit.options
        # The checkpoint of an epoch that is cut short is that of its last step: what follows
        # belongs to this end only, and a training with more steps goes on as if there had been
        # none.
        cut_short = self._passes.going and not self._limits.is_whole_epoch(fit.epoch, fit.step)
        if cut_short:
            self._steps.check_all()
            self._checkpointer.checkpoint(self._metric_sums, self._passes.feed)
        row = {
            f"{name}/{key}": value
            for name, sums in self._metric_sums.items()
            for key, value in compute_team_figures(sums, self._team, fit.metrics).items()
        }
        last = fit.epoch >= options.num_epochs or (
            options.max_steps is not None and fit.step >= options.max_steps
        )
        if self._evaluated and (last or fit.epoch % options.evaluate_every == 0):
            row |= self._evaluator.evaluate(self._evaluated, self._steps.average)
        if self._step is not default_step:
            check_outputs(fit.metrics, [name.split("/", 2)[2] for name in row])
        fit.history.append(epoch=fit.epoch, step=fit.step, learning_rate=fit.rates[0], **row)
        figure, verdict = self._evaluate_epoch(row)
        for rate in self._steps.rates.values():
            rate.finish_epoch(figure)
        average = self._steps.average
        if (
            self._steps.swa is not None
            and options.swa_start is not None
            and fit.epoch >= options.swa_start
        ):
            self._steps.swa.add()
        # Callbacks see the weights with which the row's figures were measured.
        with nullcontext() if average is None else average.apply_temporarily():
            self._hooks.call_aside("on_epoch_end")
        tell(self._progress, fit.epoch, options.num_epochs, row)
        fit.batch = 0
        if cut_short:
            self._checkpointer.save_cut_epoch(verdict)
            return
        self._steps.check_all()
        self._checkpointer.epoch(verdict, self._passes.feed if self._passes.going else None)

    def _evaluate_epoch(self, row: Mapping[str, float]) -> tuple[float | None, EpochVerdict]:
        """Return the monitored figure, and what it says of this epoch."""
        fit, options = self._fit, self._fit.options
        name = get_monitored_figure(fit)
        if name is None:
            return None, EpochVerdict()
        if name not in row:
            if (
                any(name in previous for previous in fit.history.rows())
                or options.evaluate_every > 1
            ):
                return None, EpochVerdict()
            raise ConfigError(f"there is no figure {name!r} to monitor; there are {', '.join(row)}")
        best = update_best_epoch(fit, name, row[name])
        kept, dropped = update_kept_epochs(fit, name, row[name])
        return row[name], EpochVerdict(name, row[name], best, kept, dropped)

    def _choose_final_weights(self) -> None:
        """Load the final weights into the model and record which they are; all processes must call
        this.

        If they are others than those that were evaluated last, callbacks that describe weights see
        them, too.
        """
        fit, steps = self._fit, self._steps
        which, epoch = choose_final_weights(fit), fit.epoch
        if which == "best" and not fit.best_epoch:
            fit.log.warning(
                "no epoch was judged, so there are no best weights: the model keeps the last ones"
            )
            which = "last"
        averaged = which == "average" and steps.swa is not None and steps.swa.count > 0
        if which == "average" and steps.swa is not None and not averaged:
            fit.log.warning(
                "no epoch from swa_start on was finished, so there is no average: the model keeps "
                "the last weights"
            )
            which = "last"
        if which == "best":
            model, average = self._checkpointer.load_best_weights()
            load_weights(fit.model, dict(model) | dict(average or {}))
            epoch = fit.best_epoch
        elif which == "average" and steps.average is not None:
            steps.average.apply_permanently()
        elif averaged and steps.swa is not None:
            steps.swa.apply_permanently()
            self._evaluator.estimate_statistics()
        # A row is measured with the average if there is one, and its epoch may have had no
        # evaluation.
        measured = not averaged and (which != "last" or steps.average is None)
        figures = get_epoch_figures(fit, epoch) if measured else {}
        describing = self._hooks.filter_describing_weights()
        describes = not measured or epoch != fit.epoch
        # Only the first process has callbacks, and all have to evaluate together.
        describes = self._team.gather(describes and describing.has("on_epoch_end"))[0]
        last_epoch, fit.epoch = fit.epoch, epoch
        if self._evaluated and epoch and (describes or not figures):
            figures = self._evaluator.evaluate(self._evaluated, hooks=describing)
        end(fit, which, epoch, figures)
        if describes:
            describing.call_aside("on_epoch_end")
        fit.epoch = last_epoch
