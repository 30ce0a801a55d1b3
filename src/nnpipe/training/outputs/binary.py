"""Binary classification with one or more labels."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from nnpipe.core.argument_checks import check_call
from nnpipe.core.evaluation import Evaluation
from nnpipe.training.outputs.metric import Metric
from nnpipe.training.outputs.output import Output, judged_as, per_sample, real, same_shape


@dataclass(eq=False)
class BinaryOutput(Output):
    """Logits ``(n,)`` or ``(n, labels)`` with targets 0 or 1 of the same shape: the binary cross entropy.

    Metrics are the accuracy, and precision, recall and F1 of class 1 over all
    samples; with several labels, their mean.

    Parameters
    ----------
    positive_weight
        The factor of the loss where the target is 1.
    focal
        The exponent of ``(1 - p)`` as in
        :class:`~nnpipe.training.outputs.classification.ClassificationOutput`; 0 for none.
    """

    positive_weight: float = field(default=1.0, kw_only=True)
    focal: float = field(default=0.0, kw_only=True)

    def __post_init__(self) -> None:
        check_call(BinaryOutput, vars(self))

    def compute_losses(self) -> Any:
        """Return the binary cross entropies ``(n,)``, averaged over labels."""
        import torch.nn.functional as F

        same_shape("BinaryOutput", self.output, self.target)
        output = real(self.output)
        weight = None if self.positive_weight == 1.0 else output.new_tensor(self.positive_weight)
        target = self.target.to(output.dtype)
        losses = F.binary_cross_entropy_with_logits(output, target, reduction="none", pos_weight=weight)
        if self.focal:
            losses = losses * (target - output.sigmoid()).abs() ** self.focal
        return per_sample(losses)

    def predictions(self) -> Any:
        """Return whether each logit is above 0."""
        return self.output.detach() > 0

    def judged(self) -> list[Evaluation]:
        """Return the evaluation of the task ``classification`` for each label, with the classes no and yes."""
        import torch

        logits, target = self.output.detach(), self.target > 0.5
        columns = (
            [(logits, target)] if logits.dim() == 1 else zip(logits.flatten(1).T, target.flatten(1).T, strict=True)
        )
        return [
            judged_as(
                "classification", torch.stack([torch.zeros_like(yes), yes], 1), true.long(), 2,
                target="label", predicted="scores",
            )
            for yes, true in columns
        ]  # fmt: skip

    def measured(self) -> tuple[Any, Any]:
        """Return the probabilities and the truth as 0 or 1, of the shape of the logits."""
        return real(self.output.detach()).sigmoid(), (self.target > 0.5).long()

    def metrics(self) -> dict[str, Metric]:
        """Return ``accuracy``, ``precision``, ``recall`` and ``f1``."""
        said, true = self.predictions(), self.target > 0.5
        hits = (said & true).float()
        said_sum, true_sum = said.float(), true.float()
        return {
            "accuracy": self.weighed((said == true).float()),
            "precision": self.weighed(hits, said_sum),
            "recall": self.weighed(hits, true_sum),
            "f1": self.weighed(2 * hits, said_sum + true_sum),
        }
