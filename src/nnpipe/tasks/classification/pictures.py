"""Classes in words below pictures."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nnpipe.core.tensors import Batch
from nnpipe.report.task_pictures import Picture, TaskPictures, class_name, first_of
from nnpipe.tasks.classification.task import Classification
from nnpipe.tasks.predictions import only

_NAMED = 3


class ClassificationPictures(TaskPictures):
    """Shows the most likely classes."""

    task = Classification.name

    def drawn(self, picture: Picture, predictions: Batch, class_names: Sequence[str]) -> tuple[Picture, str]:
        """Return the picture as it is, and the three most likely classes with their scores."""
        scores = first_of(only(predictions, "scores")).ravel()
        order = np.argsort(-scores, kind="stable")[:_NAMED]
        return picture, ", ".join(f"{class_name(int(n), class_names)} {scores[n]:.3g}" for n in order)

    def difference(self, picture: Picture, one: Batch, other: Batch) -> float:
        """Return the greatest difference of a score, and 1 more if the most likely classes differ."""
        first, second = (first_of(only(each, "scores")).ravel() for each in (one, other))
        if len(first) != len(second):
            return float("inf")
        changed = int(np.argmax(first)) != int(np.argmax(second))
        return changed + float(np.nan_to_num(np.abs(first - second)).max(initial=0.0))
