"""The running statistics of batch normalisations, for weights that no training has moved them along with."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def batch_normalisations(model: Any) -> list[Any]:
    """Return the batch normalisations of a ``torch.nn.Module`` that have running statistics."""
    import torch

    return [
        layer for layer in model.modules()
        if isinstance(layer, torch.nn.modules.batchnorm._BatchNorm) and layer.track_running_stats
    ]  # fmt: skip


def estimate_statistics(model: Any, batches: Iterable[Any]) -> None:
    """Replace the running statistics of a model's batch normalisations by those of batches with its present weights.

    The statistics are the means over all batches (as ``torch.optim.swa_utils.update_bn`` takes them).  Other layers are
    in inference mode, and so is the model afterwards.
    """
    import torch

    model.eval()
    layers = batch_normalisations(model)
    if not layers:
        return
    momenta = [layer.momentum for layer in layers]
    for layer in layers:
        layer.reset_running_stats()
        layer.momentum = None  # the mean over all
        layer.train()
    with torch.no_grad():
        for batch in batches:
            model(batch)
    for layer, momentum in zip(layers, momenta, strict=True):
        layer.momentum = momentum
    model.eval()
