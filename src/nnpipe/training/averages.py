"""Averages of a model's weights, and the statistics of batch normalisations that fit to them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from nnpipe.training.distributed import shard_like


class WeightAverage:
    """Exponential moving average of a model's weights; integer tensors and buffers are copied from
    the model.

    The decay is at most ``(1 + step) / (10 + step)``, so that the first weights
    are soon forgotten (as in TensorFlow's ``ExponentialMovingAverage``).
    """

    def __init__(self, model: Any, decay: float) -> None:
        self._decay = decay
        self._weights = {name: p for name, p in model.named_parameters() if p.is_floating_point()}
        self._shadow = {name: p.detach().clone() for name, p in self._weights.items()}

    def update(self, step: int) -> None:
        """Update the average with the weights after a step, counted from 0."""
        import torch

        decay = min(self._decay, (1 + step) / (10 + step))
        with torch.no_grad():
            torch._foreach_lerp_(
                list(self._shadow.values()), list(self._weights.values()), 1 - decay
            )

    @contextmanager
    def apply_temporarily(self) -> Iterator[None]:
        """Put the averaged weights into the model until the block ends."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    def apply_permanently(self) -> None:
        """Put the averaged weights into the model permanently."""
        import torch

        with torch.no_grad():
            for name, weight in self._weights.items():
                weight.copy_(self._shadow[name])

    def _swap(self) -> None:
        import torch

        with torch.no_grad():
            for name, weight in self._weights.items():
                kept = weight.clone()
                weight.copy_(self._shadow[name])
                self._shadow[name].copy_(kept)

    def state_dict(self) -> dict[str, Any]:
        """Return the averaged weights by name."""
        return dict(self._shadow)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        for name, value in self._shadow.items():
            value.copy_(shard_like(state[name], value))


class EpochAverage:
    """The mean of a model's weights at the ends of several epochs.

    Izmailov et al., "Averaging Weights Leads to Wider Optima and Better Generalization", 2018.
    Buffers are not averaged: the statistics of batch normalisations have to be :func:`estimated
    anew <nnpipe.training.averages.estimate_statistics>`.
    """

    def __init__(self, model: Any) -> None:
        self._weights = {name: p for name, p in model.named_parameters() if p.is_floating_point()}
        self._means: dict[str, Any] = {}
        self.count = 0

    def add(self) -> None:
        """Add the weights at the end of an epoch."""
        self.count += 1
        for name, weight in self._weights.items():
            now = _to_double(weight.detach())
            mean = self._means.get(name)
            self._means[name] = now.clone() if mean is None else mean.lerp_(now, 1 / self.count)

    def apply_permanently(self) -> None:
        """Put the mean into the model permanently."""
        import torch

        with torch.no_grad():
            for name, weight in self._weights.items():
                weight.copy_(self._means[name])

    def state_dict(self) -> dict[str, Any]:
        """Return the means, in double precision, and of how many epochs they are."""
        return {"count": self.count, "means": dict(self._means)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        self.count = state["count"]
        self._means = {
            name: shard_like(
                mean.to(_to_double(self._weights[name].detach()).device), self._weights[name]
            )
            for name, mean in state["means"].items()
        }


def _to_double(weight: Any) -> Any:
    """Return a weight in double precision; GPUs of Apple do not have it, the host has."""
    return (weight.cpu() if weight.device.type == "mps" else weight).double()


def find_batch_normalisations(model: Any) -> list[Any]:
    """Return the batch normalisations of a ``torch.nn.Module`` that have running statistics."""
    import torch

    return [
        layer
        for layer in model.modules()
        if isinstance(layer, torch.nn.modules.batchnorm._BatchNorm) and layer.track_running_stats
    ]


def estimate_statistics(model: Any, batches: Iterable[Any]) -> None:
    """Replace the running statistics of a model's batch normalisations by those of batches with its
    present weights.

    The statistics are the means over all batches (as ``torch.optim.swa_utils.update_bn`` takes
    them).  Other layers are in inference mode, and so is the model afterwards.
    """
    import torch

    model.eval()
    layers = find_batch_normalisations(model)
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
