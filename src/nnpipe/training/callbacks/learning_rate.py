"""The learning rates that the optimiser used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from nnpipe.training.callbacks._step_values import Trace
from nnpipe.training.callbacks.writing_callback import (
    WritingCallback,
    new_figure,
    save_figure,
    write_table,
    writes_after,
)

if TYPE_CHECKING:
    from nnpipe.training.fit import Fit


class LearningRateRecorder(WritingCallback):
    """Record the rate that the optimiser used at each step, one line for each group of its parameters.

    It reads the optimiser, not the schedule.  If there are more than 2,000 steps,
    only every 2nd, 4th, ... is kept.  Writes ``pictures/learning_rate.png`` and
    ``tables/learning_rate.json``.
    """

    frameworks = ("torch", "keras")
    draws = True
    formerly: ClassVar[tuple[str, ...]] = ("CallbackLearningRateRecorder", "CallbackReportingLearningRateRecorder")

    def __init__(self) -> None:
        self.trace = Trace()

    def on_batch_end(self, fit: Fit, batch: dict[str, Any], outputs: dict[str, Any]) -> None:
        """Record the last step's rates."""
        if fit.step:
            self.trace.add(fit.step, fit.rates)

    def on_epoch_end(self, fit: Fit) -> None:
        """Write the table and the picture."""
        if writes_after(fit):
            self._write(fit)

    def on_fit_end(self, fit: Fit) -> None:
        """Write them a last time."""
        if self.trace.steps:
            self._write(fit)

    def _write(self, fit: Fit) -> None:
        steps, rates = [*self.trace.steps], [*self.trace.values]
        if fit.step and fit.step not in steps[-1:]:  # long trainings leave steps out, but not the last one
            steps.append(fit.step)
            rates.append(fit.rates)
        write_table(
            fit, "learning_rate", ({"step": step, "rates": rate} for step, rate in zip(steps, rates, strict=True))
        )
        picture = new_figure(6, 3)
        axes = picture.subplots()
        for group, values in enumerate(zip(*rates, strict=True)):
            axes.plot(steps, values, label=f"group {group}")
        if rates and len(rates[0]) > 1:
            axes.legend()
        axes.set(title="learning rate used", xlabel="step", ylabel="learning rate")
        axes.grid(alpha=0.3)
        save_figure(fit, "learning_rate", picture)
