"""Explanations of a classifier's predictions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias, get_args

import numpy as np

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError
from nnpipe.training._batches import to_tensors
from nnpipe.training.callbacks.callback import WritingCallback, create_figure, save_figure
from nnpipe.training.callbacks.samples import as_image, format_label, read_first_batch
from nnpipe.training.run_folder import make_file_name

if TYPE_CHECKING:
    from nnpipe.training.fit import TrainingRun


# Which pixels a classifier's decision follows from, by five methods.
#
# Each takes ``logits``, a function from pictures ``(n, channels, rows, columns)`` to logits ``(n,
# classes)``, the pictures and the classes ``(n,)`` to explain, and returns a map ``(n, rows,
# columns)``.  Only gradients of pictures and masks are computed, so that a model's own gradients
# stay as they are.

Method = Literal[
    "grad-cam",
    "gradient",
    "guided-backpropagation",
    "integrated-gradients",
    "meaningful-perturbation",
]
Logits: TypeAlias = "Callable[[Any], Any]"

_STEPS = 32
"""Points of integrated gradients."""

_ITERATIONS, _AREA, _VARIATION = 150, 3.0, 3.0
"""Steps of meaningful perturbation, and what the area and the total variation of what is blurred
cost.
"""


def compute_gradient_map(logits: Logits, pictures: Any, classes: Any) -> Any:
    """Return the gradient of the logit, summed over channels (Simonyan et al., 2014)."""
    return _compute_gradient(logits, pictures, classes).sum(1)


def compute_guided_backpropagation(logits: Logits, pictures: Any, classes: Any) -> Any:
    """Return the gradient without what flows back negatively through rectifiers (Springenberg et
    al., 2015).

    Rectifiers are seen as layers and as functions.
    """
    with _make_guided_context():
        return _compute_gradient(logits, pictures, classes).sum(1)


def compute_integrated_gradients(logits: Logits, pictures: Any, classes: Any) -> Any:
    """Return the gradient's mean on the way from black, times the picture (Sundararajan et al.,
    2017).

    Over all pixels it adds up to how much the logit differs from that of a picture of value 0.
    """
    points, weights = np.polynomial.legendre.leggauss(_STEPS)
    total = 0
    for point, weight in zip((points + 1) / 2, weights / 2, strict=True):
        total = total + _compute_gradient(logits, pictures * float(point), classes) * float(weight)
    return (total * pictures).sum(1)


def compute_grad_cam(logits: Logits, pictures: Any, classes: Any, layer: Any) -> Any:
    """Return a convolution's channels, each times its mean gradient, where positive (Selvaraju
    et al., 2017).
    """
    import torch

    kept: list[Any] = []
    handle = layer.register_forward_hook(lambda module, given, found: kept.append(found))
    try:
        # The picture has a gradient, so that there is one even if all weights are frozen.
        with torch.enable_grad():
            chosen = _sum_class_logits(logits(pictures.detach().requires_grad_()), classes)
    finally:
        handle.remove()
    (slopes,) = torch.autograd.grad(chosen, kept[-1])
    maps = (kept[-1] * slopes.mean((2, 3), keepdim=True)).sum(1, keepdim=True).relu()
    return torch.nn.functional.interpolate(
        maps.detach(), tuple(pictures.shape[2:]), mode="bilinear"
    )[:, 0]


def compute_meaningful_perturbation(logits: Logits, pictures: Any, classes: Any) -> Any:
    """Return what has to be blurred, from 0 to 1, so that the class loses its probability (Fong and
    Vedaldi, 2017).

    A mask of a quarter of the picture's resolution is learned so that little is blurred, in
    coherent regions.
    """
    import torch
    from torch.nn.functional import interpolate, softplus

    size = tuple(pictures.shape[2:])
    small = tuple(min(extent, max(4, extent // 4)) for extent in size)
    blurred = _blur_pictures(pictures, max(1.0, min(size) / 4))
    mask = torch.full(
        (len(pictures), 1, *small), 1.0, device=pictures.device, dtype=pictures.dtype
    ).requires_grad_()
    optimiser = torch.optim.Adam([mask], lr=0.1)
    with torch.enable_grad():
        for _ in range(_ITERATIONS):
            kept = interpolate(mask.sigmoid(), size, mode="bilinear", align_corners=False)
            values = logits(pictures * kept + blurred * (1 - kept))
            others = values.scatter(1, classes[:, None], -torch.inf).logsumexp(1)
            # -log(1 - p) instead of the probability p, whose gradient vanishes where the model is
            # sure.
            sure = softplus(values.gather(1, classes[:, None])[:, 0] - others).sum()
            variation = (kept.diff(dim=2) ** 2).mean() + (kept.diff(dim=3) ** 2).mean()
            loss = sure + len(pictures) * (_AREA * (1 - kept).mean() + _VARIATION * variation)
            (mask.grad,) = torch.autograd.grad(loss, mask)
            optimiser.step()
    return (
        1 - interpolate(mask.detach().sigmoid(), size, mode="bilinear", align_corners=False)[:, 0]
    )


def _compute_gradient(logits: Logits, pictures: Any, classes: Any) -> Any:
    import torch

    with torch.enable_grad():
        given = pictures.detach().requires_grad_()
        (slopes,) = torch.autograd.grad(_sum_class_logits(logits(given), classes), given)
    return slopes


def _sum_class_logits(values: Any, classes: Any) -> Any:
    return values.gather(1, classes[:, None]).sum()


def _blur_pictures(pictures: Any, deviation: float) -> Any:
    """Return pictures after a Gaussian filter; edges are repeated."""
    import torch
    from torch.nn.functional import conv2d, pad

    radius = int(np.ceil(2 * deviation))
    line = torch.arange(-radius, radius + 1, device=pictures.device, dtype=pictures.dtype)
    line = (-(line**2) / (2 * deviation**2)).exp()
    line = line / line.sum()
    flat = pictures.reshape(-1, 1, *pictures.shape[2:])
    flat = conv2d(pad(flat, (0, 0, radius, radius), mode="replicate"), line.reshape(1, 1, -1, 1))
    flat = conv2d(pad(flat, (radius, radius, 0, 0), mode="replicate"), line.reshape(1, 1, 1, -1))
    return flat.reshape(pictures.shape)


def _make_guided_context() -> Any:
    """Return a context in which rectifiers let only positive gradients flow back."""
    import torch
    from torch.overrides import TorchFunctionMode

    class GuidedReLU(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(context: Any, given: Any) -> Any:
            context.save_for_backward(given)
            return given.clamp(min=0)

        @staticmethod
        def backward(context: Any, *slopes: Any) -> Any:
            (given,) = context.saved_tensors
            return slopes[0].clamp(min=0) * (given > 0)

    rectifiers = {
        torch.relu,
        torch.relu_,
        torch.Tensor.relu,
        torch.Tensor.relu_,
        torch.nn.functional.relu,
        torch.nn.functional.relu_,
    }

    class Guided(TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(
            self, function: Any, types: Any, arguments: Any = (), keywords: Any = None
        ) -> Any:
            if function in rectifiers:
                return GuidedReLU.apply(arguments[0] if arguments else (keywords or {})["input"])
            return function(*arguments, **(keywords or {}))

    return Guided()


_COLOURS = {"grad-cam": "inferno", "meaningful-perturbation": "inferno"}
"""The colours of maps of what is not negative, which are laid over the picture."""

_TITLES = {
    "grad-cam": "Grad-CAM",
    "gradient": "gradient:\nred for, blue against",
    "guided-backpropagation": "guided back-propagation:\nred for, blue against",
    "integrated-gradients": "integrated gradients:\nred for, blue against",
    "meaningful-perturbation": "meaningful perturbation:\nwhat the class needs",
}


class Explanations(WritingCallback):
    """Draw, at the end, from which pixels of samples the predicted class follows, by several
    methods.

    Grad-CAM (Selvaraju et al., 2017) is computed at the last two-dimensional convolution;
    integrated gradients (Sundararajan et al., 2017) in 32 steps from a black picture of value 0;
    the gradient itself (Simonyan et al., 2014), and without what rectifiers would send back
    negatively as guided back-propagation (Springenberg et al., 2015); meaningful perturbation (Fong
    and Vedaldi,
    2017) learns what has to be blurred in 150 steps.  Writes
          ``pictures/explanations-DATASET-SPLIT.png`` with the first
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
        self,
        fit: TrainingRun,
        dataset: str,
        split: str,
        batch: dict[str, Any],
        outputs: dict[str, Any],
    ) -> None:
        """Raise :class:`ConfigError` at the first evaluation if the feature does not exist."""
        if self.output in outputs and self.input not in batch:
            raise ConfigError(
                f"Explanations: a batch has no {self.input!r}; it has {', '.join(batch)}"
            )

    def on_fit_end(self, fit: TrainingRun) -> None:
        """Explain and draw the first samples of each split."""
        fit.model.eval()
        for dataset, parts in fit.datasets.items():
            for split, sequence in parts.items():
                # Read again, so that a run that was killed after its last evaluation draws them,
                # too.
                first = None if split in fit.options.train_splits else read_first_batch(sequence, 0)
                if first is None or self.input not in first:
                    continue
                batch = to_tensors(
                    {n: v[: self.count] for n, v in first.items() if hasattr(v, "dtype")},
                    fit.device,
                )
                fit.dataset = dataset
                found = explain(fit.model, batch, self.input, self.output, self.methods)
                if found is not None:
                    self._draw(fit, f"{dataset}/{split}", batch, *found)

    def _draw(
        self, fit: TrainingRun, key: str, batch: dict[str, Any], said: Any, maps: Mapping[str, Any]
    ) -> None:
        pictures = [as_image(picture) for picture in batch[self.input].cpu().numpy()]
        shown = [place for place, picture in enumerate(pictures) if picture is not None]
        if not shown:
            return
        picture = create_figure(1.7 * len(shown), 1.8 * (1 + len(maps)))
        grid = picture.subplots(1 + len(maps), len(shown), squeeze=False)
        for axes in grid.ravel():
            axes.set_axis_off()
        ids = np.asarray(batch["sample_id"])
        for column, place in enumerate(shown):
            image: Any = pictures[place]
            colours = "gray" if image.ndim == 2 else None
            grid[0, column].imshow(image, cmap=colours)
            grid[0, column].set_title(
                f"id {ids[place]}\n{format_label('predicted', said[place], self.classes)}",
                fontsize=8,
            )
            for axes, (name, found) in zip(grid[1:, column], maps.items(), strict=True):
                axes.set_title(_TITLES[name], fontsize=6)
                if name in _COLOURS:
                    axes.imshow(image, cmap=colours)
                    axes.imshow(found[place], cmap=_COLOURS[name], alpha=0.6)
                else:
                    limit = float(np.abs(found[place]).max()) or 1.0
                    axes.imshow(found[place], cmap="RdBu_r", vmin=-limit, vmax=limit)
        save_figure(fit, make_file_name("explanations", *key.split("/")), picture)


