"""Regression: outputs that are numbers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError
from nnpipe.core.evaluation import Evaluation
from nnpipe.training.outputs.output import (
    Metric,
    Output,
    build_evaluation,
    compute_sample_means,
    require_same_shape,
    to_single_precision,
)

Distance = Literal["squared", "absolute", "huber"]


@dataclass(eq=False)
class RegressionOutput(Output):
    """Values ``(n, ...)`` with targets of the same shape.

    Parameters
    ----------
    distance
        The distance to minimise, averaged over a sample's values: ``"squared"``,
        ``"absolute"``, or ``"huber"`` (squared below 1, absolute above; Huber, 1964).
    """

    distance: Distance = field(default="squared", kw_only=True)

    def __post_init__(self) -> None:
        check_call(RegressionOutput, vars(self))

    def compute_losses(self) -> Any:
        """Return the distances ``(n,)``."""
        import torch.nn.functional as F

        require_same_shape("RegressionOutput", self.output, self.target)
        functions = {"squared": F.mse_loss, "absolute": F.l1_loss, "huber": F.huber_loss}
        if self.distance not in functions:
            raise ConfigError(
                f"there is no distance {self.distance!r}; there are {', '.join(functions)}"
            )
        output = to_single_precision(self.output)
        return compute_sample_means(
            functions[self.distance](output, self.target.to(output.dtype), reduction="none")
        )

    def to_evaluations(self) -> list[Evaluation]:
        """Return the evaluation of the task ``regression``."""
        return [
            build_evaluation(
                "regression", self.output, self.target, target="value", predicted="value"
            )
        ]

    def metrics(self) -> dict[str, Metric]:
        """Return ``mae``, the mean absolute error, and ``rmse``, the root mean squared error."""
        error = to_single_precision(self.output.detach()) - self.target
        square = self.make_metric(compute_sample_means(error.square()))
        return {
            "mae": self.make_metric(compute_sample_means(error.abs())),
            "rmse": Metric(square.numerator, square.denominator, "root"),
        }


def total_variation(images: Any, power: float = 1.0) -> Any:
    """Return how much neighbouring values differ, ``(n,)``.

    It is the sum over axes of the mean of ``|difference| ** power`` (Rudin, Osher and Fatemi,
    "Nonlinear Total Variation Based Noise Removal Algorithms", 1992, with differences along each
    axis by itself).

    Parameters
    ----------
    images
        Tensor ``(n, channels, ...)`` of one, two or three axes behind the channels.
    power
        1 keeps edges, 2 smooths them.
    """
    check_call(total_variation, {"power": power})
    found: Any = 0
    for axis in range(2, images.dim()):
        steps = images.diff(dim=axis).abs()
        found = found + compute_sample_means(steps if power == 1.0 else steps**power)
    return found


@dataclass(eq=False)
class TotalVariationOutput(Output):
    """Images ``(n, channels, ...)`` whose :func:`total_variation` is the loss, to be added to
    others by ``scale``.

    Parameters
    ----------
    power
        As in :func:`total_variation`.
    """

    power: float = field(default=1.0, kw_only=True)

    def __post_init__(self) -> None:
        check_call(TotalVariationOutput, vars(self))

    def compute_losses(self) -> Any:
        """Return the total variations ``(n,)``."""
        return total_variation(to_single_precision(self.output), self.power)
