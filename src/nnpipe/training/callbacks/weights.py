"""Statistics and pictures of weights, gradients, kernels and the outputs of layers, by epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from nnpipe.core.argument_checks import check_call
from nnpipe.experiment.state import AppendOnly, State
from nnpipe.training.callbacks._arrays import (
    Trace,
    compute_histograms,
    iter_leaf_layers,
    write_histograms,
)
from nnpipe.training.callbacks.callback import (
    WritingCallback,
    create_figure,
    draw_heat_map,
    save_figure,
    write_table,
)
from nnpipe.training.callbacks.samples import as_image, show_images

if TYPE_CHECKING:
    from nnpipe.training.fit import TrainingRun

_NAMES = ("mean", "deviation", "least", "greatest")


class WeightStatistics(WritingCallback):
    """Record mean, standard deviation, minimum and maximum of each parameter after each epoch.

    The standard deviation is that of the population.  Writes ``pictures/weights.png`` and
    ``tables/weights.json``, and the last epoch's histograms as ``tables/weight_histograms.npz``.
    """

    draws = True
    formerly: ClassVar[tuple[str, ...]] = ("CallbackReportingLayerWeights",)

    def __init__(self) -> None:
        self.state = State(rows=AppendOnly())

    def on_epoch_end(self, fit: TrainingRun) -> None:
        """Record the statistics, and write the table and the picture."""
        import torch

        with torch.no_grad():
            weights = {
                n: p.float()
                for n, p in fit.model.named_parameters()
                if p.numel() and p.is_floating_point()
            }
            if not weights:
                return
            found = torch.stack(
                [
                    torch.stack([w.mean(), w.std(correction=0), w.min(), w.max()])
                    for w in weights.values()
                ]
            ).tolist()
        named = {
            name: dict(zip(_NAMES, values, strict=True))
            for name, values in zip(weights, found, strict=True)
        }
        self.state.rows.append({"epoch": fit.epoch, "weights": named})
        write_table(fit, "weights", self.state.rows)
        write_histograms(fit, "weight_histograms", compute_histograms(weights), fit.step)
        self._draw(fit)

    def _draw(self, fit: TrainingRun) -> None:
        rows = self.state.rows
        names = list(rows[-1]["weights"])
        picture = create_figure(9, 1.5 + 0.2 * min(40, len(names)))
        for axes, figure in zip(
            picture.subplots(1, 2, sharey=True), ("mean", "deviation"), strict=True
        ):
            values = [
                [row["weights"].get(name, {}).get(figure, np.nan) for row in rows] for name in names
            ]
            draw_heat_map(
                axes, np.array(values), names, [str(row["epoch"]) for row in rows], label=""
            )
            axes.set(title=f"{figure} of weights", xlabel="epoch")
        save_figure(fit, "weights", picture)


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
        self.state = State(
            names=[], sums=None, greatest=None, count=0, step=0, rows=AppendOnly(), histograms=None
        )
        self.total = Trace()
        self.unclipped = Trace()

    def on_batch_end(
        self, fit: TrainingRun, batch: dict[str, Any], outputs: dict[str, Any]
    ) -> None:
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
            norms = torch.stack(
                [zero if g is None else torch.linalg.vector_norm(g).float() for _, g in named]
            )
            if state.sums is None:
                state.sums, state.greatest = norms, norms
            else:
                state.sums = state.sums.to(norms.device) + norms
                state.greatest = torch.maximum(state.greatest.to(norms.device), norms)
            state.count += 1
            self.total.add(fit.step, torch.linalg.vector_norm(norms))
            if state.histograms is None:
                found = compute_histograms({n: g for n, g in named if g is not None})
                state.histograms = {**found, "step": fit.step}
            if fit.gradient_norm is not None:
                self.unclipped.add(fit.step, fit.gradient_norm)

    def on_epoch_end(self, fit: TrainingRun) -> None:
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

    def _draw(self, fit: TrainingRun) -> None:
        rows = self.state.rows
        names = list(dict.fromkeys(name for row in rows for name in row["mean"]))
        rows_drawn = 0.8 + 0.2 * min(40, len(names))
        picture = create_figure(8, 2.6 + rows_drawn)
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
        draw_heat_map(
            lower, logs, names, [str(row["epoch"]) for row in rows], label="log10 of the mean norm"
        )
        lower.set(title="gradient of each parameter", xlabel="epoch")
        save_figure(fit, "gradients", picture)


_ACTIVATION_FIGURES = ("mean", "deviation", "zeros")


class ActivationStatistics(WritingCallback):
    """Record mean, standard deviation and the share of zeros of each layer's output, at each
    epoch's first batch.

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

    def on_batch_begin(self, fit: TrainingRun, batch: dict[str, Any]) -> None:
        """Hook the layers for one batch."""
        if fit.batch == 0 and not fit.options.compile:
            self._found = {}
            for name, layer in iter_leaf_layers(fit.model):
                self._handles.append(layer.register_forward_hook(self._make_hook(name)))

    def _make_hook(self, name: str) -> Any:
        import torch

        def record(layer: Any, arguments: Any, output: Any) -> None:
            if isinstance(output, torch.Tensor) and output.is_floating_point() and output.numel():
                values = output.detach().float()
                zeros = (values == 0).float().mean()
                self._found[name] = torch.stack([values.mean(), values.std(correction=0), zeros])

        return record

    def on_batch_end(
        self, fit: TrainingRun, batch: dict[str, Any], outputs: dict[str, Any]
    ) -> None:
        """Store the statistics and remove the hooks."""
        if not self._handles:
            return
        self.close()
        if self._found:
            import torch

            values = torch.stack(list(self._found.values())).tolist()
            named = {
                n: dict(zip(_ACTIVATION_FIGURES, v, strict=True))
                for n, v in zip(self._found, values, strict=True)
            }
            self.state.rows.append({"epoch": fit.epoch, "layers": named})

    def on_epoch_end(self, fit: TrainingRun) -> None:
        """Write the table and the picture."""
        rows = self.state.rows
        if not rows:
            return
        write_table(fit, "activations", rows)
        names = list(dict.fromkeys(name for row in rows for name in row["layers"]))
        picture = create_figure(11, 1.5 + 0.2 * min(40, len(names)))
        for axes, figure in zip(
            picture.subplots(1, 3, sharey=True), _ACTIVATION_FIGURES, strict=True
        ):
            values = [
                [row["layers"].get(name, {}).get(figure, np.nan) for row in rows] for name in names
            ]
            draw_heat_map(
                axes, np.array(values), names, [str(row["epoch"]) for row in rows], label=""
            )
            axes.set(
                title="share of zeros" if figure == "zeros" else f"{figure} of outputs",
                xlabel="epoch",
            )
        save_figure(fit, "activations", picture)

    def close(self) -> None:
        """Remove the hooks."""
        while self._handles:
            self._handles.pop().remove()


