"""Embeddings of two views of each sample that should find each other among all of a batch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from nnpipe.core.argument_checks import check_call
from nnpipe.training.outputs.metric import Metric
from nnpipe.training.outputs.output import Output, real, same_shape


@dataclass(eq=False)
class ContrastiveOutput(Output):
    """Embeddings ``(n, features)`` of two views of each sample, compared with those of all samples of the batch.

    Without a target, the loss is NT-Xent (Chen et al., "A Simple Framework for Contrastive Learning", 2020): the cross
    entropy of finding the other view.  With classes ``(n,)`` as the target, all views of one class should be found
    (Khosla et al., "Supervised Contrastive Learning", 2020, their sum outside of the logarithm).  The metric ``found``
    is the share of views whose nearest other one is of the same sample, or class.

    Loss and metric depend on what else is in a batch, and so on its size.

    Parameters
    ----------
    other
        Tensor ``(n, features)``: the second view.
    temperature
        What cosines are divided by.
    """

    other: Any = field(kw_only=True)
    temperature: float = field(default=0.5, kw_only=True)

    def __post_init__(self) -> None:
        check_call(ContrastiveOutput, vars(self))

    def compute_losses(self) -> Any:
        """Return the losses ``(n,)``, the mean over both views."""
        same_shape("ContrastiveOutput", self.output, self.other)
        alike, same = self._compared(self.output, self.other)
        chances = (alike / self.temperature).log_softmax(1)
        # Minus infinity, for a view and itself, times 0 would be NaN.
        losses = -chances.where(same, 0.0).sum(1) / same.sum(1)
        return losses.reshape(2, -1).mean(0)

    def metrics(self) -> dict[str, Metric]:
        """Return ``found``."""
        alike, same = self._compared(self.output.detach(), self.other.detach())
        found = same.gather(1, alike.argmax(1, keepdim=True))[:, 0]
        return {"found": self.weighed(found.float().reshape(2, -1).mean(0))}

    def _compared(self, output: Any, other: Any) -> tuple[Any, Any]:
        """Return the cosines of all views ``(2 n, 2 n)``, and which should be found, without a view and itself."""
        import torch

        views = torch.nn.functional.normalize(real(torch.cat([output, other])), dim=1)
        kinds = torch.arange(len(output), device=output.device) if self.target is None else self.target
        kinds = kinds.repeat(2)
        own = torch.eye(len(views), dtype=torch.bool, device=views.device)
        return (views @ views.T).masked_fill(own, -torch.inf), (kinds[:, None] == kinds) & ~own
