"""Sequences of labels without positions, as of speech and handwriting."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from nnpipe.core.argument_checks import check_call
from nnpipe.training.outputs.output import Metric, Output, to_single_precision


@dataclass(eq=False)
class CTCOutput(Output):
    """Logits ``(n, steps, labels)`` with sequences of labels ``(n, longest)``: connectionist
    temporal classification.

    The loss is that of Graves et al., "Connectionist Temporal Classification", 2006, divided by the
    length of the target.  It is infinite, and stops the training, if a target is longer than its
    steps allow.  Metrics follow from the best label of each step, without repeats and blanks:
    ``error_rate``, the number of labels to insert, delete and replace, divided by that of all
    labels of all targets, and ``accuracy``, the share of sequences without an error.

    Parameters
    ----------
    lengths
        Integers ``(n,)``: the number of steps of each sample; None for all.
    target_lengths
        Integers ``(n,)``: the number of labels of each target; what follows is ignored.
    blank
        The label that stands for none.
    """

    lengths: Any = field(default=None, kw_only=True)
    target_lengths: Any = field(kw_only=True)
    blank: int = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        check_call(CTCOutput, vars(self))

    def compute_losses(self) -> Any:
        """Return the losses ``(n,)``."""
        import torch.nn.functional as F

        chances = to_single_precision(self.output).log_softmax(2).transpose(0, 1)
        losses = F.ctc_loss(
            chances,
            self.target,
            self._get_steps(),
            self.target_lengths,
            self.blank,
            reduction="none",
        )
        return losses / self.target_lengths.clamp(min=1)

    def predictions(self) -> list[list[int]]:
        """Return the labels of each sample that follow from the best label of each step."""
        best, steps = self.output.detach().argmax(2).tolist(), self._get_steps().tolist()
        return [
            [label for label, _ in groupby(labels[:count]) if label != self.blank]
            for labels, count in zip(best, steps, strict=True)
        ]

    def metrics(self) -> dict[str, Metric]:
        """Return ``error_rate`` and ``accuracy``."""
        import torch

        lengths = self.target_lengths.tolist()
        truth = [
            labels[:count] for labels, count in zip(self.target.tolist(), lengths, strict=True)
        ]
        errors = [
            edit_distance(said, true) for said, true in zip(self.predictions(), truth, strict=True)
        ]
        found = torch.tensor(errors, dtype=torch.float32, device=self.output.device)
        return {
            "error_rate": self.make_metric(found, self.target_lengths.to(found)),
            "accuracy": self.make_metric((found == 0).float()),
        }

    def _get_steps(self) -> Any:
        import torch

        count, steps = self.output.shape[:2]
        return torch.full((count,), steps) if self.lengths is None else self.lengths


def edit_distance(one: list[int], other: list[int]) -> int:
    """Return how many labels to insert, delete or replace to make one sequence of another
    (Levenshtein, 1966).
    """
    row = list(range(len(other) + 1))
    for number, label in enumerate(one, 1):
        before, row[0] = row[0], number
        for place, wanted in enumerate(other, 1):
            before, row[place] = (
                row[place],
                min(row[place] + 1, row[place - 1] + 1, before + (label != wanted)),
            )
    return row[-1]
