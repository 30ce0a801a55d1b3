"""Which pixels a classifier's decision follows from, by five methods.

Each takes ``logits``, a function from pictures ``(n, channels, rows, columns)`` to logits ``(n, classes)``, the
pictures and the classes ``(n,)`` to explain, and returns a map ``(n, rows, columns)``.  Only gradients
of pictures and masks are computed, so that a model's own gradients stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import numpy as np

Method = Literal["grad-cam", "gradient", "guided-backpropagation", "integrated-gradients", "meaningful-perturbation"]
Logits: TypeAlias = "Callable[[Any], Any]"

_STEPS = 32
"""Points of integrated gradients."""

_ITERATIONS, _AREA, _VARIATION = 150, 3.0, 3.0
"""Steps of meaningful perturbation, and what the area and the total variation of what is blurred cost."""


def gradient(logits: Logits, pictures: Any, classes: Any) -> Any:
    """Return the gradient of the logit, summed over channels (Simonyan et al., 2014)."""
    return _gradient(logits, pictures, classes).sum(1)


def guided_backpropagation(logits: Logits, pictures: Any, classes: Any) -> Any:
    """Return the gradient without what flows back negatively through rectifiers (Springenberg et al., 2015).

    Rectifiers are seen as layers and as functions.
    """
    with _guided():
        return _gradient(logits, pictures, classes).sum(1)


def integrated_gradients(logits: Logits, pictures: Any, classes: Any) -> Any:
    """Return the gradient's mean on the way from black, times the picture (Sundararajan et al., 2017).

    Over all pixels it adds up to how much the logit differs from that of a picture of value 0.
    """
    points, weights = np.polynomial.legendre.leggauss(_STEPS)
    total = 0
    for point, weight in zip((points + 1) / 2, weights / 2, strict=True):
        total = total + _gradient(logits, pictures * float(point), classes) * float(weight)
    return (total * pictures).sum(1)


def grad_cam(logits: Logits, pictures: Any, classes: Any, layer: Any) -> Any:
    """Return a convolution's channels, each times its mean gradient, where positive (Selvaraju et al., 2017)."""
    import torch

    kept: list[Any] = []
    handle = layer.register_forward_hook(lambda module, given, found: kept.append(found))
    try:
        # The picture has a gradient, so that there is one even if all weights are frozen.
        with torch.enable_grad():
            chosen = _chosen(logits(pictures.detach().requires_grad_()), classes)
    finally:
        handle.remove()
    (slopes,) = torch.autograd.grad(chosen, kept[-1])
    maps = (kept[-1] * slopes.mean((2, 3), keepdim=True)).sum(1, keepdim=True).relu()
    return torch.nn.functional.interpolate(maps.detach(), tuple(pictures.shape[2:]), mode="bilinear")[:, 0]


def meaningful_perturbation(logits: Logits, pictures: Any, classes: Any) -> Any:
    """Return what has to be blurred, from 0 to 1, so that the class loses its probability (Fong and Vedaldi, 2017).

    A mask of a quarter of the picture's resolution is learned so that little is blurred, in coherent regions.
    """
    import torch
    from torch.nn.functional import interpolate, softplus

    size = tuple(pictures.shape[2:])
    small = tuple(min(extent, max(4, extent // 4)) for extent in size)
    blurred = _blurred(pictures, max(1.0, min(size) / 4))
    mask = torch.full((len(pictures), 1, *small), 1.0, device=pictures.device, dtype=pictures.dtype).requires_grad_()
    optimiser = torch.optim.Adam([mask], lr=0.1)
    with torch.enable_grad():
        for _ in range(_ITERATIONS):
            kept = interpolate(mask.sigmoid(), size, mode="bilinear", align_corners=False)
            values = logits(pictures * kept + blurred * (1 - kept))
            others = values.scatter(1, classes[:, None], -torch.inf).logsumexp(1)
            # -log(1 - p) instead of the probability p, whose gradient vanishes where the model is sure.
            sure = softplus(values.gather(1, classes[:, None])[:, 0] - others).sum()
            variation = (kept.diff(dim=2) ** 2).mean() + (kept.diff(dim=3) ** 2).mean()
            loss = sure + len(pictures) * (_AREA * (1 - kept).mean() + _VARIATION * variation)
            (mask.grad,) = torch.autograd.grad(loss, mask)
            optimiser.step()
    return 1 - interpolate(mask.detach().sigmoid(), size, mode="bilinear", align_corners=False)[:, 0]


def _gradient(logits: Logits, pictures: Any, classes: Any) -> Any:
    import torch

    with torch.enable_grad():
        given = pictures.detach().requires_grad_()
        (slopes,) = torch.autograd.grad(_chosen(logits(given), classes), given)
    return slopes


def _chosen(values: Any, classes: Any) -> Any:
    return values.gather(1, classes[:, None]).sum()


def _blurred(pictures: Any, deviation: float) -> Any:
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


def _guided() -> Any:
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
        torch.relu, torch.relu_, torch.Tensor.relu, torch.Tensor.relu_,
        torch.nn.functional.relu, torch.nn.functional.relu_,
    }  # fmt: skip

    class Guided(TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(self, function: Any, types: Any, arguments: Any = (), keywords: Any = None) -> Any:
            if function in rectifiers:
                return GuidedReLU.apply(arguments[0] if arguments else (keywords or {})["input"])
            return function(*arguments, **(keywords or {}))

    return Guided()
