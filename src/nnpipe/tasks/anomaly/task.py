"""Anomaly detection as a task: scores of samples, some of which are anomalous."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from nnpipe.core.evaluation import Evaluation
from nnpipe.core.quality_metric import Floats, QualityMetric, Statistic
from nnpipe.core.task import Task
from nnpipe.core.tensors import Batch, DatasetSpec
from nnpipe.tasks.predictions import (
    INTEGERS,
    NUMBERS,
    check_array,
    get_anomaly_scores,
    warn_of_constant_scores,
)

# The metrics of anomaly detection, from true kinds and scores.
#
# The curve of a detector is the number of normal and anomalous samples with at least each score.
# Samples with equal scores are one point of it, and each sample counts as often as its weight says,
# as in scikit-learn.

CLIP = "clip"
"""The array of an evaluation that says which samples are parts of one clip."""

MAX_FPR = 0.1
"""The greatest rate of false alarms that the partial area looks at, as in DCASE's and MLPerf
Tiny's rules.
"""


def number_clips(found: Evaluation) -> npt.NDArray[np.int64]:
    """Return the number of each sample's clip, ``(samples,)``; without clips, each sample is
    one.
    """
    if CLIP not in found.arrays:
        return np.arange(len(found))
    return np.unique(found.arrays[CLIP], return_inverse=True)[1].reshape(-1)


def _create_curve_statistic(
    measure: Callable[[Floats, Floats], float],
) -> Callable[[Evaluation], Statistic]:
    """Return the statistic that is computed from a curve, ``measure(normal, anomalous)``.

    Both arguments hold, for each different score from the greatest down, the weight of the samples
    with it, ``(scores,)``.
    """

    def prepare(found: Evaluation) -> Statistic:
        clip = number_clips(found)
        sizes = np.bincount(clip)
        score = np.bincount(clip, found.arrays["score"].astype(np.float64)) / sizes
        if len(sizes) == len(found):  # a mean of one number may be rounded
            score = np.empty(len(found))
            score[clip] = found.arrays["score"]
        anomalous = np.bincount(clip, found.arrays["truth"] == 1) > 0
        _, place = np.unique(-score, return_inverse=True)
        place = place.reshape(-1)
        places = int(place.max(initial=-1)) + 1
        kind = place + places * anomalous

        def statistic(weights: Floats) -> float:
            if not places:
                return float("nan")
            of_clips = np.bincount(clip, weights) / sizes
            normal, unusual = np.asarray(
                np.bincount(kind, of_clips, 2 * places), np.float64
            ).reshape(2, places)
            return measure(normal, unusual)

        return statistic

    return prepare


def compute_roc_area(normal: Floats, anomalous: Floats) -> float:
    """Return the area under the ROC curve: the share of pairs in the right order, where ties
    count half.
    """
    pairs = float(anomalous.sum() * normal.sum())
    if pairs <= 0:
        return float("nan")
    below = normal.sum() - np.cumsum(normal)
    return float(anomalous @ (below + normal / 2)) / pairs


def compute_partial_area(limit: float, alarms: Floats, hits: Floats) -> float:
    """Return the area under a curve from (0, 0) to (1, 1), up to a share of false alarms.

    Parameters
    ----------
    limit
        The greatest share of false alarms.
    alarms, hits
        How much each point of the curve has of both more than the point before, ``(points,)``.
    """
    alarms = np.concatenate([[0.0], np.cumsum(alarms)])
    hits = np.concatenate([[0.0], np.cumsum(hits)])
    stop = int(np.searchsorted(alarms, limit, side="right"))
    if stop < len(alarms):
        last = np.interp(limit, alarms[stop - 1 : stop + 1], hits[stop - 1 : stop + 1])
        alarms, hits = np.append(alarms[:stop], limit), np.append(hits[:stop], last)
    return float(np.diff(alarms) @ (hits[1:] + hits[:-1])) / 2


def _compute_standardized_area(normal: Floats, anomalous: Floats) -> float:
    """Return the standardised area up to a false alarm rate (McClish 1989), as
    ``roc_auc_score(max_fpr=...)``.
    """
    if normal.sum() <= 0 or anomalous.sum() <= 0:
        return float("nan")
    area = compute_partial_area(MAX_FPR, normal / normal.sum(), anomalous / anomalous.sum())
    least, most = MAX_FPR**2 / 2, MAX_FPR
    return 0.5 * (1 + (area - least) / (most - least))


def _compute_best_f1(normal: Floats, anomalous: Floats) -> float:
    """Return the greatest F1 of all thresholds."""
    total = float(anomalous.sum())
    if total <= 0:
        return float("nan")
    hits, alarms = np.cumsum(anomalous), np.cumsum(normal)
    return float((2 * hits / (hits + alarms + total)).max())


METRICS = (
    QualityMetric(
        "auc", "AUC", "Area under the ROC curve", "share of pairs of an anomaly and a normal "
            "sample in the right order",
        "ratio", False, statistic=_create_curve_statistic(compute_roc_area), clusters=number_clips, bounds=(0.0, 1.0),
    ),
    QualityMetric(
        "pauc", "pAUC", "Partial area under the ROC curve",
        "area under the ROC curve where at most 10 % of the normal samples are alarms, "
        "standardised to 0.5 for chance",
        "ratio", False, statistic=_create_curve_statistic(_compute_standardized_area), clusters=number_clips,
        bounds=(0.0, 1.0),
    ),
    QualityMetric(
        "best_f1", "Best F1", "F1 at the best threshold", "greatest F1 of all thresholds of the "
            "score", "share", False,
        statistic=_create_curve_statistic(_compute_best_f1), clusters=number_clips,
    ),
)  # fmt: skip


class AnomalyDetection(Task):
    """How unusual each sample is.

    Targets are ``"anomalous"``, ``(n,)``, 1 for an anomaly and 0 for a normal sample.  If samples
    are parts of clips, such as the frames of a sound, the target ``"clip"``, ``(n,)`` integers,
    says which belong together: a clip's score is the mean of theirs.  Predictions are ``"score"``,
    or a single tensor of any name, ``(n,)`` or ``(n, 1)``; greater means more anomalous.

    An evaluation holds ``truth``, int32, ``score``, float32 or float64 as predicted, and maybe
    ``clip``, int64, each ``(n,)``.
    """

    name = "anomaly"
    targets = ("anomalous",)
    optional_targets = ("clip",)
    arrays = ("truth", "score")

    @property
    def metrics(self) -> tuple[QualityMetric, ...]:
        """The area under the ROC curve, its part with few false alarms, and the best F1."""
        return METRICS

    def _evaluate(self, predictions: Batch, truth: Batch, spec: DatasetSpec) -> Evaluation:
        """Evaluate anomaly scores."""
        anomalous = truth["anomalous"]
        arrays = {
            "truth": anomalous.astype(np.int32),
            "score": get_anomaly_scores(predictions, len(anomalous)),
        }
        if CLIP in truth:
            arrays[CLIP] = truth[CLIP].astype(np.int64)
        return Evaluation(self.name, arrays, ("usual", "anomalous"))

    def sample_errors(self, evaluation: Evaluation) -> npt.NDArray[np.float64] | None:
        """Return the share of samples with lower scores than a normal one, or higher ones than
        an anomalous one.
        """
        if CLIP in evaluation.arrays or not len(evaluation):
            return None
        scores, anomalous = evaluation.arrays["score"], evaluation.arrays["truth"] != 0
        ordered = np.sort(scores)
        lower = np.searchsorted(ordered, scores, side="left") / len(scores)
        higher = 1 - np.searchsorted(ordered, scores, side="right") / len(scores)
        return np.asarray(np.where(anomalous, higher, lower), np.float64)

    def _describe_sample(self, evaluation: Evaluation, number: int) -> str:
        """Return the kind and the score."""
        kind = "anomalous" if evaluation.arrays["truth"][number] else "normal"
        return f"{kind}, with the score {float(evaluation.arrays['score'][number]):.4g}"

    def warnings(self, evaluation: Evaluation) -> Iterator[tuple[str, str]]:
        """Doubt scores that are all the same."""
        yield from warn_of_constant_scores(evaluation)

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
