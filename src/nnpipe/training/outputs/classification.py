"""Classification into one of several classes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from nnpipe.core.argument_checks import check_call
from nnpipe.training.outputs.metric import Metric
from nnpipe.training.outputs.output import Output, real


@dataclass(eq=False)
class ClassificationOutput(Output):
    """Logits ``(n, classes)`` with targets ``(n,)``: the cross entropy, and the accuracy.

    Parameters
    ----------
    label_smoothing
        Part of the target's weight that is distributed over all classes
        (Szegedy et al., "Rethinking the Inception Architecture", 2016).
    top
        Further ranks whose accuracy to compute: ``(5,)`` gives ``top5``.
    """

    label_smoothing: float = field(default=0.0, kw_only=True)
    top: tuple[int, ...] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        check_call(ClassificationOutput, vars(self))

    def compute_losses(self) -> Any:
        """Return the cross entropies ``(n,)``."""
        import torch.nn.functional as F

        return F.cross_entropy(real(self.output), self.target, reduction="none", label_smoothing=self.label_smoothing)

    def predictions(self) -> Any:
        """Return the classes ``(n,)``."""
        return self.output.detach().argmax(1)

    def metrics(self) -> dict[str, Metric]:
        """Return ``accuracy`` and the accuracies of ``top``."""
        output = self.output.detach()
        found = {"accuracy": self.weighed(output.argmax(1) == self.target)}
        for rank in self.top:
            best = output.topk(min(rank, output.shape[1]), 1).indices
            found[f"top{rank}"] = self.weighed((best == self.target[:, None]).any(1))
        return found
