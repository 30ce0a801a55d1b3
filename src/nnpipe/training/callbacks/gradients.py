"""Norms of gradients, by parameter and epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nnpipe.core.argument_checks import check_call
from nnpipe.experiment.append_only import AppendOnly
from nnpipe.experiment.state import State
from nnpipe.training.callbacks._histograms import histograms_of, write_histograms
from nnpipe.training.callbacks._step_values import Trace
from nnpipe.training.callbacks.writing_callback import WritingCallback, heat_map, new_figure, save_figure, write_table

if TYPE_CHECKING:
    from nnpipe.training.fit import Fit


class GradientNorms(WritingCallback):
    """Record the Euclidean norm of each parameter's gradient, and of all gradients together.

    They are the gradients that the optimiser used, after clipping.  If
    ``clip_norm`` is set, the norm before clipping is recorded, too.  Norms are
    summed on the device and fetched once for each epoch.  Writes
    ``pictures/gradients.png``; ``tables/gradients.json`` with the mean and the
    greatest norm of each parameter in each epoch; and
    ``tables/gradient_histograms.npz`` with histograms of the first recorded step
    of the last epoch.

    Parameters
    ----------
    every
        Record every so many steps.
    """

    draws = True

    def __init__(self, every: int = 1) -> None:
        check_call(GradientNorms, locals())
        self.every = every
        self.state = State(names=[], sums=None, greatest=None, count=0, step=0, rows=AppendOnly(), histograms=None)
        self.total = Trace()
        self.unclipped = Trace()

    def on_batch_end(self, fit: Fit, batch: dict[str, Any], outputs: dict[str, Any]) -> None:
        """Add the norms of a step to the sums."""
        state = self.state
        if fit.step == state.step or fit.step % self.every:
            return
        import torch

        state.step = fit.step
        named = [(n, p.grad) for n, p in fit.model.named_parameters() if p.requires_grad]
        names = [name for name, _ in named]
        if names != state.names:  # the first step, or layers were frozen or unfrozen
            state.names, state.sums, state.greatest, state.count = names, None, None, 0
        with torch.no_grad():
            zero = torch.zeros((), device=fit.device)
            norms = torch.stack([zero if g is None else torch.linalg.vector_norm(g).float() for _, g in named])
            if state.sums is None:
                state.sums, state.greatest = norms, norms
            else:
                state.sums = state.sums.to(norms.device) + norms
                state.greatest = torch.maximum(state.greatest.to(norms.device), norms)
            state.count += 1
            self.total.add(fit.step, torch.linalg.vector_norm(norms))
            if state.histograms is None:
                found = histograms_of({n: g for n, g in named if g is not None})
                state.histograms = {**found, "step": fit.step}
            if fit.gradient_norm is not None:
                self.unclipped.add(fit.step, fit.gradient_norm)

    def on_epoch_end(self, fit: Fit) -> None:
        """Write the table and the picture, and begin new sums."""
        state = self.state
        if not state.count:
            return
        means, greatest = (state.sums / state.count).tolist(), state.greatest.tolist()
        state.rows.append(
            {
                "epoch": fit.epoch,
                "mean": dict(zip(state.names, means, strict=True)),
                "greatest": dict(zip(state.names, greatest, strict=True)),
            }
        )
        state.sums, state.greatest, state.count = None, None, 0
        self.total.fetch()
        self.unclipped.fetch()
        write_table(fit, "gradients", state.rows)
        found, state.histograms = state.histograms, None
        write_histograms(fit, "gradient_histograms", found, found["step"])
        self._draw(fit)

    def _draw(self, fit: Fit) -> None:
        rows = self.state.rows
        names = list(dict.fromkeys(name for row in rows for name in row["mean"]))
        rows_drawn = 0.8 + 0.2 * min(40, len(names))
        picture = new_figure(8, 2.6 + rows_drawn)
        upper, lower = picture.subplots(2, 1, height_ratios=(2.6, rows_drawn))
        upper.plot(self.total.steps, self.total.values, lw=0.8, label="used")
        if self.unclipped.steps:
            upper.plot(self.unclipped.steps, self.unclipped.values, lw=0.8, label="before clipping")
            upper.legend()
        upper.set(title="norm of all gradients", xlabel="step", yscale="log")
        upper.grid(alpha=0.3)
        means = np.array([[row["mean"].get(name, np.nan) for row in rows] for name in names])
        with np.errstate(divide="ignore"):
            logs = np.where(means > 0, np.log10(means), np.nan)
        heat_map(lower, logs, names, [str(row["epoch"]) for row in rows], label="log10 of the mean norm")
        lower.set(title="gradient of each parameter", xlabel="epoch")
        save_figure(fit, "gradients", picture)
