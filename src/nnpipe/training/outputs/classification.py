"""Classification: into one of several classes, with one or more labels, or learned from a
teacher.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from nnpipe.core.argument_checks import check_call
from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import ConfigError
from nnpipe.core.evaluation import Evaluation
from nnpipe.training.outputs.output import (
    Metric,
    Output,
    build_evaluation,
    compute_sample_means,
    require_same_shape,
    to_single_precision,
)


@dataclass(eq=False)
class ClassificationOutput(Output):
    """Logits ``(n, classes)`` with targets ``(n,)``: the cross entropy, and the accuracy.

    Targets may also be shares of classes, real numbers ``(n, classes)``, as after mixup; metrics
    then count the class with the greatest share.

    Parameters
    ----------
    label_smoothing
        Part of the target's weight that is distributed over all classes
        (Szegedy et al., "Rethinking the Inception Architecture", 2016).
    class_weights
        Tensor or numbers ``(classes,)``: the factor of the loss by target, such as
        :func:`~nnpipe.training.outputs.classification.compute_balanced_weights` returns; None for
        ones. Metrics have none.
    focal
        The exponent of ``(1 - p)``, by which the loss of a sample is multiplied whose true class
        has the probability ``p``, so that easy samples count less (Lin et al., "Focal Loss for
        Dense Object Detection", 2017); 0 for none.
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

        output = to_single_precision(self.output)
        losses = F.cross_entropy(
            output,
            self.target,
            to_class_weights(self.class_weights, output),
            reduction="none",
            label_smoothing=self.label_smoothing,
        )
        if self.focal == 0:
            return losses
        if self.target.dim() > 1:
            raise ConfigError(
                "ClassificationOutput: focal needs one class a sample as target, not shares of "
                "classes"
            )
        return losses * compute_probability_gap(output, self.target) ** self.focal

    @property
    def true_classes(self) -> Any:
        """The class of each sample ``(n,)``; of shares of classes, that of the greatest."""
        return self.target if self.target.ndim == 1 else self.target.argmax(1)

    def predictions(self) -> Any:
        """Return the classes ``(n,)``."""
        return self.output.detach().argmax(1)

    def to_evaluations(self) -> list[Evaluation]:
        """Return the evaluation of the task ``classification``."""
        classes = self.output.shape[1]
        return [
            build_evaluation(
                "classification",
                self.output,
                self.true_classes,
                classes,
                target="label",
                predicted="scores",
            )
        ]

    def get_metric_inputs(self) -> tuple[Any, Any]:
        """Return the probabilities ``(n, classes)`` and the classes ``(n,)``."""
        return to_single_precision(self.output.detach()).softmax(1), self.true_classes

    def metrics(self) -> dict[str, Metric]:
        """Return ``accuracy`` and the accuracies of ``top``."""
        output, target = self.output.detach(), self.true_classes
        found = {"accuracy": self.make_metric(output.argmax(1) == target)}
        for rank in self.top:
            best = output.topk(min(rank, output.shape[1]), 1).indices
            found[f"top{rank}"] = self.make_metric((best == target[:, None]).any(1))
        return found


def compute_probability_gap(output: Any, target: Any) -> Any:
    """Return what the probability of each true class lacks to 1, for logits ``(n, classes,
    ...)``.
    """
    chance = output.log_softmax(1).gather(1, target.clamp(min=0).unsqueeze(1)).squeeze(1).exp()
    return (1 - chance).clamp(min=0)


def to_class_weights(class_weights: Any, output: Any) -> Any:
    """Return weights of classes as a tensor on the device of an output; None if there are none."""
    if class_weights is None:
        return None
    import torch

    return torch.as_tensor(class_weights, dtype=output.dtype, device=output.device)


_AT_ONCE = 256  # samples that are read at once, whose inputs need memory


def compute_balanced_weights(labels: np.ndarray, classes: int) -> Any:
    """Return ``samples / (classes * samples of the class)`` of each class, as in scikit-learn's
    ``"balanced"``.

    Parameters
    ----------
    labels
        Integers ``(n,)``, the classes of the training samples.
    classes
        Number of classes; one without samples gets the weight 0.

    Returns
    -------
    torch.Tensor
        Float32 ``(classes,)``.
    """
    import torch

    check_call(compute_balanced_weights, locals())
    counts = np.bincount(labels, minlength=classes).astype(np.float64)
    found = np.divide(counts.sum(), classes * counts, out=np.zeros(classes), where=counts > 0)
    return torch.from_numpy(found.astype(np.float32))


@dataclass(frozen=True, kw_only=True)
class BalancedWeights:
    """The balanced weights of a data set's classes, for files: ``class_weights: {reference:
    balance.weights}``.

    Parameters
    ----------
    dataset
        The data set, whose training samples are counted.
    target
        The name of the classes in its truth.
    """

    dataset: Dataset
    target: str = "label"

    def __post_init__(self) -> None:
        check_call(BalancedWeights, vars(self))

    @cached_property
    def weights(self) -> tuple[float, ...]:
        """The weight of each class."""
        self.dataset.prepare()
        indices, parts = self.dataset.split("train"), []
        for start in range(0, len(indices), _AT_ONCE):
            _, truth = self.dataset.read(indices[start : start + _AT_ONCE])
            if self.target not in truth:
                raise ConfigError(
                    f"BalancedWeights: target names {self.target!r}; there are {', '.join(truth)}"
                )
            parts.append(np.asarray(truth[self.target]))
        labels = np.concatenate(parts)
        classes = len(self.dataset.spec.class_names) or int(labels.max()) + 1
        return tuple(compute_balanced_weights(labels, classes).tolist())


@dataclass(eq=False)
class BinaryOutput(Output):
    """Logits ``(n,)`` or ``(n, labels)`` with targets 0 or 1 of the same shape: the binary cross
    entropy.

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

        require_same_shape("BinaryOutput", self.output, self.target)
        output = to_single_precision(self.output)
        weight = None if self.positive_weight == 1.0 else output.new_tensor(self.positive_weight)
        target = self.target.to(output.dtype)
        losses = F.binary_cross_entropy_with_logits(
            output, target, reduction="none", pos_weight=weight
        )
        if self.focal:
            losses = losses * (target - output.sigmoid()).abs() ** self.focal
        return compute_sample_means(losses)

    def predictions(self) -> Any:
        """Return whether each logit is above 0."""
        return self.output.detach() > 0

    def to_evaluations(self) -> list[Evaluation]:
        """Return the evaluation of the task ``classification`` for each label, with the classes
        no and yes.
        """
        import torch

        logits, target = self.output.detach(), self.target > 0.5
        columns = (
            [(logits, target)]
            if logits.dim() == 1
            else zip(logits.flatten(1).T, target.flatten(1).T, strict=True)
        )
        return [
            build_evaluation(
                "classification",
                torch.stack([torch.zeros_like(yes), yes], 1),
                true.long(),
                2,
                target="label",
                predicted="scores",
            )
            for yes, true in columns
        ]

    def get_metric_inputs(self) -> tuple[Any, Any]:
        """Return the probabilities and the truth as 0 or 1, of the shape of the logits."""
        return to_single_precision(self.output.detach()).sigmoid(), (self.target > 0.5).long()

    def metrics(self) -> dict[str, Metric]:
        """Return ``accuracy``, ``precision``, ``recall`` and ``f1``."""
        said, true = self.predictions(), self.target > 0.5
        hits = (said & true).float()
        said_sum, true_sum = said.float(), true.float()
        return {
            "accuracy": self.make_metric((said == true).float()),
            "precision": self.make_metric(hits, said_sum),
            "recall": self.make_metric(hits, true_sum),
            "f1": self.make_metric(2 * hits, said_sum + true_sum),
        }


@dataclass(eq=False)
class DistillationOutput(ClassificationOutput):
    """Logits ``(n, classes)`` that should be like a teacher's, with targets ``(n,)``.

    The loss is ``(1 - hard) * T**2 * KL(teacher / T || student / T) + hard * cross entropy``
    (Hinton, Vinyals and Dean, "Distilling the Knowledge in a Neural Network", 2015).  Metrics are
    those of a classification, and ``agreement``, the share of samples for which both name the same
    class.

    Parameters
    ----------
    teacher
        Tensor ``(n, classes)``: the teacher's logits.
    temperature
        What both logits are divided by.
    hard
        Part of the loss that is the cross entropy with the targets.
    """

    teacher: Any = field(kw_only=True)
    temperature: float = field(default=4.0, kw_only=True)
    hard: float = field(default=0.1, kw_only=True)

    def __post_init__(self) -> None:
        check_call(DistillationOutput, vars(self))

    def compute_losses(self) -> Any:
        """Return the losses ``(n,)``."""
        import torch.nn.functional as F

        require_same_shape("DistillationOutput", self.output, self.teacher)
        student, teacher = (
            to_single_precision(self.output) / self.temperature,
            to_single_precision(self.teacher.detach()) / self.temperature,
        )
        soft = F.kl_div(
            student.log_softmax(1), teacher.log_softmax(1), reduction="none", log_target=True
        ).sum(1)
        soft = soft * self.temperature**2
        return (
            soft
            if self.hard == 0
            else (1 - self.hard) * soft + self.hard * super().compute_losses()
        )

    def metrics(self) -> dict[str, Metric]:
        """Return the metrics of a classification, and ``agreement``."""
        same = self.output.detach().argmax(1) == self.teacher.argmax(1)
        return super().metrics() | {"agreement": self.make_metric(same)}
