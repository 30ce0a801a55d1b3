"""Outputs of classifiers, with several classes or binary, as logits of classes."""

from __future__ import annotations

from typing import Any

import numpy as np

from nnpipe.training.outputs.binary import BinaryOutput
from nnpipe.training.outputs.classification import ClassificationOutput
from nnpipe.training.outputs.output import Output


def by_label(output: Output) -> list[tuple[str, Any, Any]]:
    """Return title, logits ``(n, classes)`` and targets ``(n,)`` of an output; an empty list if it has no classes.

    A binary output has two classes, no and yes.  With several labels, there is one entry for each label.
    """
    if isinstance(output, ClassificationOutput):
        given = output.output if isinstance(output.output, np.ndarray) else output.output.detach()
        return [("", given, output.true_classes)]
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
    """Return the logits of no and yes, so that their softmax is the sigmoid."""
    import torch

    return torch.stack([torch.zeros_like(logits), logits], 1)
