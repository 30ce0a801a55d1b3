"""Numbers that models find in pictures."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nnpipe.core.tensors import Batch
from nnpipe.report.task_section import Picture, TaskPictures, get_first_sample
from nnpipe.tasks.predictions import get_tensor
from nnpipe.tasks.regression.task import Regression

_MOST = 8


class RegressionPictures(TaskPictures):
    """Shows the predicted numbers."""

    task = Regression.name

    def draw(
        self, picture: Picture, predictions: Batch, class_names: Sequence[str]
    ) -> tuple[Picture, str]:
        """Return the picture as it is, and the first predicted numbers."""
        values = get_first_sample(get_tensor(predictions, "value")).ravel()
        told = ", ".join(f"{value:.4g}" for value in values[:_MOST])
        return picture, told + (f", ... ({values.size:,} numbers)" if values.size > _MOST else "")

    def measure_difference(self, picture: Picture, one: Batch, other: Batch) -> float:
        """Return the greatest difference of a number."""
        first, second = (
            get_first_sample(get_tensor(each, "value")).ravel() for each in (one, other)
        )
        if len(first) != len(second):
            return float("inf")
        return float(np.nan_to_num(np.abs(first - second)).max(initial=0.0))
