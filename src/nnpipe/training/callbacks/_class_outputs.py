"""Outputs that tell classes apart, as logits of classes: those of several classes, and those of yes or no."""

from __future__ import annotations

from typing import Any

import numpy as np

from nnpipe.training.outputs.binary import BinaryOutput
from nnpipe.training.outputs.classification import ClassificationOutput
from nnpipe.training.outputs.output import Output


def by_label(output: Output) -> list[tuple[str, Any, Any]]:
    """Return the logits ``(n, classes)`` and the targets ``(n,)`` that an output has; none where it has no classes.

    A yes or no has the classes no and yes; of several labels each has, by its number.
    """
    if isinstance(output, ClassificationOutput):
        given = output.output if isinstance(output.output, np.ndarray) else output.output.detach()
        return [("", given, output.target)]
    if not isinstance(output, BinaryOutput):
        return []
    logits, target = output.output.detach(), output.target
    if logits.dim() == 1 or logits.shape[1:].numel() == 1:
        return [("", _two(logits.reshape(-1)), (target.reshape(-1) > 0.5).long())]
    columns, truths = logits.flatten(1), target.flatten(1)
    return [
        (f"label {label}", _two(columns[:, label]), (truths[:, label] > 0.5).long())
        for label in range(columns.shape[1])
    ]


def _two(logits: Any) -> Any:
    """Return the logits of no and yes, whose softmax is the sigmoid."""
    import torch

    return torch.stack([torch.zeros_like(logits), logits], 1)
