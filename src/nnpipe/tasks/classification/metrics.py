"""The metrics of a classification; they equal
:class:`nnpipe.analysis.classification.ClassificationMetrics`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from nnpipe.core.evaluation import Evaluation
from nnpipe.core.quality_metric import Floats, QualityMetric, Statistic, Values
from nnpipe.tasks.anomaly.task import compute_roc_area

_OF_CLASSES = "mean over the classes"


def create_top_k_metric(k: int) -> QualityMetric:
    """Return the top-k accuracy; 1 is the accuracy itself."""
    if k == 1:
        return _accuracy
    return QualityMetric(
        f"top_{k}_accuracy",
        f"Top-{k}",
        f"Top-{k} accuracy",
        f"share of the samples whose class is among the best {k}",
        "share",
        False,
        values=_create_top_k_values(k),
    )


def _create_top_k_values(k: int) -> Values:
    def values(found: Evaluation) -> Floats:
        rank: npt.NDArray[np.integer] | None = found.arrays.get("rank")
        # With no more classes than k, each sample is among the best k, which says nothing.
        if rank is None or len(found.class_names) <= k:
            return np.full(len(found), np.nan)
        among: Floats = np.less(rank, k).astype(np.float64)
        return among

    return values


def _compute_correctness(found: Evaluation) -> Floats:
    right: Floats = np.equal(found.arrays["truth"], found.arrays["predicted"]).astype(np.float64)
    return right


def _create_class_mean_statistic(
    measure: Callable[[Floats, Floats, Floats], Floats],
) -> Callable[[Evaluation], Statistic]:
    """Return the mean of a measure over the classes with samples, given right ones, samples and
    predictions of each.
    """

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


def _encode_class_pairs(found: Evaluation) -> npt.NDArray[np.int64]:
    """Return a number for the class of each sample and the one that was predicted."""
    predicted = found.arrays["predicted"].astype(np.int64)
    return found.arrays["truth"].astype(np.int64) * (int(predicted.max(initial=0)) + 1) + predicted


def _compute_precision(hits: Floats, support: Floats, told: Floats) -> Floats:
    return np.divide(hits, told, out=np.zeros_like(hits), where=told > 0)


_accuracy = QualityMetric(
    "accuracy",
    "Accuracy",
    "Accuracy",
    "share of the samples whose class is right",
    "share",
    False,
    values=_compute_correctness,
)
METRICS = (
    _accuracy,
    create_top_k_metric(5),
    QualityMetric(
        "mean_precision", "Precision", "Mean precision", _OF_CLASSES,
        "share", False, statistic=_create_class_mean_statistic(_compute_precision), alike=_encode_class_pairs,
    ),
    QualityMetric(
        "mean_sensitivity", "Sensitivity", "Mean sensitivity", _OF_CLASSES, "share", False,
        statistic=_create_class_mean_statistic(lambda hits, support, told: hits / support), alike=_encode_class_pairs,
    ),
    QualityMetric(
        "macro_f1", "F1", "F1", _OF_CLASSES, "share", False,
        statistic=_create_class_mean_statistic(lambda hits, support, told: 2 * hits / (support + told)),
        alike=_encode_class_pairs,
    ),
)  # fmt: skip


# The metrics of a classification that need the scores of all classes: areas under curves, and
# calibration.
#
# The scores of each sample become probabilities by :func:`convert_to_probabilities`.  Where there
# are two classes, the curves are those of the second one, which is the positive one; otherwise each
# metric is the mean over the classes that have samples and are not all samples, each against all
# others.

SCORES = "scores"
"""The array of an evaluation that holds the scores of all classes, ``(n, classes)``; not all
evaluations have it.
"""

BINS = 15
"""Bins of equal width of the calibration error, as in Guo et al., "On Calibration of Modern
Neural Networks", 2017.
"""

_ROUNDED = 0.05  # by how much rounded probabilities may miss the sum of 1


def convert_to_probabilities(scores: Floats) -> Floats:
    """Return the probability of each class, float64 ``(n, classes)``.

    Scores are probabilities if none is negative and those of each sample add up to 1 within 0.05,
    as those of quantised models do.  Other scores are logits, of which the softmax is taken.
    """
    values = np.asarray(scores, np.float64)
    sums = values.sum(axis=1, keepdims=True)
    if values.size and values.min() >= 0 and bool((np.abs(sums - 1) <= _ROUNDED).all()):
        return np.asarray(values / sums)
    powers = np.exp(values - values.max(axis=1, keepdims=True, initial=-np.inf))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def _compute_probabilities(found: Evaluation) -> Floats:
    """Return the probabilities of an evaluation with scores; where these are not finite, the
    true class has none.
    """
    scores, lost = found.arrays[SCORES].astype(np.float64), found.not_finite
    chances = np.asarray(1 - np.eye(scores.shape[1])[found.arrays["truth"]])
    chances[~lost] = convert_to_probabilities(scores[~lost])
    return chances


def compute_stepwise_precision_area(negative: Floats, positive: Floats) -> float:
    """Return the area under the curve of precision over recall, by steps, as scikit-learn does.

    Parameters
    ----------
    negative, positive
        For each different score from the greatest down, the weight of the samples with it,
        ``(scores,)``.
    """
    total = float(positive.sum())
    if total <= 0:
        return float("nan")
    hits, said = np.cumsum(positive), np.cumsum(positive + negative)
    return float(positive @ np.divide(hits, said, out=np.zeros_like(hits), where=said > 0)) / total


def _create_curve_mean_statistic(
    measure: Callable[[Floats, Floats], float],
) -> Callable[[Evaluation], Statistic]:
    """Return the mean over classes of a measure of the curve of each, ``measure(negative,
    positive)``.
    """

    def prepare(found: Evaluation) -> Statistic:
        if SCORES not in found.arrays or not len(found):
            return lambda weights: float("nan")
        chances, truth = _compute_probabilities(found), found.arrays["truth"]
        classes = range(chances.shape[1]) if chances.shape[1] != 2 else (1,)
        kinds = []
        for number in classes:
            _, place = np.unique(-chances[:, number], return_inverse=True)
            places = int(place.max()) + 1
            kinds.append((place.reshape(-1) + places * (truth == number), places))

        def statistic(weights: Floats) -> float:
            areas = []
            for kind, places in kinds:
                negative, positive = np.asarray(
                    np.bincount(kind, weights, 2 * places), np.float64
                ).reshape(2, places)
                if negative.sum() > 0 and positive.sum() > 0:
                    areas.append(measure(negative, positive))
            return float(np.mean(areas)) if areas else float("nan")

        return statistic

    return prepare


def _prepare_calibration_error(found: Evaluation) -> Statistic:
    if SCORES not in found.arrays or not len(found):
        return lambda weights: float("nan")
    chances = _compute_probabilities(found)
    confidence = chances.max(axis=1)
    right = chances.argmax(axis=1) == found.arrays["truth"]
    # each with its upper end
    bins = np.clip(np.ceil(confidence * BINS) - 1, 0, BINS - 1).astype(np.int64)

    def statistic(weights: Floats) -> float:
        total = float(weights.sum())
        if total <= 0:
            return float("nan")
        missed = np.bincount(bins, weights * (confidence - right), BINS)
        return float(np.abs(missed).sum()) / total

    return statistic


SCORE_METRICS = {
    metric.name: metric
    for metric in (
        QualityMetric(
            "roc_auc", "ROC AUC", "Area under the ROC curve",
            "share of pairs of a sample of a class and another one in the right order; mean over "
            "more than two classes",
            "ratio", False, statistic=_create_curve_mean_statistic(compute_roc_area), bounds=(0.0, 1.0),
        ),
        QualityMetric(
            "pr_auc", "PR AUC", "Average precision",
            "area under the curve of precision over recall, by steps; mean over more than two "
            "classes",
            "ratio", False, statistic=_create_curve_mean_statistic(compute_stepwise_precision_area),
            bounds=(0.0, 1.0),
        ),
        QualityMetric(
            "calibration_error", "ECE", "Expected calibration error",
            f"mean distance of the predicted class's probability from how often it is right, in "
            f"{BINS} bins", "ratio",
            True, statistic=_prepare_calibration_error, bounds=(0.0, 1.0),
        ),
    )
}  # fmt: skip
"""These metrics by name: a training computes them, constraints may name them, and reports show
them.
"""
