"""The metrics of a detection: COCO's average precision and recall.

By the rules of Pascal VOC and Open Images, mAP is the area below the curve at an overlap of 0.5,
and there are no figures by area.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nnpipe.core.errors import ArtifactError
from nnpipe.core.evaluation import Evaluation
from nnpipe.core.quality_metric import QualityMetric, Statistic
from nnpipe.tasks.average_precision import AREAS, RECALLS, THRESHOLDS, PrecisionCurves
from nnpipe.tasks.detection.matching import MOST_DETECTIONS, match_boxes


def _create_statistic(
    of: Callable[[PrecisionCurves, str], Statistic],
    thresholds: list[int] | None = None,
    area: str = "all",
    most: int = MOST_DETECTIONS,
) -> Callable[[Evaluation], Statistic]:
    def prepare(found: Evaluation) -> Statistic:
        which = thresholds
        if (protocol := found.settings.get("protocol", "coco")) != "coco":
            if area != "all":
                return lambda weights: float("nan")
            which = thresholds or [0]
        matches = match_boxes(found)
        place = list(AREAS).index(area)
        chosen = list(range(len(THRESHOLDS))) if which is None else which
        wanted = matches.wanted[:, place]
        counted = (matches.place < most) | (protocol != "coco" and most == MOST_DETECTIONS)
        curves = PrecisionCurves.from_matches(
            matches.picture[counted],
            matches.label[counted],
            matches.right[counted][:, chosen, place],
            matches.ignored[counted][:, chosen, place],
            matches.true_picture[wanted],
            matches.true_label[wanted],
            matches.classes,
        )
        return of(curves, protocol)

    return prepare


def _prepare_precision(curves: PrecisionCurves, protocol: str) -> Statistic:
    recalls = RECALLS if protocol == "coco" else None
    return lambda weights: curves.compute_average_precision(weights, recalls)


def _prepare_recall(curves: PrecisionCurves, protocol: str) -> Statistic:
    return curves.compute_average_recall


_OVERLAPS = "mean over the classes, and over overlaps from 0.5 to 0.95, of the"
_SIZES = (
    ("small", "less than 32 x 32"),
    ("medium", "32 x 32 to 96 x 96"),
    ("large", "more than 96 x 96"),
)

METRICS = (
    QualityMetric(
        "map", "mAP", "Mean average precision", f"{_OVERLAPS} precision at 101 recalls",
        "share", False, statistic=_create_statistic(_prepare_precision)
    ),
    QualityMetric(
        "ap50", "AP50", "Average precision at an overlap of 0.5",
        "mean over the classes of the precision at 101 recalls, if boxes that overlap by half are "
        "right",
        "share", False,
        statistic=_create_statistic(_prepare_precision, [0]),
    ),
    QualityMetric(
        "ap75", "AP75", "Average precision at an overlap of 0.75",
        "mean over the classes of the precision at 101 recalls, if boxes that overlap by three "
        "quarters are right",
        "share", False,
        statistic=_create_statistic(_prepare_precision, [5]),
    ),
    *(
        QualityMetric(
            f"map_{area}", f"mAP {area}", f"Mean average precision of {area} boxes",
            f"{_OVERLAPS} precision at 101 recalls, for boxes of {sizes} pixels", "share", False,
            statistic=_create_statistic(_prepare_precision, area=area),
        )
        for area, sizes in _SIZES
    ),
    *(
        QualityMetric(
            f"ar{most}", f"AR{most}", f"Average recall of {most} box{'es' * (most > 1)}",
            f"{_OVERLAPS} share of true boxes that are found among {most} "
            f"box{'es' * (most > 1)} of a class in a picture", "share", False,
            statistic=_create_statistic(_prepare_recall, most=most),
        )
        for most in (1, 10, MOST_DETECTIONS)
    ),
    *(
        QualityMetric(
            f"ar_{area}", f"AR {area}", f"Average recall of {area} boxes",
            f"{_OVERLAPS} share of true boxes of {sizes} pixels that are found", "share", False,
            statistic=_create_statistic(_prepare_recall, area=area),
        )
        for area, sizes in _SIZES
    ),
)  # fmt: skip
"""The twelve figures of COCO, the one by which detectors are ranked first."""

_MOST_CLASSES = 1 << 16  # 101 numbers of each
Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class ClassCurve:
    """A class at an overlap of 0.5.

    Attributes
    ----------
    label
        The class's number.
    precision
        The greatest precision at each recall of 0, 0.01, ... 1, or above; 0 where it is not
        reached; ``(101,)``.
    average_precision
        Its mean; by the rules of Pascal VOC and Open Images, the area below all its steps.
    wanted, given
        The number of true boxes that count, and of predicted ones.
    recall
        The share of the true boxes that are found.
    """

    label: int
    precision: Floats
    average_precision: float
    wanted: int
    given: int
    recall: float


def compute_class_curves(found: Evaluation) -> list[ClassCurve]:
    """Return the curves of all classes that have true boxes, at an overlap of 0.5.

    Raises
    ------
    ArtifactError
        If there are more classes than a report can show.
    """
    matches = match_boxes(found)
    wanted = np.bincount(matches.true_label[matches.wanted[:, 0]], minlength=matches.classes)
    if np.count_nonzero(wanted) > _MOST_CLASSES:
        raise ArtifactError(
            f"{np.count_nonzero(wanted):,} classes are more than a report can show "
            f"({_MOST_CLASSES:,})"
        )
    stepwise = found.settings.get("protocol", "coco") != "coco"
    ends = np.searchsorted(matches.label, np.arange(matches.classes + 1))
    curves = []
    for label in np.flatnonzero(wanted).tolist():
        own = slice(int(ends[label]), int(ends[label + 1]))
        counted = ~matches.ignored[own, 0, 0]
        right = np.cumsum(matches.right[own, 0, 0][counted])
        recall = right / wanted[label]
        best = np.maximum.accumulate((right / np.arange(1, len(right) + 1))[::-1])[::-1]
        # Behind the last recall, precision is 0.
        precision = np.append(best, 0.0)[np.searchsorted(recall, RECALLS)]
        area = (
            float(np.sum(np.diff(recall, prepend=0) * best))
            if stepwise
            else float(precision.mean())
        )
        most = float(recall[-1]) if len(recall) else 0.0
        curves.append(
            ClassCurve(label, precision, area, int(wanted[label]), int(counted.sum()), most)
        )
    return curves


def find_best_score(found: Evaluation) -> float:
    """Return the least score of boxes with which F1 at an overlap of 0.5, of all classes
    together, is greatest.
    """
    matches = match_boxes(found)
    counted = ~matches.ignored[:, 0, 0]
    scores = matches.score[counted]
    order = np.argsort(-scores, kind="stable")
    right = np.cumsum(matches.right[counted, 0, 0][order])
    if not len(right):
        return 0.0
    f1 = 2 * right / (np.arange(1, len(right) + 1) + int(matches.wanted[:, 0].sum()))
    scores = scores[order]
    f1[:-1][scores[1:] == scores[:-1]] = -1  # boxes of one score are taken together
    return float(scores[int(np.argmax(f1))])


def count_mistakes(found: Evaluation, score: float) -> Integers:
    """Return how many boxes of each picture are missing or wrong at an overlap of 0.5,
    ``(pictures,)``.

    Parameters
    ----------
    found
        The evaluation.
    score
        The least score of boxes that count.
    """
    matches, pictures = match_boxes(found), len(found)
    sure = (matches.score >= score) & ~matches.ignored[:, 0, 0]
    right = sure & matches.right[:, 0, 0]
    wanted = np.bincount(matches.true_picture[matches.wanted[:, 0]], minlength=pictures)
    given = np.bincount(matches.picture[sure], minlength=pictures)
    hits = np.bincount(matches.picture[right], minlength=pictures)
    counts: Integers = wanted + given - 2 * hits
    return counts
