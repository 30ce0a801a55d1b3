"""Anomaly detection as a task: scores of samples, some of which are anomalous."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from nnpipe.core.dataset_spec import DatasetSpec
from nnpipe.core.evaluation import Evaluation
from nnpipe.core.quality_metric import QualityMetric
from nnpipe.core.task import Task
from nnpipe.core.tensors import Batch
from nnpipe.tasks.anomaly.metrics import CLIP, METRICS
from nnpipe.tasks.predictions import constant_scores, scores_of
from nnpipe.tasks.stored_arrays import INTEGERS, NUMBERS, check_array


class AnomalyDetection(Task):
    """How unusual each sample is.

    Targets are ``"anomalous"``, ``(n,)``, 1 for an anomaly and 0 for a normal sample.  If samples are parts of clips,
    such as the frames of a sound, the target ``"clip"``, ``(n,)`` integers, says which belong together: a clip's score
    is the mean of theirs.  Predictions are ``"score"``, or a single tensor of any name, ``(n,)`` or ``(n, 1)``; greater
    means more anomalous.

    An evaluation holds ``truth``, int32, ``score``, float32 or float64 as predicted, and maybe ``clip``, int64, each
    ``(n,)``.
    """

    name = "anomaly"
    targets = ("anomalous",)
    optional_targets = ("clip",)
    arrays = ("truth", "score")

    @property
    def metrics(self) -> tuple[QualityMetric, ...]:
        """The area under the ROC curve, its part with few false alarms, and the best F1."""
        return METRICS

    def _judge(self, predictions: Batch, truth: Batch, spec: DatasetSpec) -> Evaluation:
        """Evaluate anomaly scores."""
        anomalous = truth["anomalous"]
        arrays = {
            "truth": anomalous.astype(np.int32),
            "score": scores_of(predictions, len(anomalous)),
        }
        if CLIP in truth:
            arrays[CLIP] = truth[CLIP].astype(np.int64)
        return Evaluation(self.name, arrays, ("usual", "anomalous"))

    def sample_errors(self, evaluation: Evaluation) -> npt.NDArray[np.float64] | None:
        """Return the share of samples with lower scores than a normal one, or higher ones than an anomalous one."""
        if CLIP in evaluation.arrays or not len(evaluation):
            return None
        scores, anomalous = evaluation.arrays["score"], evaluation.arrays["truth"] != 0
        ordered = np.sort(scores)
        lower = np.searchsorted(ordered, scores, side="left") / len(scores)
        higher = 1 - np.searchsorted(ordered, scores, side="right") / len(scores)
        return np.asarray(np.where(anomalous, higher, lower), np.float64)

    def _sample_words(self, evaluation: Evaluation, number: int) -> str:
        """Return the kind and the score."""
        kind = "anomalous" if evaluation.arrays["truth"][number] else "normal"
        return f"{kind}, with the score {float(evaluation.arrays['score'][number]):.4g}"

    def doubts(self, evaluation: Evaluation) -> Iterator[tuple[str, str]]:
        """Doubt scores that are all the same."""
        yield from constant_scores(evaluation)

    def check(self, evaluation: Evaluation) -> None:
        """Check that there is a kind and a score for each sample."""
        super().check(evaluation)
        check_array(evaluation, "truth", (), INTEGERS)
        check_array(evaluation, "score", (), NUMBERS)
        if CLIP in evaluation.arrays:
            check_array(evaluation, CLIP, (), INTEGERS)

    def perfect(self, truth: Batch, spec: DatasetSpec) -> Batch:
        """Return a score of 1 for each anomaly."""
        return {"score": truth["anomalous"].astype(np.float32)}

    def worst(self, predictions: Batch, truth: Batch, spec: DatasetSpec) -> Batch:
        """Return the least score for each anomaly, and the greatest for all others."""
        return {"score": np.where(truth["anomalous"] != 0, -np.inf, np.inf)}
