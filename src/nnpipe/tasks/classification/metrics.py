"""The metrics of a classification; they equal :class:`nnpipe.analysis.classification.ClassificationMetrics`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from nnpipe.core.evaluation import Evaluation
from nnpipe.core.quality_metric import Floats, QualityMetric, Statistic, Values

_OF_CLASSES = "mean over the classes"


def top_k_metric(k: int) -> QualityMetric:
    """Return the top-k accuracy; 1 is the accuracy itself."""
    if k == 1:
        return _accuracy
    return QualityMetric(
        f"top_{k}_accuracy", f"Top-{k}", f"Top-{k} accuracy", f"share of the samples whose class is among the best {k}",
        "share", False,
        values=_among(k),
    )  # fmt: skip


def _among(k: int) -> Values:
    def values(found: Evaluation) -> Floats:
        rank: npt.NDArray[np.integer] | None = found.arrays.get("rank")
        # With no more classes than k, each sample is among the best k, which says nothing.
        if rank is None or len(found.class_names) <= k:
            return np.full(len(found), np.nan)
        among: Floats = np.less(rank, k).astype(np.float64)
        return among

    return values


def _right(found: Evaluation) -> Floats:
    right: Floats = np.equal(found.arrays["truth"], found.arrays["predicted"]).astype(np.float64)
    return right


def _over_classes(measure: Callable[[Floats, Floats, Floats], Floats]) -> Callable[[Evaluation], Statistic]:
    """Return the mean of a measure over the classes with samples, given right ones, samples and predictions of each."""

    def prepare(found: Evaluation) -> Statistic:
        truth, predicted = found.arrays["truth"], found.arrays["predicted"]
        classes = int(max(truth.max(initial=-1), predicted.max(initial=-1))) + 1
        right = truth == predicted

        def statistic(weights: Floats) -> float:
            hits: Floats = np.bincount(truth, weights * right, classes).astype(np.float64)
            support: Floats = np.bincount(truth, weights, classes).astype(np.float64)
            there = support > 0
            if not there.any():
                return float("nan")
            told: Floats = np.bincount(predicted, weights, classes).astype(np.float64)
            return float(measure(hits[there], support[there], told[there]).mean())

        return statistic

    return prepare


def _pair(found: Evaluation) -> npt.NDArray[np.int64]:
    """Return a number for the class of each sample and the one that was predicted."""
    predicted = found.arrays["predicted"].astype(np.int64)
    return found.arrays["truth"].astype(np.int64) * (int(predicted.max(initial=0)) + 1) + predicted


def _precision(hits: Floats, support: Floats, told: Floats) -> Floats:
    return np.divide(hits, told, out=np.zeros_like(hits), where=told > 0)


_accuracy = QualityMetric(
    "accuracy", "Accuracy", "Accuracy", "share of the samples whose class is right", "share", False, values=_right,
)  # fmt: skip
METRICS = (
    _accuracy,
    top_k_metric(5),
    QualityMetric(
        "mean_precision", "Precision", "Mean precision", _OF_CLASSES,
        "share", False, statistic=_over_classes(_precision), alike=_pair,
    ),
    QualityMetric(
        "mean_sensitivity", "Sensitivity", "Mean sensitivity", _OF_CLASSES, "share", False,
        statistic=_over_classes(lambda hits, support, told: hits / support), alike=_pair,
    ),
    QualityMetric(
        "macro_f1", "F1", "F1", _OF_CLASSES, "share", False,
        statistic=_over_classes(lambda hits, support, told: 2 * hits / (support + told)), alike=_pair,
    ),
)  # fmt: skip
