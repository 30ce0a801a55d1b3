"""Pairs of embeddings that should be close or far apart."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from nnpipe.core.argument_checks import check_call
from nnpipe.training.outputs.metric import Metric
from nnpipe.training.outputs.output import Output, real, same_shape


@dataclass(eq=False)
class PairOutput(Output):
    """Embeddings ``(n, features)`` of two things, with targets ``(n,)``: 1 for pairs of one kind, else 0.

    The loss is ``d**2 / 2`` for pairs of one kind, and ``max(0, margin - d)**2 / 2`` for others, where ``d`` is their
    distance (Hadsell, Chopra and LeCun, "Dimensionality Reduction by Learning an Invariant Mapping", 2006).  The metric
    ``accuracy`` is the share of pairs that are closer than half of the margin if and only if they are of one kind.

    Parameters
    ----------
    other
        Tensor ``(n, features)``: the second embedding of each pair.
    margin
        The distance from which pairs of different kinds are far enough apart.
    """

    other: Any = field(kw_only=True)
    margin: float = field(default=1.0, kw_only=True)

    def __post_init__(self) -> None:
        check_call(PairOutput, vars(self))

    def compute_losses(self) -> Any:
        """Return the losses ``(n,)``."""
        same_shape("PairOutput", self.output, self.other)
        squares = (real(self.output) - real(self.other)).square().sum(1)
        # The square root has no gradient at 0.
        distances = squares.clamp(min=1e-12).sqrt()
        apart = (self.margin - distances).clamp(min=0).square()
        return squares.where(self.target > 0.5, apart) / 2

    def metrics(self) -> dict[str, Metric]:
        """Return ``accuracy``."""
        distances = (real(self.output.detach()) - real(self.other.detach())).square().sum(1).sqrt()
        return {"accuracy": self.weighed((distances < self.margin / 2) == (self.target > 0.5))}
