"""The base class of all outputs."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError
from nnpipe.core.evaluation import Evaluation
from nnpipe.core.task import get_task
from nnpipe.core.tensors import DatasetSpec

Finish = Literal["mean", "root"]


@dataclass(frozen=True, eq=False)
class Metric:
    """Each sample's contribution to a metric that is one sum divided by another.

    A mean divides the values by the samples' weights, a recall the hits by the
    members of the class, and a Dice score twice the intersection by the sum of
    both areas.

    Attributes
    ----------
    numerator
        Tensor ``(n, ...)``.  Further axes are for classes, for example; the metric is
        then the mean over those whose denominator is not 0.
    denominator
        Tensor of the same shape; ``None`` stands for ones.
    finish
        ``"root"`` takes the square root of the quotient, as a root mean square needs.
    """

    numerator: Any
    denominator: Any = None
    finish: Finish = "mean"

    def __post_init__(self) -> None:
        if self.finish not in ("mean", "root"):  # quick, since each step makes some
            check_call(Metric, vars(self))


def compute_figure(
    numerator: npt.NDArray[np.float64], denominator: npt.NDArray[np.float64], finish: Finish
) -> float:
    """Return the metric that follows from two sums over samples; NaN if nothing was counted."""
    above, below = np.broadcast_arrays(
        np.asarray(numerator, np.float64), np.asarray(denominator, np.float64)
    )
    counted = below != 0
    if not counted.any():
        return float("nan")
    mean = float(np.mean(above[counted] / below[counted]))
    return float(np.sqrt(mean)) if finish == "root" else mean


@dataclass(eq=False)
class Output(ABC):
    """One output of a model for one batch, with everything needed to compute losses and metrics.

    A model's ``forward(batch)`` returns a dictionary of outputs by name; the
    trainer minimises the sum of their losses, each multiplied by its ``scale``.

    The constructor only stores its arguments, so that ``torch.compile`` can trace
    it; losses and metrics are computed on demand.

    Parameters
    ----------
    output
        Tensor ``(n, ...)``: the model's result.
    target
        Tensor ``(n, ...)``: the expected result; None if there is none.
    weights
        Tensor ``(n,)``: the weight of each sample in the loss and in every metric;
        None gives all samples the weight 1.  The trainer minimises
        ``sum(weights * losses) / n``, so a sample of weight 2 always contributes twice
        as much to the gradient, whatever the other weights are.
    sample_id
        Tensor or array ``(n,)``; if None, the trainer sets that of the batch.
    scale
        The factor of this output's loss in the sum of losses.
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
        """Return the loss of each sample: a tensor ``(n,)``."""

    def loss(self) -> Any:
        """Return the weighted mean of the losses times ``scale``: the scalar tensor that the
        trainer minimises.
        """
        mean = compute_mean_loss(
            self.losses if self.weights is None else self.losses * self.weights
        )
        return mean if self.scale == 1.0 else mean * self.scale

    def loss_metric(self) -> Metric:
        """Return the loss as a metric: its weighted mean over samples, without ``scale``."""
        losses = self.losses.detach()
        return (
            Metric(losses) if self.weights is None else Metric(losses * self.weights, self.weights)
        )

    def metrics(self) -> dict[str, Metric]:
        """Return metrics by name, without the loss; the trainer calls this with gradients
        disabled.
        """
        return {}

    def predictions(self) -> Any:
        """Return the predictions: classes, values or masks; by default the output itself,
        detached.
        """
        return self.output.detach()

    def to_evaluations(self) -> list[Evaluation]:
        """Return what the metrics of a task need of this batch, one for each label; empty if it
        belongs to no task.
        """
        return []

    def get_metric_inputs(self) -> tuple[Any, Any]:
        """Return what objects as of torchmetrics are updated with; by default the output, detached,
        and the target.

        Outputs of classes give probabilities: given logits, torchmetrics guesses batch by batch
        whether they are, by whether all lie between 0 and 1.
        """
        return self.output.detach(), self.target

    def make_metric(self, numerator: Any, denominator: Any = None) -> Metric:
        """Return a metric of per-sample tensors ``(n, ...)``, with each sample multiplied by its
        weight.
        """
        if self.weights is None:
            return Metric(numerator, denominator)
        weights = self.weights.reshape(-1, *[1] * (numerator.dim() - 1))
        return Metric(
            numerator * weights,
            weights.expand_as(numerator) if denominator is None else denominator * weights,
        )


def compute_mean_loss(losses: Any) -> Any:
    """Return the mean of a tensor ``(n,)``, as a scalar tensor whose gradients are those of
    ``losses.mean()``.

    On the CPU, means of a few numbers and their gradients are slow; a dot product takes half the
    time.
    """
    import torch

    if torch.compiler.is_compiling() or type(losses) is not torch.Tensor or not losses.is_cpu:
        return losses.mean()
    shape, dtype = losses.shape, losses.dtype
    if (
        len(shape) != 1
        or not shape[0]
        or (dtype is not torch.float32 and dtype is not torch.float64)
    ):
        return losses.mean()
    return torch.dot(losses, _make_shares(shape[0], dtype))


@functools.lru_cache(maxsize=16)
def _make_shares(size: int, dtype: Any) -> Any:
    """Return a tensor ``(size,)`` whose elements are 1 / size; nobody may write into it."""
    import torch

    with torch.inference_mode(False):  # usable for gradients, whoever asks first
        return torch.ones(size, dtype=dtype, device="cpu") / size


def to_single_precision(tensor: Any) -> Any:
    """Return a half-precision tensor in single precision, in which losses are computed; others
    unchanged.
    """
    import torch

    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def require_same_shape(name: str, output: Any, target: Any) -> None:
    """Raise :class:`ConfigError` unless two tensors have equal shapes: broadcasting would hide a
    mistake.
    """
    if output.shape != target.shape:
        raise ConfigError(
            f"{name}: the output is {tuple(output.shape)} and the target {tuple(target.shape)}"
        )


def compute_sample_means(values: Any) -> Any:
    """Return the means ``(n,)`` of a tensor ``(n, ...)`` over all axes but the first."""
    return values if values.dim() == 1 else values.flatten(1).mean(1)


def build_evaluation(
    task: str, predictions: Any, truth: Any, classes: int = 0, *, target: str, predicted: str
) -> Evaluation:
    """Return the evaluation of a batch by a task; tensors become arrays.

    Parameters
    ----------
    task
        The name of the task.
    predictions, truth
        Tensors ``(n, ...)``.
    classes
        Number of classes.
    target, predicted
        What the task calls the two tensors.
    """
    spec = DatasetSpec(task, (), (), tuple(map(str, range(classes))))
    found = {predicted: to_single_precision(predictions.detach()).cpu().numpy()}
    return get_task(task).keeping_all().evaluate(found, {target: truth.cpu().numpy()}, spec)
