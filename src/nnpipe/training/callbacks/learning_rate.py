"""The learning rates that the optimiser used."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError
from nnpipe.training._batches import to_tensors
from nnpipe.training.callbacks._arrays import Trace
from nnpipe.training.callbacks.callback import (
    WritingCallback,
    create_figure,
    is_write_due,
    save_figure,
    write_table,
)

if TYPE_CHECKING:
    from nnpipe.training.fit import TrainingRun


class LearningRateRecorder(WritingCallback):
    """Record the rate that the optimiser used at each step, one line for each group of its
    parameters.

    It reads the optimiser, not the schedule.  If there are more than 2,000 steps,
    only every 2nd, 4th, ... is kept.  Writes ``pictures/learning_rate.png`` and
    ``tables/learning_rate.json``.
    """

    frameworks = ("torch", "keras")
    draws = True
    formerly: ClassVar[tuple[str, ...]] = (
        "CallbackLearningRateRecorder",
        "CallbackReportingLearningRateRecorder",
    )

    def __init__(self) -> None:
        self.trace = Trace()

    def on_batch_end(
        self, fit: TrainingRun, batch: dict[str, Any], outputs: dict[str, Any]
    ) -> None:
        """Record the last step's rates."""
        if fit.step:
            self.trace.add(fit.step, fit.rates)

    def on_epoch_end(self, fit: TrainingRun) -> None:
        """Write the table and the picture."""
        if is_write_due(fit):
            self._write(fit)

    def on_fit_end(self, fit: TrainingRun) -> None:
        """Write them a last time."""
        if self.trace.steps:
            self._write(fit)

    def _write(self, fit: TrainingRun) -> None:
        steps, rates = [*self.trace.steps], [*self.trace.values]
        # long trainings leave steps out, but not the last one
        if fit.step and fit.step not in steps[-1:]:
            steps.append(fit.step)
            rates.append(fit.rates)
        write_table(
            fit,
            "learning_rate",
            ({"step": step, "rates": rate} for step, rate in zip(steps, rates, strict=True)),
        )
        picture = create_figure(6, 3)
        axes = picture.subplots()
        for group, values in enumerate(zip(*rates, strict=True)):
            axes.plot(steps, values, label=f"group {group}")
        if rates and len(rates[0]) > 1:
            axes.legend()
        axes.set(title="learning rate used", xlabel="step", ylabel="learning rate")
        axes.grid(alpha=0.3)
        save_figure(fit, "learning_rate", picture)


class LearningRateFinder(WritingCallback):
    """Try increasing rates on a copy of the model before the training, and draw the loss over the
    rate.

    Smith, "Cyclical Learning Rates for Training Neural Networks", 2017: the rate is
    multiplied by the same factor at each step, until the loss is 4 times its
    minimum.  The rate at which the loss falls most steeply is logged and marked.
    The training itself does not change.  It uses the first epoch's batches, and
    does nothing if a run is resumed.  Writes
    ``pictures/learning_rate_finder.png`` and ``tables/learning_rate_finder.json``.

    Parameters
    ----------
    lowest, highest
        The first and the last rate.
    steps
        Number of rates to try.
    """

    draws = True
    formerly: ClassVar[tuple[str, ...]] = ("CallbackLearningRateFinder",)

    def __init__(self, lowest: float = 1e-6, highest: float = 1.0, steps: int = 100) -> None:
        check_call(LearningRateFinder, locals())
        self.lowest = lowest
        self.highest = highest
        self.steps = steps

    def on_fit_begin(self, fit: TrainingRun) -> None:
        """Try the rates, and write the table and the picture."""
        super().on_fit_begin(fit)
        if not 0 < self.lowest < self.highest or self.steps < 2:
            raise ConfigError("LearningRateFinder needs 0 < lowest < highest, and 2 steps at least")
        if len(fit.optimisers) > 1:
            raise ConfigError(
                "LearningRateFinder tries the losses of forward(batch) with one optimiser; this "
                "training has " + ", ".join(fit.optimisers)
            )
        if fit.epoch:
            return
        rates, losses = self._try(fit)
        write_table(
            fit,
            "learning_rate_finder",
            ({"rate": r, "loss": v} for r, v in zip(rates, losses, strict=True)),
        )
        smooth = smooth_losses(losses)
        best = find_steepest_rate(rates, smooth)
        fit.log.info("the loss falls most steeply at a learning rate of %.3g", best)
        picture = create_figure(6, 3.5)
        axes = picture.subplots()
        axes.plot(rates, losses, lw=0.5, alpha=0.5, label="loss")
        axes.plot(rates, smooth, label="smoothed")
        axes.axvline(best, color="grey", ls=":", label=f"steepest, {best:.2g}")
        axes.set(
            title="loss over the learning rate", xlabel="learning rate", ylabel="loss", xscale="log"
        )
        axes.legend()
        save_figure(fit, "learning_rate_finder", picture)

    def _try(self, fit: TrainingRun) -> tuple[list[float], list[float]]:
        import torch

        # Copied together, so that the copied optimiser refers to the copied weights.
        model, optimiser = copy.deepcopy((fit.model, fit.optimiser))
        model.train()
        factor = (self.highest / self.lowest) ** (1 / (self.steps - 1))
        rates: list[float] = []
        losses: list[float] = []
        batches = self._iter_batches(fit)
        try:
            with torch.enable_grad():
                while len(rates) < self.steps:
                    rate = self.lowest * factor ** len(rates)
                    for group in optimiser.param_groups:
                        group["lr"] = rate
                    outputs = model(to_tensors(next(batches), fit.device))
                    found = outputs.values() if isinstance(outputs, dict) else [outputs]
                    loss = sum(output.loss() for output in found)
                    value = float(loss.detach())
                    if not np.isfinite(value) or (losses and value > 4 * min(losses)):
                        break
                    rates.append(rate)
                    losses.append(value)
                    optimiser.zero_grad()
                    loss.backward()
                    optimiser.step()
        finally:
            batches.close()
        if len(rates) < 2:
            raise ConfigError(
                f"LearningRateFinder: the loss is {value} at the lowest rates already"
            )
        return rates, losses

    def _iter_batches(self, fit: TrainingRun) -> Any:
        epoch = 1
        while True:
            for parts in fit.datasets.values():
                for split, sequence in parts.items():
                    if split in fit.options.train_splits:
                        sequence.set_epoch(epoch)
                        yield from sequence
            epoch += 1


def smooth_losses(losses: list[float], keep: float = 0.9) -> list[float]:
    """Return an exponential moving average with bias correction (Kingma and Ba, 2015, section
    3).
    """
    mean, found = 0.0, []
    for number, loss in enumerate(losses, 1):
        mean = keep * mean + (1 - keep) * loss
        found.append(mean / (1 - keep**number))
    return found


def find_steepest_rate(rates: list[float], losses: list[float]) -> float:
    """Return the rate at which the loss falls most steeply over the logarithm of the rate."""
    return rates[int(np.gradient(losses, np.log(rates)).argmin())]
