"""Anomaly detection as a task: scores of samples, some of which are anomalous."""

from __future__ import annotations

import numpy as np

from nnpipe.core.dataset_spec import DatasetSpec
from nnpipe.core.errors import SpecMismatch
from nnpipe.core.evaluation import Evaluation
from nnpipe.core.quality_metric import QualityMetric
from nnpipe.core.task import Task
from nnpipe.core.tensors import Batch, show_shape
from nnpipe.tasks.anomaly.metrics import METRICS
from nnpipe.tasks.predictions import only


class AnomalyDetection(Task):
    """How unusual each sample is.

    Targets are ``"anomalous"``, ``(n,)``, 1 for an anomaly and 0 for a normal sample.  Predictions are ``"score"``, or
    a single tensor of any name, ``(n,)``; greater means more anomalous.

    An evaluation holds ``truth``, int32, and ``score``, float32, each ``(n,)``.
    """

    name = "anomaly"
    arrays = ("truth", "score")

    @property
    def metrics(self) -> tuple[QualityMetric, ...]:
        """The area under the ROC curve."""
        return METRICS

    def judge(self, predictions: Batch, truth: Batch, spec: DatasetSpec) -> Evaluation:
        """Evaluate anomaly scores."""
        score, anomalous = only(predictions, "score"), truth["anomalous"]
        if score.shape != anomalous.shape:
            raise SpecMismatch(
                f"scores must have the shape {show_shape(anomalous.shape)}, not {show_shape(score.shape)}"
            )
        arrays = {"truth": anomalous.astype(np.int32), "score": score.astype(np.float32)}
        return Evaluation(self.name, arrays, ("usual", "anomalous"))
