"""Embeddings whose triplets are found among the samples of a batch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError
from nnpipe.training.outputs.metric import Metric
from nnpipe.training.outputs.output import Output, real

Mining = Literal["hard", "semi-hard", "all"]


@dataclass(eq=False)
class MinedTripletOutput(Output):
    """Embeddings ``(n, features)`` with classes ``(n,)``: the triplet loss of triplets within the batch.

    Each sample is an anchor once; its loss is 0 if the batch has no other sample of its class, or none of another.  The
    metric ``ordered`` is the share of the other anchors whose furthest positive is closer than their nearest negative.
    Loss and metric depend on what else is in a batch, and so on its size.

    Parameters
    ----------
    mining
        ``"hard"``: the furthest positive and the nearest negative (Hermans, Beyer and Leibe, "In Defense of the Triplet
        Loss", 2017).  ``"semi-hard"``: for each positive, the nearest negative that is further than it, or the furthest
        if none is (Schroff et al., "FaceNet", 2015); their mean.  ``"all"``: the mean over all triplets.
    margin
        How much closer than the negative the positive has to be.
    """

    mining: Mining = field(default="hard", kw_only=True)
    margin: float = field(default=1.0, kw_only=True)

    def __post_init__(self) -> None:
        check_call(MinedTripletOutput, vars(self))

    def compute_losses(self) -> Any:
        """Return the losses ``(n,)``."""
        import torch

        distances, positive, negative = self._compared(self.output)
        usable = positive.any(1) & negative.any(1)
        far = distances.masked_fill(~negative, torch.inf)
        if self.mining == "hard":
            losses = (distances.where(positive, 0.0).amax(1) - far.amin(1) + self.margin).clamp(min=0)
            return losses.where(usable, 0.0)
        if self.mining not in ("semi-hard", "all"):
            raise ConfigError(f"there is no mining {self.mining!r}; there are hard, semi-hard and all")
        near = distances[:, :, None]  # anchor, positive, negative
        if self.mining == "all":
            triplets = positive[:, :, None] & negative[:, None, :]
            found = (near - distances[:, None, :] + self.margin).clamp(min=0).where(triplets, 0.0)
            return found.sum((1, 2)) / triplets.sum((1, 2)).clamp(min=1)
        beyond = far[:, None, :].masked_fill(distances[:, None, :] <= near, torch.inf).amin(2)
        furthest = distances.masked_fill(~negative, -torch.inf).amax(1, keepdim=True)
        chosen = beyond.where(beyond.isfinite(), furthest)
        found = (distances - chosen + self.margin).clamp(min=0).where(positive & usable[:, None], 0.0)
        return found.sum(1) / positive.sum(1).clamp(min=1)

    def metrics(self) -> dict[str, Metric]:
        """Return ``ordered``."""
        import torch

        distances, positive, negative = self._compared(self.output.detach())
        usable = positive.any(1) & negative.any(1)
        ordered = distances.where(positive, 0.0).amax(1) < distances.masked_fill(~negative, torch.inf).amin(1)
        return {"ordered": self.weighed((ordered & usable).float(), usable.float())}

    def _compared(self, output: Any) -> tuple[Any, Any, Any]:
        """Return the distances ``(n, n)``, which pairs are of one class, and which of different ones."""
        import torch

        output = real(output)
        distances = torch.cdist(output, output, compute_mode="donot_use_mm_for_euclid_dist")  # exact near 0
        same = self.target[:, None] == self.target
        return distances, same & ~torch.eye(len(same), dtype=torch.bool, device=same.device), ~same
