"""Anomaly detection in series as a task."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from nnpipe.core.arguments import argument
from nnpipe.core.dataset_spec import DatasetSpec
from nnpipe.core.errors import ArtifactError, ConfigError
from nnpipe.core.evaluation import Evaluation
from nnpipe.core.quality_metric import QualityMetric
from nnpipe.core.task import Task
from nnpipe.core.tensors import Batch
from nnpipe.tasks.predictions import constant_scores, scores_of
from nnpipe.tasks.series_anomaly.metrics import METRICS, THRESHOLDS
from nnpipe.tasks.series_anomaly.nab import PROFILES
from nnpipe.tasks.stored_arrays import INTEGERS, NUMBERS, check_array


class SeriesAnomaly(Task):
    """How unusual each point of a series is, where anomalies are windows of points that are to be found early.

    Samples are the points of one series after the other, in the order of time.  Targets are ``"window"``, ``(n,)``
    integers, the number of the window that a point belongs to, or -1; and ``"series"``, ``(n,)`` integers.
    Predictions are ``"score"``, or a single tensor of any name, ``(n,)`` or ``(n, 1)``; greater means more anomalous.

    An evaluation holds ``window`` and ``series``, int32, and ``score``, float32 or float64 as predicted, each ``(n,)``.
    """

    name = "series_anomaly"
    targets = ("window", "series")
    arrays = ("window", "series", "score")
    truth = ("window", "series")

    thresholds: tuple[float, ...] = argument(
        (),
        help="scores from which on a point is a detection: one for all profiles, or one each for standard, low FP and "
        "low FN; by default the best for the samples at hand, as NAB optimises them",
    )

    def validate(self) -> None:
        """Check the number of thresholds."""
        if len(self.thresholds) not in (0, 1, len(PROFILES)):
            raise ConfigError(f"thresholds: one, or one for each of {', '.join(each.name for each in PROFILES)}")

    @property
    def metrics(self) -> tuple[QualityMetric, ...]:
        """NAB's score for its three profiles."""
        return METRICS

    def _judge(self, predictions: Batch, truth: Batch, spec: DatasetSpec) -> Evaluation:
        """Evaluate the scores of points."""
        window = truth["window"]
        arrays = {
            "window": window.astype(np.int32),
            "series": truth["series"].astype(np.int32),
            "score": scores_of(predictions, len(window)),
        }
        given = self.thresholds * len(PROFILES) if len(self.thresholds) == 1 else self.thresholds
        return Evaluation(self.name, arrays, settings={THRESHOLDS: list(given)} if given else {})

    def check(self, evaluation: Evaluation) -> None:
        """Check that there is a window, a series and a score for each point."""
        super().check(evaluation)
        for name in ("window", "series"):
            check_array(evaluation, name, (), INTEGERS)
        check_array(evaluation, "score", (), NUMBERS)
        given = evaluation.settings.get(THRESHOLDS)
        if given is not None and not (
            isinstance(given, list) and len(given) == len(PROFILES) and all(isinstance(each, float) for each in given)
        ):
            raise ArtifactError("the evaluation's thresholds should be a number for each profile; measure again")

    def perfect(self, truth: Batch, spec: DatasetSpec) -> Batch:
        """Return a score of 1 within each window."""
        return {"score": (truth["window"] >= 0).astype(np.float32)}

    def worst(self, predictions: Batch, truth: Batch, spec: DatasetSpec) -> Batch:
        """Return the least score within each window, and the greatest outside."""
        return {"score": np.where(truth["window"] >= 0, -np.inf, np.inf)}

    def doubts(self, evaluation: Evaluation) -> Iterator[tuple[str, str]]:
        """Doubt scores that are all the same."""
        yield from constant_scores(evaluation)
