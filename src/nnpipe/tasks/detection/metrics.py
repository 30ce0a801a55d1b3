"""The metrics of a detection: COCO's average precision and recall.

By the rules of Pascal VOC and Open Images, mAP is the area below the curve at an overlap of 0.5, and there are no
figures by area.
"""

from __future__ import annotations

from collections.abc import Callable

from nnpipe.core.evaluation import Evaluation
from nnpipe.core.quality_metric import QualityMetric, Statistic
from nnpipe.tasks.average_precision import RECALLS, PrecisionCurves
from nnpipe.tasks.detection.matching import MOST_DETECTIONS, matches_of
from nnpipe.tasks.greedy_matching import AREAS, THRESHOLDS


def _measured(
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
        matches = matches_of(found)
        place = list(AREAS).index(area)
        chosen = list(range(len(THRESHOLDS))) if which is None else which
        wanted = matches.wanted[:, place]
        counted = (matches.place < most) | (protocol != "coco" and most == MOST_DETECTIONS)
        curves = PrecisionCurves.of(
            matches.picture[counted], matches.label[counted], matches.right[counted][:, chosen, place],
            matches.ignored[counted][:, chosen, place],
            matches.true_picture[wanted], matches.true_label[wanted], matches.classes,
        )  # fmt: skip
        return of(curves, protocol)

    return prepare


def _precision(curves: PrecisionCurves, protocol: str) -> Statistic:
    recalls = RECALLS if protocol == "coco" else None
    return lambda weights: curves.average_precision(weights, recalls)


def _recall(curves: PrecisionCurves, protocol: str) -> Statistic:
    return curves.average_recall


_OVERLAPS = "mean over the classes, and over overlaps from 0.5 to 0.95, of the"
_SIZES = (("small", "less than 32 x 32"), ("medium", "32 x 32 to 96 x 96"), ("large", "more than 96 x 96"))

METRICS = (
    QualityMetric(
        "map", "mAP", "Mean average precision", f"{_OVERLAPS} precision at 101 recalls",
        "share", False, statistic=_measured(_precision)
    ),
    QualityMetric(
        "ap50", "AP50", "Average precision at an overlap of 0.5",
        "mean over the classes of the precision at 101 recalls, if boxes that overlap by half are right",
        "share", False,
        statistic=_measured(_precision, [0]),
    ),
    QualityMetric(
        "ap75", "AP75", "Average precision at an overlap of 0.75",
        "mean over the classes of the precision at 101 recalls, if boxes that overlap by three quarters are right",
        "share", False,
        statistic=_measured(_precision, [5]),
    ),
    *(
        QualityMetric(
            f"map_{area}", f"mAP {area}", f"Mean average precision of {area} boxes",
            f"{_OVERLAPS} precision at 101 recalls, for boxes of {sizes} pixels", "share", False,
            statistic=_measured(_precision, area=area),
        )
        for area, sizes in _SIZES
    ),
    *(
        QualityMetric(
            f"ar{most}", f"AR{most}", f"Average recall of {most} box{'es' * (most > 1)}",
            f"{_OVERLAPS} share of true boxes that are found among {most} "
            f"box{'es' * (most > 1)} of a class in a picture", "share", False,
            statistic=_measured(_recall, most=most),
        )
        for most in (1, 10, MOST_DETECTIONS)
    ),
    *(
        QualityMetric(
            f"ar_{area}", f"AR {area}", f"Average recall of {area} boxes",
            f"{_OVERLAPS} share of true boxes of {sizes} pixels that are found", "share", False,
            statistic=_measured(_recall, area=area),
        )
        for area, sizes in _SIZES
    ),
)  # fmt: skip
"""The twelve figures of COCO, the one by which detectors are ranked first."""