def explain(
    model: Any,
    batch: dict[str, Any],
    input: str,
    output: str,
    methods: Sequence[str] = get_args(Method),
) -> tuple[Any, dict[str, Any]] | None:
    """Return predicted classes ``(n,)``, and by method a map ``(n, rows, columns)`` for each of
    them.

    Signed maps are summed over channels.  ``grad-cam`` is left out if the model has no
    two-dimensional convolution. The result is None if the model lacks the output.
    """
    import torch

    def compute_logits(pictures: Any) -> Any:
        found = model(batch | {input: pictures})
        return (found[output] if isinstance(found, dict) else found).output

    if not batch[input].is_floating_point():  # only real numbers have gradients
        batch = batch | {input: batch[input].float()}
    with torch.no_grad():
        given = model(batch)
        if isinstance(given, dict) and output not in given:
            return None
        said = compute_logits(batch[input]).argmax(1)
    layers = [layer for layer in model.modules() if isinstance(layer, torch.nn.Conv2d)]
    maps = {}
    for name in methods:
        if name == "grad-cam":
            if not layers:
                continue
            found = compute_grad_cam(compute_logits, batch[input], said, layers[-1])
        else:
            found = _METHODS[name](compute_logits, batch[input], said)
        maps[name] = found.detach().float().cpu().numpy()
    return said.cpu().numpy(), maps


_METHODS = {
    "gradient": compute_gradient_map,
    "guided-backpropagation": compute_guided_backpropagation,
    "integrated-gradients": compute_integrated_gradients,
    "meaningful-perturbation": compute_meaningful_perturbation,
}
