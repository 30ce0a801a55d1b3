"""Layers that compute their outputs again for gradients, rather than keep them: less memory, more time.

Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016; PyTorch calls it activation checkpointing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from fnmatch import fnmatchcase
from types import MethodType
from typing import Any

from nnpipe.core.errors import ConfigError
from nnpipe.core.naming import nearest
from nnpipe.training.batch_statistics import batch_normalisations


@contextmanager
def recomputing(model: Any, names: Sequence[str]) -> Iterator[None]:
    """Let the layers of these names compute their outputs again in each backward pass, until the block ends.

    Gradients, random numbers and the statistics of batch normalisations are the same as without.

    Raises
    ------
    ConfigError
        If no layer has one of the names.
    """
    layers = dict(model.named_modules())
    chosen = {}
    for pattern in names:
        found = {name: layer for name, layer in layers.items() if name and fnmatchcase(name, pattern)}
        if not found:
            raise ConfigError(f"recompute: {type(model).__name__} has no layer {pattern!r}{nearest(pattern, layers)}")
        chosen.update(found)
    for layer in chosen.values():
        # Bound to the layer, so that a copy of the layer has a forward of its own.
        layer.forward = MethodType(_forward, layer)
    try:
        yield
    finally:
        for layer in chosen.values():
            del layer.forward


def _forward(self: Any, *arguments: Any, **named: Any) -> Any:
    import torch
    from torch.utils.checkpoint import checkpoint

    own = type(self).forward
    if not (self.training and torch.is_grad_enabled()):
        return own(self, *arguments, **named)

    def contexts() -> tuple[Any, Any]:
        return nullcontext(), _same_statistics(self)

    return checkpoint(own, self, *arguments, use_reentrant=False, context_fn=contexts, **named)


@contextmanager
def _same_statistics(layer: Any) -> Iterator[None]:
    """Keep batch normalisations from counting a batch twice."""
    found = batch_normalisations(layer)
    before = [(part.running_mean, part.running_var, part.num_batches_tracked) for part in found]
    for part, (mean, variance, count) in zip(found, before, strict=True):
        part.running_mean, part.running_var, part.num_batches_tracked = mean.clone(), variance.clone(), count.clone()
    try:
        yield
    finally:
        for part, kept in zip(found, before, strict=True):
            part.running_mean, part.running_var, part.num_batches_tracked = kept
