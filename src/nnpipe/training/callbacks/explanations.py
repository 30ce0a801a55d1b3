"""Explanations of a classifier's predictions: Grad-CAM and integrated gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError
from nnpipe.training._batches import tensors_of
from nnpipe.training.callbacks._sample_access import as_image, first_batch
from nnpipe.training.callbacks.writing_callback import WritingCallback, new_figure, save_figure
from nnpipe.training.run_folder import file_name

if TYPE_CHECKING:
    from nnpipe.training.fit import Fit


class Explanations(WritingCallback):
    """Draw, at the end, Grad-CAM and integrated gradients of samples for the predicted class.

    Grad-CAM (Selvaraju et al., 2017) is computed at the last two-dimensional
    convolution; integrated gradients (Sundararajan et al., 2017) in 32 steps from
    a black picture of value 0.  Both are computed by captum.  Writes
    ``pictures/explanations-DATASET-SPLIT.png`` with the first samples of each
    evaluated split.

    Parameters
    ----------
    input
        The feature that holds pictures ``(n, channels, rows, columns)``.
    output
        The output that holds logits of classes ``(n, classes)``.
    count
        How many samples to draw.
    """

    requires = ("captum",)
    install = "nnpipe[explanations]"
    draws = True

    def __init__(self, input: str, output: str, count: int = 6) -> None:
        check_call(Explanations, locals())
        self.input = input
        self.output = output
        self.count = count

    def on_evaluate_batch(
        self, fit: Fit, dataset: str, split: str, batch: dict[str, Any], outputs: dict[str, Any]
    ) -> None:
        """Raise :class:`ConfigError` at the first evaluation if the feature does not exist."""
        if self.output in outputs and self.input not in batch:
            raise ConfigError(f"Explanations: a batch has no {self.input!r}; it has {', '.join(batch)}")

    def on_fit_end(self, fit: Fit) -> None:
        """Explain and draw the first samples of each split."""
        fit.model.eval()
        for dataset, parts in fit.datasets.items():
            for split, sequence in parts.items():
                # Read again, so that a run that was killed after its last evaluation draws them, too.
                first = None if split in fit.options.train_splits else first_batch(sequence, 0)
                if first is None or self.input not in first:
                    continue
                batch = tensors_of({n: v[: self.count] for n, v in first.items() if hasattr(v, "dtype")}, fit.device)
                fit.dataset = dataset
                found = explain(fit.model, batch, self.input, self.output)
                if found is not None:
                    self._draw(fit, f"{dataset}/{split}", batch, *found)

    def _draw(self, fit: Fit, key: str, batch: dict[str, Any], said: Any, maps: Any, gradients: Any) -> None:
        pictures = [as_image(picture) for picture in batch[self.input].cpu().numpy()]
        shown = [place for place, picture in enumerate(pictures) if picture is not None]
        if not shown:
            return
        picture = new_figure(1.6 * len(shown), 5.2)
        grid = picture.subplots(3, len(shown), squeeze=False)
        for axes in grid.ravel():
            axes.set_axis_off()
        for column, place in enumerate(shown):
            image: Any = pictures[place]
            colours = "gray" if image.ndim == 2 else None
            ids = np.asarray(batch["sample_id"])
            grid[0, column].imshow(image, cmap=colours)
            grid[0, column].set_title(f"id {ids[place]}\nsaid {said[place]}", fontsize=8)
            if maps is not None:
                grid[1, column].imshow(image, cmap=colours)
                grid[1, column].imshow(maps[place], cmap="inferno", alpha=0.6)
                grid[1, column].set_title("Grad-CAM", fontsize=8)
            limit = float(np.abs(gradients[place]).max()) or 1.0
            grid[2, column].imshow(gradients[place], cmap="RdBu_r", vmin=-limit, vmax=limit)
            grid[2, column].set_title("integrated gradients:\nred for, blue against", fontsize=6)
        save_figure(fit, file_name("explanations", *key.split("/")), picture)


def explain(model: Any, batch: dict[str, Any], input: str, output: str) -> tuple[Any, Any, Any] | None:
    """Return predicted classes ``(n,)``, and Grad-CAM and integrated gradients ``(n, rows, columns)`` for them.

    Integrated gradients are summed over channels.  Grad-CAM is None if the model
    has no two-dimensional convolution.  The result is None if the model lacks the output.
    """
    import torch
    from captum.attr import IntegratedGradients, LayerAttribution, LayerGradCam

    pictures = batch[input]

    def logits(values: Any) -> Any:
        repeats = len(values) // len(pictures)  # captum gives all steps as one batch
        others = {n: v.repeat(repeats, *[1] * (v.dim() - 1)) for n, v in batch.items() if n != input}
        found = model(others | {input: values})
        return (found[output] if isinstance(found, dict) else found).output

    with torch.enable_grad():
        with torch.no_grad():
            given = model(batch)
            if isinstance(given, dict) and output not in given:
                return None
            said = logits(pictures).argmax(1)
        gradients = IntegratedGradients(logits).attribute(pictures, target=said, n_steps=32).sum(1)
        layers = [layer for layer in model.modules() if isinstance(layer, torch.nn.Conv2d)]
        maps = None
        if layers:
            found = LayerGradCam(logits, layers[-1]).attribute(pictures, target=said, relu_attributions=True)
            maps = LayerAttribution.interpolate(found, tuple(pictures.shape[2:]), "bilinear")[:, 0]
            maps = maps.detach().cpu().numpy()
    return said.cpu().numpy(), maps, gradients.detach().cpu().numpy()
