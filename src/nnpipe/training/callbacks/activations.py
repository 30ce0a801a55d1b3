"""Statistics of each layer's output, by epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from nnpipe.experiment.append_only import AppendOnly
from nnpipe.experiment.state import State
from nnpipe.training.callbacks._layers import leaves
from nnpipe.training.callbacks.writing_callback import WritingCallback, heat_map, new_figure, save_figure, write_table

if TYPE_CHECKING:
    from nnpipe.training.fit import Fit

_NAMES = ("mean", "deviation", "zeros")


class ActivationStatistics(WritingCallback):
    """Record mean, standard deviation and the share of zeros of each layer's output, at each epoch's first batch.

    Only innermost layers are recorded; of a layer that runs several times, the
    last output counts.  A share of zeros near 1 after a ReLU is a sign of dead
    units.  The layers of a compiled model cannot be seen, so nothing is recorded.
    Writes ``pictures/activations.png`` and ``tables/activations.json``.
    """

    draws = True
    formerly: ClassVar[tuple[str, ...]] = ("CallbackReportingLayerStatistics",)

    def __init__(self) -> None:
        self.state = State(rows=AppendOnly())
        self._handles: list[Any] = []
        self._found: dict[str, Any] = {}

    def on_batch_begin(self, fit: Fit, batch: dict[str, Any]) -> None:
        """Hook the layers for one batch."""
        if fit.batch == 0 and not fit.options.compile:
            self._found = {}
            for name, layer in leaves(fit.model):
                self._handles.append(layer.register_forward_hook(self._hook(name)))

    def _hook(self, name: str) -> Any:
        import torch

        def record(layer: Any, arguments: Any, output: Any) -> None:
            if isinstance(output, torch.Tensor) and output.is_floating_point() and output.numel():
                values = output.detach().float()
                zeros = (values == 0).float().mean()
                self._found[name] = torch.stack([values.mean(), values.std(correction=0), zeros])

        return record

    def on_batch_end(self, fit: Fit, batch: dict[str, Any], outputs: dict[str, Any]) -> None:
        """Store the statistics and remove the hooks."""
        if not self._handles:
            return
        self.close()
        if self._found:
            import torch

            values = torch.stack(list(self._found.values())).tolist()
            named = {n: dict(zip(_NAMES, v, strict=True)) for n, v in zip(self._found, values, strict=True)}
            self.state.rows.append({"epoch": fit.epoch, "layers": named})

    def on_epoch_end(self, fit: Fit) -> None:
        """Write the table and the picture."""
        rows = self.state.rows
        if not rows:
            return
        write_table(fit, "activations", rows)
        names = list(dict.fromkeys(name for row in rows for name in row["layers"]))
        picture = new_figure(11, 1.5 + 0.2 * min(40, len(names)))
        for axes, figure in zip(picture.subplots(1, 3, sharey=True), _NAMES, strict=True):
            values = [[row["layers"].get(name, {}).get(figure, np.nan) for row in rows] for name in names]
            heat_map(axes, np.array(values), names, [str(row["epoch"]) for row in rows], label="")
            axes.set(title="share of zeros" if figure == "zeros" else f"{figure} of outputs", xlabel="epoch")
        save_figure(fit, "activations", picture)

    def close(self) -> None:
        """Remove the hooks."""
        while self._handles:
            self._handles.pop().remove()
