"""Explanations of a classifier's predictions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, get_args

import numpy as np

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError
from nnpipe.training._batches import tensors_of
from nnpipe.training.callbacks._explanation_methods import (
    Method,
    grad_cam,
    gradient,
    guided_backpropagation,
    integrated_gradients,
    meaningful_perturbation,
)
from nnpipe.training.callbacks._sample_access import as_image, called, first_batch
from nnpipe.training.callbacks.writing_callback import WritingCallback, new_figure, save_figure
from nnpipe.training.run_folder import file_name

if TYPE_CHECKING:
    from nnpipe.training.fit import Fit

_COLOURS = {"grad-cam": "inferno", "meaningful-perturbation": "inferno"}
"""The colours of maps of what is not negative, which are laid over the picture."""

_TITLES = {
    "grad-cam": "Grad-CAM", "gradient": "gradient:\nred for, blue against",
    "guided-backpropagation": "guided back-propagation:\nred for, blue against",
    "integrated-gradients": "integrated gradients:\nred for, blue against",
    "meaningful-perturbation": "meaningful perturbation:\nwhat the class needs",
}  # fmt: skip


class Explanations(WritingCallback):
    """Draw, at the end, from which pixels of samples the predicted class follows, by several methods.

    Grad-CAM (Selvaraju et al., 2017) is computed at the last two-dimensional
    convolution; integrated gradients (Sundararajan et al., 2017) in 32 steps from
    a black picture of value 0; the gradient itself (Simonyan et al., 2014), and without what rectifiers would send
    back negatively as guided back-propagation (Springenberg et al., 2015); meaningful perturbation (Fong and Vedaldi,
    2017) learns what has to be blurred in 150 steps.  Writes ``pictures/explanations-DATASET-SPLIT.png`` with the first
    samples of each evaluated split.

    Parameters
    ----------
    input
        The feature that holds pictures ``(n, channels, rows, columns)``.
    output
        The output that holds logits of classes ``(n, classes)``.
    count
        How many samples to draw.
    methods
        Some of ``grad-cam``, ``gradient``, ``guided-backpropagation``, ``integrated-gradients`` and
        ``meaningful-perturbation``; all by default.
    classes
        Names of the classes; by default their numbers.
    """

    draws = True
    formerly: ClassVar[tuple[str, ...]] = ("CallbackExplainDecision",)

    def __init__(
        self,
        input: str,
        output: str,
        count: int = 6,
        methods: Sequence[Method] = get_args(Method),
        classes: Sequence[str] = (),
    ) -> None:
        check_call(Explanations, locals())
        self.input = input
        self.output = output
        self.count = count
        self.methods = tuple(methods)
        self.classes = tuple(classes)

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
                found = explain(fit.model, batch, self.input, self.output, self.methods)
                if found is not None:
                    self._draw(fit, f"{dataset}/{split}", batch, *found)

    def _draw(self, fit: Fit, key: str, batch: dict[str, Any], said: Any, maps: Mapping[str, Any]) -> None:
        pictures = [as_image(picture) for picture in batch[self.input].cpu().numpy()]
        shown = [place for place, picture in enumerate(pictures) if picture is not None]
        if not shown:
            return
        picture = new_figure(1.7 * len(shown), 1.8 * (1 + len(maps)))
        grid = picture.subplots(1 + len(maps), len(shown), squeeze=False)
        for axes in grid.ravel():
            axes.set_axis_off()
        ids = np.asarray(batch["sample_id"])
        for column, place in enumerate(shown):
            image: Any = pictures[place]
            colours = "gray" if image.ndim == 2 else None
            grid[0, column].imshow(image, cmap=colours)
            grid[0, column].set_title(f"id {ids[place]}\n{called('predicted', said[place], self.classes)}", fontsize=8)
            for axes, (name, found) in zip(grid[1:, column], maps.items(), strict=True):
                axes.set_title(_TITLES[name], fontsize=6)
                if name in _COLOURS:
                    axes.imshow(image, cmap=colours)
                    axes.imshow(found[place], cmap=_COLOURS[name], alpha=0.6)
                else:
                    limit = float(np.abs(found[place]).max()) or 1.0
                    axes.imshow(found[place], cmap="RdBu_r", vmin=-limit, vmax=limit)
        save_figure(fit, file_name("explanations", *key.split("/")), picture)


def explain(
    model: Any, batch: dict[str, Any], input: str, output: str, methods: Sequence[str] = get_args(Method)
) -> tuple[Any, dict[str, Any]] | None:
    """Return predicted classes ``(n,)``, and by method a map ``(n, rows, columns)`` for each of them.

    Signed maps are summed over channels.  ``grad-cam`` is left out if the model has no two-dimensional convolution.
    The result is None if the model lacks the output.
    """
    import torch

    def logits(pictures: Any) -> Any:
        found = model(batch | {input: pictures})
        return (found[output] if isinstance(found, dict) else found).output

    if not batch[input].is_floating_point():  # only real numbers have gradients
        batch = batch | {input: batch[input].float()}
    with torch.no_grad():
        given = model(batch)
        if isinstance(given, dict) and output not in given:
            return None
        said = logits(batch[input]).argmax(1)
    layers = [layer for layer in model.modules() if isinstance(layer, torch.nn.Conv2d)]
    maps = {}
    for name in methods:
        if name == "grad-cam":
            if not layers:
                continue
            found = grad_cam(logits, batch[input], said, layers[-1])
        else:
            found = _METHODS[name](logits, batch[input], said)
        maps[name] = found.detach().float().cpu().numpy()
    return said.cpu().numpy(), maps


_METHODS = {
    "gradient": gradient, "guided-backpropagation": guided_backpropagation,
    "integrated-gradients": integrated_gradients, "meaningful-perturbation": meaningful_perturbation,
}  # fmt: skip
