"""The metrics of a detection: COCO's average precision and recall.

They are those of ``pycocotools/cocoeval.py``, ``accumulate`` and ``summarize``.  Precision and recall change upwards
only where a box is right, so only these boxes are looked at for each weighting of pictures.

By the rules of Pascal VOC and Open Images, mAP is the area below the curve at an overlap of 0.5, and there are no
figures by area.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nnpipe.core.evaluation import Evaluation
from nnpipe.core.quality_metric import Floats, QualityMetric, Statistic
from nnpipe.tasks.detection.matching import AREAS, THRESHOLDS, Matches, matches_of

_RECALLS = np.linspace(0.0, 1.0, 101)
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class _Curves:
    """Precision and recall at the boxes that are right, for each class and threshold, as functions of weights.

    A curve is one class at one threshold; the right boxes of all curves follow each other.

    Attributes
    ----------
    picture
        Picture of each right box, ``(r,)``.
    curve
        Curve of each right box, ``(r,)``, ascending.
    last, first
        For each right box, the place after it and the start of its class among the boxes that count in all curves
        (``usual``, their pictures), ``(r,)``.
    rare_last, rare_first
        The same among those that count in some curves only (``rare``, their pictures).
    label
        Class of each curve.
    wanted_picture, wanted_label
        Picture and class of each true box that counts.
    classes, thresholds
        The number of classes, and of thresholds.
    """

    picture: Integers
    curve: Integers
    last: Integers
    first: Integers
    usual: Integers
    rare_last: Integers
    rare_first: Integers
    rare: Integers
    label: Integers
    wanted_picture: Integers
    wanted_label: Integers
    classes: int
    thresholds: int

    @classmethod
    def of(cls, found: Matches, thresholds: list[int], area: int) -> _Curves:
        right = found.right[:, thresholds, area]
        counted = ~np.asarray(found.ignored[:, thresholds, area])
        always = np.asarray(counted.all(axis=1))
        threshold, box = np.nonzero(right.T)
        rare_threshold, rare_box = np.nonzero((counted & ~always[:, None]).T)
        count = len(found.label)
        start = np.searchsorted(found.label, found.label[box])
        before = np.concatenate([[0], np.cumsum(always)])
        rare_place = rare_threshold * (count + 1) + rare_box
        wanted = found.wanted[:, area]
        return cls(
            picture=found.picture[box],
            curve=threshold * found.classes + found.label[box],
            last=before[box + 1],
            first=before[start],
            usual=found.picture[always],
            rare_last=np.searchsorted(rare_place, threshold * (count + 1) + box, "right"),
            rare_first=np.searchsorted(rare_place, threshold * (count + 1) + start, "left"),
            rare=found.picture[rare_box],
            label=np.tile(np.arange(found.classes), len(thresholds)),
            wanted_picture=found.true_picture[wanted],
            wanted_label=found.true_label[wanted],
            classes=found.classes,
            thresholds=len(thresholds),
        )

    def wanted(self, weights: Floats) -> Floats:
        """Return the number of true boxes of each class, ``(classes,)``."""
        return np.bincount(self.wanted_label, weights[self.wanted_picture], self.classes).astype(np.float64)

    def mean(self, curves: Floats, wanted: Floats) -> float:
        """Return the mean over the curves of all classes that have true boxes; NaN without any."""
        there = int(np.count_nonzero(wanted > 0))
        return (
            float(curves[np.tile(wanted > 0, self.thresholds)].sum()) / (there * self.thresholds) if there else np.nan
        )

    def average_precision(self, weights: Floats, recalls: Floats | None = _RECALLS) -> float:
        """Return the mean of the precision at these recalls, or at all, over all curves."""
        wanted = self.wanted(weights)
        each = weights[self.picture]
        starts = np.searchsorted(self.curve, self.curve)
        right = np.cumsum(each)
        right = right - np.concatenate([[0.0], right])[starts]
        usual, rare = _sums(weights[self.usual]), _sums(weights[self.rare])
        counted = usual[self.last] - usual[self.first] + rare[self.rare_last] - rare[self.rare_first]
        precision = right / (counted + np.spacing(1))
        of_class = wanted[self.label[self.curve]]
        recall = np.divide(right, of_class, out=np.zeros(len(right)), where=of_class > 0)
        if recalls is None:
            fresh = np.divide(each, of_class, out=np.zeros(len(each)), where=of_class > 0)
        else:
            # A recall of 0.7 is asked for as 0.7000000000000001, as by pycocotools.
            reached = np.searchsorted(recalls, recall, "right") / len(recalls)
            fresh = np.diff(reached, prepend=0)
            firsts = np.flatnonzero(starts == np.arange(len(starts)))
            fresh[firsts] = reached[firsts]
        # The greatest precision from each recall on: each curve, from the last to the first, is lifted above the one
        # before, so that one pass serves all.
        lift = 2.0 * (len(self.label) - self.curve)
        best = np.maximum.accumulate((precision + lift)[::-1])[::-1] - lift
        areas = np.bincount(self.curve, best * fresh, len(self.label)).astype(np.float64)
        return self.mean(areas, wanted)

    def average_recall(self, weights: Floats) -> float:
        """Return the mean of the greatest recall, over all curves."""
        wanted = self.wanted(weights)
        right = np.bincount(self.curve, weights[self.picture], len(self.label))
        of_class = wanted[self.label]
        return self.mean(np.divide(right, of_class, out=np.zeros(len(right)), where=of_class > 0), wanted)


def _sums(values: Floats) -> Floats:
    return np.concatenate([[0.0], np.cumsum(values)])


def _measured(
    of: Callable[[_Curves, str], Statistic], thresholds: list[int] | None = None, area: str = "all"
) -> Callable[[Evaluation], Statistic]:
    def prepare(found: Evaluation) -> Statistic:
        which = thresholds
        if (protocol := found.settings.get("protocol", "coco")) != "coco":
            if area != "all":
                return lambda weights: float("nan")
            which = thresholds or [0]
        matches = matches_of(found)
        curves = _Curves.of(matches, list(range(len(THRESHOLDS))) if which is None else which, list(AREAS).index(area))
        return of(curves, protocol)

    return prepare


def _precision(curves: _Curves, protocol: str) -> Statistic:
    recalls = _RECALLS if protocol == "coco" else None
    return lambda weights: curves.average_precision(weights, recalls)


def _recall(curves: _Curves, protocol: str) -> Statistic:
    return curves.average_recall


_OVERLAPS = "mean over the classes, and over overlaps from 0.5 to 0.95, of the precision at 101 recalls"

METRICS = (
    QualityMetric("map", "mAP", "Mean average precision", _OVERLAPS, statistic=_measured(_precision)),
    QualityMetric(
        "ap50", "AP50", "Average precision at an overlap of 0.5",
        "mean over the classes of the precision at 101 recalls, if boxes that overlap by half are right",
        statistic=_measured(_precision, [0]),
    ),
    QualityMetric(
        "ap75", "AP75", "Average precision at an overlap of 0.75",
        "mean over the classes of the precision at 101 recalls, if boxes that overlap by three quarters are right",
        statistic=_measured(_precision, [5]),
    ),
    *(
        QualityMetric(
            f"map_{area}", f"mAP {area}", f"Mean average precision of {area} boxes",
            f"{_OVERLAPS}, for boxes of {sizes} pixels", statistic=_measured(_precision, area=area),
        )
        for area, sizes in (
            ("small", "less than 32 x 32"), ("medium", "32 x 32 to 96 x 96"), ("large", "more than 96 x 96"),
        )
    ),
    QualityMetric(
        "ar100", "AR100", "Average recall of 100 boxes",
        "mean over the classes, and over overlaps from 0.5 to 0.95, of the share of true boxes that are found among "
        "100 boxes of a class in a picture", statistic=_measured(_recall),
    ),
)  # fmt: skip
"""The metrics, the one by which detectors are ranked first."""
