"""Classification learned from a teacher's logits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from nnpipe.core.argument_checks import check_call
from nnpipe.training.outputs.classification import ClassificationOutput
from nnpipe.training.outputs.metric import Metric
from nnpipe.training.outputs.output import real, same_shape


@dataclass(eq=False)
class DistillationOutput(ClassificationOutput):
    """Logits ``(n, classes)`` that should be like a teacher's, with targets ``(n,)``.

    The loss is ``(1 - hard) * T**2 * KL(teacher / T || student / T) + hard * cross entropy`` (Hinton, Vinyals and Dean,
    "Distilling the Knowledge in a Neural Network", 2015).  Metrics are those of a classification, and ``agreement``,
    the share of samples for which both name the same class.

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

        same_shape("DistillationOutput", self.output, self.teacher)
        student, teacher = real(self.output) / self.temperature, real(self.teacher.detach()) / self.temperature
        soft = F.kl_div(student.log_softmax(1), teacher.log_softmax(1), reduction="none", log_target=True).sum(1)
        soft = soft * self.temperature**2
        return soft if self.hard == 0 else (1 - self.hard) * soft + self.hard * super().compute_losses()

    def metrics(self) -> dict[str, Metric]:
        """Return the metrics of a classification, and ``agreement``."""
        same = self.output.detach().argmax(1) == self.teacher.argmax(1)
        return super().metrics() | {"agreement": self.weighed(same)}
