"""Embeddings that should be near where samples belong together."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from nnpipe.core.argument_checks import check_call
from nnpipe.training.outputs.metric import Metric
from nnpipe.training.outputs.output import Output, real


@dataclass(eq=False)
class TripletOutput(Output):
    """Three embeddings ``(n, features)`` a sample: an anchor, one of its kind, one of another kind.

    The loss is ``max(0, |a - p| - |a - n| + margin)`` (Schroff et al.,
    "FaceNet", 2015, with distances for their squares); ``ordered`` is the part of the
    triplets in which the positive is nearer.

    Parameters
    ----------
    output, positive, negative
        Tensors ``(n, features)``; ``output`` is the anchor.
    margin
        How much nearer the positive has to be.
    """

    positive: Any = field(kw_only=True)
    negative: Any = field(kw_only=True)
    margin: float = field(default=1.0, kw_only=True)

    def __post_init__(self) -> None:
        check_call(TripletOutput, vars(self))

    def compute_losses(self) -> Any:
        """Compute the losses ``(n,)``."""
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