class Kernels(WritingCallback):
    """Draw the kernels of the first two-dimensional convolution after each epoch, into
    ``pictures/kernels.png``.

    Kernels of 1 or 3 input channels are drawn as they are, others as the mean over the channels.

    Parameters
    ----------
    count
        Number of kernels to draw.
    """

    draws = True
    describes_weights = True
    formerly: ClassVar[tuple[str, ...]] = ("CallbackExportConvolutionKernel",)

    def __init__(self, count: int = 32) -> None:
        check_call(Kernels, locals())
        self.count = count

    def on_epoch_end(self, fit: TrainingRun) -> None:
        """Draw the kernels, if there are any."""
        import torch

        convolutions = (
            (n, m) for n, m in fit.model.named_modules() if isinstance(m, torch.nn.Conv2d)
        )
        name, layer = next(convolutions, (None, None))
        if layer is None:
            return
        weights = layer.weight.detach().float().cpu().numpy()[: self.count]
        if weights.shape[1] not in (1, 3):
            weights = weights.mean(1, keepdims=True)
        images = []
        for kernel in weights:
            large = np.kron(kernel, np.ones((1, 4, 4)))  # small kernels are enlarged
            image = as_image(large)
            if image is not None:
                images.append(image)
        columns = min(8, len(images))
        picture = create_figure(max(5.0, 1.0 * columns), 0.4 + 1.2 * -(-len(images) // columns))
        show_images(picture, images, [str(n) for n in range(len(images))], columns)
        picture.suptitle(
            f"kernels of {name or 'the model'}, each from its least value to its greatest",
            fontsize=9,
        )
        save_figure(fit, "kernels", picture)
