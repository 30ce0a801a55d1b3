"""Precision and recall of each class, and pictures in which boxes are wrong or missing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nnpipe.core.errors import ArtifactError
from nnpipe.core.evaluation import Evaluation
from nnpipe.tasks.detection.matching import matches_of

_MOST_CLASSES = 1 << 16  # 101 numbers of each
RECALLS = np.linspace(0.0, 1.0, 101)
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
        The greatest precision at each recall of 0, 0.01, ... 1, or above; 0 where it is not reached; ``(101,)``.
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


def class_curves(found: Evaluation) -> list[ClassCurve]:
    """Return the curves of all classes that have true boxes, at an overlap of 0.5.

    Raises
    ------
    ArtifactError
        If there are more classes than a report can show.
    """
    matches = matches_of(found)
    wanted = np.bincount(matches.true_label[matches.wanted[:, 0]], minlength=matches.classes)
    if np.count_nonzero(wanted) > _MOST_CLASSES:
        raise ArtifactError(f"{np.count_nonzero(wanted):,} classes are more than a report can show ({_MOST_CLASSES:,})")
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
        area = float(np.sum(np.diff(recall, prepend=0) * best)) if stepwise else float(precision.mean())
        most = float(recall[-1]) if len(recall) else 0.0
        curves.append(ClassCurve(label, precision, area, int(wanted[label]), int(counted.sum()), most))
    return curves


def best_score(found: Evaluation) -> float:
    """Return the least score of boxes with which F1 at an overlap of 0.5, of all classes together, is greatest."""
    matches = matches_of(found)
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


def mistakes(found: Evaluation, score: float) -> Integers:
    """Return how many boxes of each picture are missing or wrong at an overlap of 0.5, ``(pictures,)``.

    Parameters
    ----------
    found
        The evaluation.
    score
        The least score of boxes that count.
    """
    matches, pictures = matches_of(found), len(found)
    sure = (matches.score >= score) & ~matches.ignored[:, 0, 0]
    right = sure & matches.right[:, 0, 0]
    wanted = np.bincount(matches.true_picture[matches.wanted[:, 0]], minlength=pictures)
    given = np.bincount(matches.picture[sure], minlength=pictures)
    hits = np.bincount(matches.picture[right], minlength=pictures)
    counts: Integers = wanted + given - 2 * hits
    return counts
