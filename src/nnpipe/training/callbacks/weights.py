"""Statistics of the weights, by parameter and epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from nnpipe.experiment.append_only import AppendOnly
from nnpipe.experiment.state import State
from nnpipe.training.callbacks._histograms import histograms_of, write_histograms
from nnpipe.training.callbacks.writing_callback import WritingCallback, heat_map, new_figure, save_figure, write_table

if TYPE_CHECKING:
    from nnpipe.training.fit import Fit

_NAMES = ("mean", "deviation", "least", "greatest")


class WeightStatistics(WritingCallback):
    """Record mean, standard deviation, minimum and maximum of each parameter after each epoch.

    The standard deviation is that of the population.  Writes ``pictures/weights.png`` and ``tables/weights.json``,
    and the last epoch's histograms as ``tables/weight_histograms.npz``.
    """

    draws = True
    formerly: ClassVar[tuple[str, ...]] = ("CallbackReportingLayerWeights",)

    def __init__(self) -> None:
        self.state = State(rows=AppendOnly())

    def on_epoch_end(self, fit: Fit) -> None:
        """Record the statistics, and write the table and the picture."""
        import torch

        with torch.no_grad():
            weights = {n: p.float() for n, p in fit.model.named_parameters() if p.numel() and p.is_floating_point()}
            if not weights:
                return
            found = torch.stack(
                [torch.stack([w.mean(), w.std(correction=0), w.min(), w.max()]) for w in weights.values()]
            ).tolist()
        named = {name: dict(zip(_NAMES, values, strict=True)) for name, values in zip(weights, found, strict=True)}
        self.state.rows.append({"epoch": fit.epoch, "weights": named})
        write_table(fit, "weights", self.state.rows)
        write_histograms(fit, "weight_histograms", histograms_of(weights), fit.step)
        self._draw(fit)

    def _draw(self, fit: Fit) -> None:
        rows = self.state.rows
        names = list(rows[-1]["weights"])
        picture = new_figure(9, 1.5 + 0.2 * min(40, len(names)))
        for axes, figure in zip(picture.subplots(1, 2, sharey=True), ("mean", "deviation"), strict=True):
            values = [[row["weights"].get(name, {}).get(figure, np.nan) for row in rows] for name in names]
            heat_map(axes, np.array(values), names, [str(row["epoch"]) for row in rows], label="")
            axes.set(title=f"{figure} of weights", xlabel="epoch")
        save_figure(fit, "weights", picture)
