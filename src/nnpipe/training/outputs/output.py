"""The base of all outputs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError
from nnpipe.training.outputs.metric import Metric


@dataclass(eq=False)
class Output(ABC):
    """One output of a model on one batch, with all that is needed to judge it.

    A model's ``forward(batch)`` gives a dictionary of outputs by name; the
    trainer minimises the sum of their losses, each times its ``scale``.

    The constructor only stores, so that ``torch.compile`` can look through it;
    losses and metrics are computed when they are asked for.

    Parameters
    ----------
    output
        Tensor ``(n, ...)``, what the model gives.
    target
        Tensor ``(n, ...)``, what it should give; None where there is none.
    weights
        Tensor ``(n,)``, how much each sample counts, in the loss and in every
        metric; None counts all alike.  The loss that is minimised is
        ``sum(weights * losses) / n``: what a sample of weight 2 adds to the
        gradient is twice what it would add, whoever its neighbours are.
    sample_id
        Tensor or array ``(n,)``; the trainer takes the batch's own where it is None.
    scale
        What the loss is multiplied with before the losses are added up.
    """

    output: Any
    target: Any = None
    weights: Any = field(default=None, kw_only=True)
    sample_id: Any = field(default=None, kw_only=True)
    scale: float = field(default=1.0, kw_only=True)
    _kept: Any = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        check_call(Output, vars(self))

    @property
    def losses(self) -> Any:
        """The loss of each sample: tensor ``(n,)``, unweighted."""
        if self._kept is None:
            self._kept = self.compute_losses()
        return self._kept

    @abstractmethod
    def compute_losses(self) -> Any:
        """Compute the loss of each sample: a tensor ``(n,)``."""

    def loss(self) -> Any:
        """Return the weighted mean of the losses, times ``scale``: the scalar tensor that is minimised."""
        losses = self.losses
        mean = losses.mean() if self.weights is None else (losses * self.weights).mean()
        return mean if self.scale == 1.0 else mean * self.scale

    def loss_metric(self) -> Metric:
        """Return the loss as a metric: its mean over samples, each counting by its weight, without ``scale``."""
        losses = self.losses.detach()
        return Metric(losses) if self.weights is None else Metric(losses * self.weights, self.weights)

    def metrics(self) -> dict[str, Metric]:
        """Return metrics by name, without the loss; the trainer calls it without gradients."""
        return {}

    def predictions(self) -> Any:
        """Return what the output means: a class, a value, a mask; by default the tensor itself, detached."""
        return self.output.detach()

    def weighed(self, numerator: Any, denominator: Any = None) -> Metric:
        """Make a metric of per-sample tensors ``(n, ...)``, counting each sample by its weight."""
        if self.weights is None:
            return Metric(numerator, denominator)
        weights = self.weights.reshape(-1, *[1] * (numerator.dim() - 1))
        return Metric(
            numerator * weights, weights.expand_as(numerator) if denominator is None else denominator * weights
        )


def real(tensor: Any) -> Any:
    """Return a tensor in single precision if it is in half: losses are not computed in less."""
    import torch

    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def same_shape(name: str, output: Any, target: Any) -> None:
    """Raise :class:`ConfigError` unless two tensors have one shape: broadcasting would hide a mistake."""
    if output.shape != target.shape:
        raise ConfigError(f"{name}: the output is {tuple(output.shape)} and the target {tuple(target.shape)}")


def per_sample(values: Any) -> Any:
    """Return the means of ``(n, ...)`` over all axes but the first."""
    return values if values.dim() == 1 else values.flatten(1).mean(1)
