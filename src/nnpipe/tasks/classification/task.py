"""Classification as a task: class scores against true classes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from nnpipe.analysis.ranking import true_class_rank
from nnpipe.core.dataset_spec import DatasetSpec
from nnpipe.core.errors import SpecMismatch
from nnpipe.core.evaluation import Evaluation
from nnpipe.core.quality_metric import QualityMetric
from nnpipe.core.task import Task
from nnpipe.core.tensors import Batch, show_shape
from nnpipe.tasks.classification.metrics import METRICS
from nnpipe.tasks.classification.prediction_doubts import prediction_doubts
from nnpipe.tasks.predictions import only


class Classification(Task):
    """One class of several for each sample.

    Targets are ``"label"``, ``(n,)`` integers.  Predictions are ``"scores"``, or a single tensor of any name,
    ``(n, classes)``; greater means more likely.

    An evaluation holds ``truth`` and ``predicted``, int32, and ``rank``, the position of the true class when scores are
    sorted in descending order, each ``(n,)``.
    """

    name = "classification"

    @property
    def metrics(self) -> tuple[QualityMetric, ...]:
        """Accuracy, top-5 accuracy, and means over the classes."""
        return METRICS

    def judge(self, predictions: Batch, truth: Batch, spec: DatasetSpec) -> Evaluation:
        """Evaluate class scores."""
        scores, class_names = only(predictions, "scores"), spec.class_names
        if scores.ndim != 2 or scores.shape[1] != len(class_names):
            raise SpecMismatch(f"scores must have the shape (?, {len(class_names)}), not {show_shape(scores.shape)}")
        labels = truth["label"]
        rank = true_class_rank(scores, labels)
        if scores.dtype.kind == "f":
            scores = np.where(np.isnan(scores), -np.inf, scores)  # argmax takes NaN for the greatest
        arrays = {
            "truth": labels.astype(np.int32),
            "predicted": np.argmax(scores, axis=1).astype(np.int32),
            "rank": rank,
        }
        return Evaluation(self.name, arrays, class_names)

    def agreement(self, one: Evaluation, other: Evaluation) -> npt.NDArray[np.bool_]:
        """Return which samples get the same class from both models."""
        same: npt.NDArray[np.bool_] = np.equal(one.arrays["predicted"], other.arrays["predicted"])
        return same

    def doubts(self, evaluation: Evaluation) -> Iterator[tuple[str, str]]:
        """Doubt predictions that are no better than chance, or nearly all the same."""
        return prediction_doubts(evaluation)
