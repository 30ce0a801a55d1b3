"""Segmentation: a class for each position."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError
from nnpipe.core.evaluation import Evaluation
from nnpipe.training.outputs.classification import compute_probability_gap, to_class_weights
from nnpipe.training.outputs.output import Metric, Output, build_evaluation, to_single_precision

SegmentationLoss = Literal["cross_entropy", "dice"]


@dataclass(eq=False)
class SegmentationOutput(Output):
    """Logits ``(n, classes, ...)`` with targets ``(n, ...)``.

    Metrics are the accuracy over positions, and the Dice score and intersection
    over union, averaged over classes; each class is computed over all samples.

    Parameters
    ----------
    criterion
        ``"cross_entropy"``, the mean over a sample's positions, or ``"dice"``,
        one minus the mean over classes of ``2 sum(p t) / sum(p + t)``
        (Milletari et al., "V-Net", 2016, with plain instead of squared sums below).
    ignore
        The target of positions to ignore.
    class_weights, focal
        Of the cross entropy, as in
        :class:`~nnpipe.training.outputs.classification.ClassificationOutput`.
    """

    criterion: SegmentationLoss = field(default="cross_entropy", kw_only=True)
    ignore: int = field(default=-100, kw_only=True)
    class_weights: Any = field(default=None, kw_only=True)
    focal: float = field(default=0.0, kw_only=True)

    def __post_init__(self) -> None:
        check_call(SegmentationOutput, vars(self))

    def compute_losses(self) -> Any:
        """Return the losses ``(n,)``."""
        import torch.nn.functional as F

        output = to_single_precision(self.output)
        counted = (self.target != self.ignore).flatten(1)
        if self.criterion == "cross_entropy":
            places = F.cross_entropy(
                output,
                self.target,
                to_class_weights(self.class_weights, output),
                reduction="none",
                ignore_index=self.ignore,
            )
            if self.focal:
                inside = self.target.where(self.target != self.ignore, 0)
                places = places * compute_probability_gap(output, inside) ** self.focal
            return places.flatten(1).sum(1) / counted.sum(1).clamp(min=1)
        if self.criterion == "dice":
            truth = _encode_one_hot(self.target, output.shape[1], counted)
            given = output.softmax(1).flatten(2) * counted[:, None]
            both = (given * truth).sum(2)
            # The 1 is small beside any class that is present; an absent class that is not predicted
            # gets loss 0.
            return 1 - ((2 * both + 1) / ((given + truth).sum(2) + 1)).mean(1)
        raise ConfigError(
            f"there is no criterion {self.criterion!r}; there are cross_entropy and dice"
        )

    def predictions(self) -> Any:
        """Return the classes ``(n, ...)``."""
        return self.output.detach().argmax(1)

    def to_evaluations(self) -> list[Evaluation]:
        """Return the evaluation of the task ``segmentation``; targets are ``(n, height,
        width)``.
        """
        truth = self.target.where(self.target != self.ignore, -1)
        classes = self.output.shape[1]
        return [
            build_evaluation(
                "segmentation", self.predictions(), truth, classes, target="mask", predicted="mask"
            )
        ]

    def get_metric_inputs(self) -> tuple[Any, Any]:
        """Return the probabilities ``(n, classes, ...)`` and the classes ``(n, ...)``."""
        return to_single_precision(self.output.detach()).softmax(1), self.target

    def metrics(self) -> dict[str, Metric]:
        """Return ``accuracy``, ``dice`` and ``iou``."""
        counted = (self.target != self.ignore).flatten(1)
        said, truth = self.predictions(), self.target
        right = ((said == truth).flatten(1) & counted).sum(1)
        classes = self.output.shape[1]
        one, other = (
            _encode_one_hot(said, classes, counted),
            _encode_one_hot(truth, classes, counted),
        )
        both, areas = (one * other).sum(2), (one + other).sum(2)
        return {
            "accuracy": self.make_metric(right, counted.sum(1)),
            "dice": self.make_metric(2 * both, areas),
            "iou": self.make_metric(both, areas - both),
        }


def _encode_one_hot(labels: Any, classes: int, counted: Any) -> Any:
    """Return ``(n, classes, positions)`` with 1 at each label that is not ignored, else 0."""
    import torch

    flat = labels.flatten(1)
    return (
        (flat[:, None] == torch.arange(classes, device=labels.device)[:, None]) & counted[:, None]
    ).float()
