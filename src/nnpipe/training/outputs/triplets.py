"""Embeddings that should be close for samples of one class."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from nnpipe.core.argument_checks import check_call
from nnpipe.training.outputs.metric import Metric
from nnpipe.training.outputs.output import Output, real


@dataclass(eq=False)
class TripletOutput(Output):
    """Three embeddings ``(n, features)``: an anchor, a positive of the same class, and a negative of another class.

    The loss is ``max(0, |a - p| - |a - n| + margin)`` (Schroff et al.,
    "FaceNet", 2015, with distances instead of their squares); the metric ``ordered``
    is the share of triplets whose positive is closer than the negative.

    Parameters
    ----------
    output, positive, negative
        Tensors ``(n, features)``; ``output`` is the anchor.
    margin
        How much closer than the negative the positive has to be.
    """

    positive: Any = field(kw_only=True)
    negative: Any = field(kw_only=True)
    margin: float = field(default=1.0, kw_only=True)

    def __post_init__(self) -> None:
        check_call(TripletOutput, vars(self))

    def compute_losses(self) -> Any:
        """Return the losses ``(n,)``."""
        import torch.nn.functional as F

        return F.triplet_margin_loss(
            real(self.output), real(self.positive), real(self.negative), margin=self.margin, reduction="none"
        )

    def metrics(self) -> dict[str, Metric]:
        """Return ``ordered``."""
        import torch.nn.functional as F

        anchor, positive, negative = (real(t.detach()) for t in (self.output, self.positive, self.negative))
        near, far = F.pairwise_distance(anchor, positive), F.pairwise_distance(anchor, negative)
        return {"ordered": self.weighed((near < far).float())}
