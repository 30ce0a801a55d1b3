"""Feature vectors: embeddings for callbacks, and those learned from pairs, triplets, views and
centres.
"""

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
    require_same_shape,
    to_single_precision,
)


@dataclass(eq=False)
class EmbeddingOutput(Output):
    """Features ``(n, ...)`` for callbacks that draw or search them; ``target`` may hold labels,
    shown as colours.

    They have no loss unless it is given.

    Parameters
    ----------
    given
        Tensor ``(n,)`` of losses that the model computed itself, such as a penalty.
    """

    given: Any = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        check_call(EmbeddingOutput, vars(self))

    def compute_losses(self) -> Any:
        """Return the given losses ``(n,)``, or zeros without a gradient."""
        if self.given is not None:
            return self.given
        import torch

        return torch.zeros(len(self.output), device=self.output.device)

    def to_evaluations(self) -> list[Evaluation]:
        """Return the evaluation of the task ``embedding``, if there are labels."""
        if self.target is None:
            return []
        vectors = self.output.flatten(1)
        return [
            build_evaluation(
                "embedding", vectors, self.target, target="label", predicted="embedding"
            )
        ]


@dataclass(eq=False)
class ContrastiveOutput(Output):
    """Embeddings ``(n, features)`` of two views of each sample, compared with those of all samples
    of the batch.

    Without a target, the loss is NT-Xent (Chen et al., "A Simple Framework for Contrastive
    Learning", 2020): the cross entropy of finding the other view.  With classes ``(n,)`` as the
    target, all views of one class should be found (Khosla et al., "Supervised Contrastive
    Learning", 2020, their sum outside of the logarithm).  The metric ``found`` is the share of
    views whose nearest other one is of the same sample, or class.

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
        require_same_shape("ContrastiveOutput", self.output, self.other)
        alike, same = self._compute_similarities(self.output, self.other)
        chances = (alike / self.temperature).log_softmax(1)
        # Minus infinity, for a view and itself, times 0 would be NaN.
        losses = -chances.where(same, 0.0).sum(1) / same.sum(1)
        return losses.reshape(2, -1).mean(0)

    def metrics(self) -> dict[str, Metric]:
        """Return ``found``."""
        alike, same = self._compute_similarities(self.output.detach(), self.other.detach())
        found = same.gather(1, alike.argmax(1, keepdim=True))[:, 0]
        return {"found": self.make_metric(found.float().reshape(2, -1).mean(0))}

    def _compute_similarities(self, output: Any, other: Any) -> tuple[Any, Any]:
        """Return the cosines of all views ``(2 n, 2 n)``, and which should be found, without a
        view and itself.
        """
        import torch

        views = torch.nn.functional.normalize(
            to_single_precision(torch.cat([output, other])), dim=1
        )
        kinds = (
            torch.arange(len(output), device=output.device) if self.target is None else self.target
        )
        kinds = kinds.repeat(2)
        own = torch.eye(len(views), dtype=torch.bool, device=views.device)
        return (views @ views.T).masked_fill(own, -torch.inf), (kinds[:, None] == kinds) & ~own


@dataclass(eq=False)
class CentreOutput(Output):
    """Features ``(n, features)`` with classes ``(n,)``: half of the squared distance to the centre
    of the class.

    It is the center loss (Wen et al., "A Discriminative Feature Learning Approach for Deep Face
    Recognition", 2016), to be added to that of a classification with a small ``scale``.  The metric
    ``distance`` is the mean distance.

    Parameters
    ----------
    centres
        Tensor ``(classes, features)``: a ``torch.nn.Parameter`` of the model, which learns with it.
    """

    centres: Any = field(kw_only=True)

    def __post_init__(self) -> None:
        check_call(CentreOutput, vars(self))

    def compute_losses(self) -> Any:
        """Return the losses ``(n,)``."""
        if (
            self.output.dim() != 2
            or self.centres.dim() != 2
            or self.output.shape[1] != self.centres.shape[1]
        ):
            raise ConfigError(
                f"CentreOutput: features are {tuple(self.output.shape)} and centres "
                f"{tuple(self.centres.shape)}; "
                "both need as many columns"
            )
        return (
            to_single_precision(self.output) - to_single_precision(self.centres)[self.target]
        ).square().sum(1) / 2

    def metrics(self) -> dict[str, Metric]:
        """Return ``distance``."""
        return {"distance": self.make_metric((2 * self.losses.detach()).sqrt())}


Mining = Literal["hard", "semi-hard", "all"]


@dataclass(eq=False)
class MinedTripletOutput(Output):
    """Embeddings ``(n, features)`` with classes ``(n,)``: the triplet loss of triplets within the
    batch.

    Each sample is an anchor once; its loss is 0 if the batch has no other sample of its class, or
    none of another.  The metric ``ordered`` is the share of the other anchors whose furthest
    positive is closer than their nearest negative. Loss and metric depend on what else is in a
    batch, and so on its size.

    Parameters
    ----------
    mining
        ``"hard"``: the furthest positive and the nearest negative (Hermans, Beyer and Leibe, "In
        Defense of the Triplet Loss", 2017).  ``"semi-hard"``: for each positive, the nearest
        negative that is further than it, or the furthest if none is (Schroff et al., "FaceNet",
        2015); their mean.  ``"all"``: the mean over all triplets.
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

        distances, positive, negative = self._compute_distances(self.output)
        usable = positive.any(1) & negative.any(1)
        far = distances.masked_fill(~negative, torch.inf)
        if self.mining == "hard":
            losses = (distances.where(positive, 0.0).amax(1) - far.amin(1) + self.margin).clamp(
                min=0
            )
            return losses.where(usable, 0.0)
        if self.mining not in ("semi-hard", "all"):
            raise ConfigError(
                f"there is no mining {self.mining!r}; there are hard, semi-hard and all"
            )
        near = distances[:, :, None]  # anchor, positive, negative
        if self.mining == "all":
            triplets = positive[:, :, None] & negative[:, None, :]
            found = (near - distances[:, None, :] + self.margin).clamp(min=0).where(triplets, 0.0)
            return found.sum((1, 2)) / triplets.sum((1, 2)).clamp(min=1)
        beyond = far[:, None, :].masked_fill(distances[:, None, :] <= near, torch.inf).amin(2)
        furthest = distances.masked_fill(~negative, -torch.inf).amax(1, keepdim=True)
        chosen = beyond.where(beyond.isfinite(), furthest)
        found = (
            (distances - chosen + self.margin).clamp(min=0).where(positive & usable[:, None], 0.0)
        )
        return found.sum(1) / positive.sum(1).clamp(min=1)

    def metrics(self) -> dict[str, Metric]:
        """Return ``ordered``."""
        import torch

        distances, positive, negative = self._compute_distances(self.output.detach())
        usable = positive.any(1) & negative.any(1)
        ordered = distances.where(positive, 0.0).amax(1) < distances.masked_fill(
            ~negative, torch.inf
        ).amin(1)
        return {"ordered": self.make_metric((ordered & usable).float(), usable.float())}

    def _compute_distances(self, output: Any) -> tuple[Any, Any, Any]:
        """Return the distances ``(n, n)``, which pairs are of one class, and which of different
        ones.
        """
        import torch

        output = to_single_precision(output)
        # exact near 0
        distances = torch.cdist(output, output, compute_mode="donot_use_mm_for_euclid_dist")
        same = self.target[:, None] == self.target
        return distances, same & ~torch.eye(len(same), dtype=torch.bool, device=same.device), ~same


@dataclass(eq=False)
class PairOutput(Output):
    """Embeddings ``(n, features)`` of two things, with targets ``(n,)``: 1 for pairs of one kind,
    else 0.

    The loss is ``d**2 / 2`` for pairs of one kind, and ``max(0, margin - d)**2 / 2`` for others,
    where ``d`` is their distance (Hadsell, Chopra and LeCun, "Dimensionality Reduction by Learning
    an Invariant Mapping", 2006).  The metric ``accuracy`` is the share of pairs that are closer
    than half of the margin if and only if they are of one kind.

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
        require_same_shape("PairOutput", self.output, self.other)
        squares = (
            (to_single_precision(self.output) - to_single_precision(self.other)).square().sum(1)
        )
        # The square root has no gradient at 0.
        distances = squares.clamp(min=1e-12).sqrt()
        apart = (self.margin - distances).clamp(min=0).square()
        return squares.where(self.target > 0.5, apart) / 2

    def metrics(self) -> dict[str, Metric]:
        """Return ``accuracy``."""
        distances = (
            (to_single_precision(self.output.detach()) - to_single_precision(self.other.detach()))
            .square()
            .sum(1)
            .sqrt()
        )
        return {"accuracy": self.make_metric((distances < self.margin / 2) == (self.target > 0.5))}


@dataclass(eq=False)
class TripletOutput(Output):
    """Three embeddings ``(n, features)``: an anchor, a positive of the same class, and a negative
    of another class.

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
            to_single_precision(self.output),
            to_single_precision(self.positive),
            to_single_precision(self.negative),
            margin=self.margin,
            reduction="none",
        )

    def metrics(self) -> dict[str, Metric]:
        """Return ``ordered``."""
        import torch.nn.functional as F

        anchor, positive, negative = (
            to_single_precision(t.detach()) for t in (self.output, self.positive, self.negative)
        )
        near, far = F.pairwise_distance(anchor, positive), F.pairwise_distance(anchor, negative)
        return {"ordered": self.make_metric((near < far).float())}
