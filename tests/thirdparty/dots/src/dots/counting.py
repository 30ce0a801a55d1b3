"""Counting as a task: how many things are in a picture."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nnpipe.core.errors import SpecMismatch
from nnpipe.core.evaluation import Evaluation
from nnpipe.core.quality_metric import Floats, QualityMetric
from nnpipe.core.task import Task
from nnpipe.core.tensors import Batch, DatasetSpec
from nnpipe.tasks.predictions import get_tensor


def _error(found: Evaluation) -> Floats:
    return np.abs(found.arrays["counted"] - found.arrays["count"]).astype(np.float64)


def _near(found: Evaluation) -> Floats:
    return (_error(found) <= 1).astype(np.float64)


class Counting(Task):
    """How many things are in a picture."""

    name = "counting"
    arrays, truth = ("count", "counted"), ("count",)

    @property
    def metrics(self) -> tuple[QualityMetric, ...]:
        """The mean error, and the share of counts that are nearly right."""
        error, near = (
            "mean distance from the true count",
            "share of the pictures whose count is off by at most one",
        )
        return (
            QualityMetric(
                "count_error",
                "Count error",
                "Error of the count",
                error,
                "ratio",
                True,
                values=_error,
            ),
            QualityMetric(
                "within_one", "Within one", "Counts within one", near, "share", False, values=_near
            ),
        )

    def _evaluate(self, predictions: Batch, truth: Batch, spec: DatasetSpec) -> Evaluation:
        """Round the predicted counts."""
        predicted = get_tensor(predictions, "count")
        if predicted.size != truth["count"].size:
            raise SpecMismatch(
                f"one count is wanted for each picture, not the shape {predicted.shape}"
            )
        counted = np.rint(predicted).astype(np.int64).reshape(-1)
        return Evaluation(
            self.name, {"count": truth["count"].reshape(-1).astype(np.int64), "counted": counted}
        )

    def perfect(self, truth: Batch, spec: DatasetSpec) -> Batch:
        """Return the true counts."""
        return {"count": truth["count"]}

    def _compute_agreement(self, one: Evaluation, other: Evaluation) -> npt.NDArray[np.bool_]:
        """Return whether both count the same."""
        return np.asarray(one.arrays["counted"] == other.arrays["counted"])
