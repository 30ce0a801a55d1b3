"""Classification into one of several classes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError
from nnpipe.core.evaluation import Evaluation
from nnpipe.training.outputs.metric import Metric
from nnpipe.training.outputs.output import Output, judged_as, real


@dataclass(eq=False)
class ClassificationOutput(Output):
    """Logits ``(n, classes)`` with targets ``(n,)``: the cross entropy, and the accuracy.

    Targets may also be shares of classes, real numbers ``(n, classes)``, as after mixup; metrics then count the class
    with the greatest share.

    Parameters
    ----------
    label_smoothing
        Part of the target's weight that is distributed over all classes
        (Szegedy et al., "Rethinking the Inception Architecture", 2016).
    class_weights
        Tensor or numbers ``(classes,)``: the factor of the loss by target, such as
        :func:`~nnpipe.training.outputs.class_weights.balanced_weights` returns; None for ones.  Metrics have none.
    focal
        The exponent of ``(1 - p)``, by which the loss of a sample is multiplied whose true class has the probability
        ``p``, so that easy samples count less (Lin et al., "Focal Loss for Dense Object Detection", 2017); 0 for none.
    top
        Further ranks whose accuracy to compute: ``(5,)`` gives ``top5``.
    """

    label_smoothing: float = field(default=0.0, kw_only=True)
    class_weights: Any = field(default=None, kw_only=True)
    focal: float = field(default=0.0, kw_only=True)
    top: tuple[int, ...] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        check_call(ClassificationOutput, vars(self))

    def compute_losses(self) -> Any:
        """Return the cross entropies ``(n,)``."""
        import torch.nn.functional as F

        output = real(self.output)
        losses = F.cross_entropy(
            output,
            self.target,
            factors(self.class_weights, output),
            reduction="none",
            label_smoothing=self.label_smoothing,
        )
        if self.focal == 0:
            return losses
        if self.target.dim() > 1:
            raise ConfigError("ClassificationOutput: focal needs one class a sample as target, not shares of classes")
        return losses * lack_of_chance(output, self.target) ** self.focal

    @property
    def true_classes(self) -> Any:
        """The class of each sample ``(n,)``; of shares of classes, that of the greatest."""
        return self.target if self.target.ndim == 1 else self.target.argmax(1)

    def predictions(self) -> Any:
        """Return the classes ``(n,)``."""
        return self.output.detach().argmax(1)

    def judged(self) -> list[Evaluation]:
        """Return the evaluation of the task ``classification``."""
        classes = self.output.shape[1]
        return [
            judged_as("classification", self.output, self.true_classes, classes, target="label", predicted="scores")
        ]

    def measured(self) -> tuple[Any, Any]:
        """Return the probabilities ``(n, classes)`` and the classes ``(n,)``."""
        return real(self.output.detach()).softmax(1), self.true_classes

    def metrics(self) -> dict[str, Metric]:
        """Return ``accuracy`` and the accuracies of ``top``."""
        output, target = self.output.detach(), self.true_classes
        found = {"accuracy": self.weighed(output.argmax(1) == target)}
        for rank in self.top:
            best = output.topk(min(rank, output.shape[1]), 1).indices
            found[f"top{rank}"] = self.weighed((best == target[:, None]).any(1))
        return found


def lack_of_chance(output: Any, target: Any) -> Any:
    """Return what the probability of each true class lacks to 1, for logits ``(n, classes, ...)``."""
    chance = output.log_softmax(1).gather(1, target.clamp(min=0).unsqueeze(1)).squeeze(1).exp()
    return (1 - chance).clamp(min=0)


def factors(class_weights: Any, output: Any) -> Any:
    """Return weights of classes as a tensor on the device of an output; None if there are none."""
    if class_weights is None:
        return None
    import torch

    return torch.as_tensor(class_weights, dtype=output.dtype, device=output.device)
