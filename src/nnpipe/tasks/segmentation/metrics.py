"""The metrics of a segmentation, from the pixels of each image by true and predicted class."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nnpipe.core.evaluation import Evaluation
from nnpipe.core.quality_metric import Floats, QualityMetric, Statistic


def _over_classes(measure: Callable[[Floats, Floats], Floats]) -> Callable[[Evaluation], Statistic]:
    """Return the mean of a measure of each class's right pixels and of its true and predicted ones together.

    Classes that are neither in the truth nor among the predictions do not count.
    """

    def prepare(found: Evaluation) -> Statistic:
        confusion = found.arrays["confusion"].astype(np.float64)
        count, classes = confusion.shape[:2]
        flat = confusion.reshape(count, classes * classes)

        def statistic(weights: Floats) -> float:
            matrix = (weights @ flat).reshape(classes, classes)
            both = matrix.sum(axis=0) + matrix.sum(axis=1)
            there = both > 0
            return float(measure(matrix.diagonal()[there], both[there]).mean()) if there.any() else float("nan")

        return statistic

    return prepare


def _pixels(found: Evaluation) -> Statistic:
    confusion = found.arrays["confusion"]
    right = np.trace(confusion, axis1=1, axis2=2).astype(np.float64)
    pixels = confusion.sum(axis=(1, 2)).astype(np.float64)

    def statistic(weights: Floats) -> float:
        total = float(weights @ pixels)
        return float(weights @ right) / total if total > 0 else float("nan")

    return statistic


METRICS = (
    QualityMetric(
        "mean_iou", "Mean IoU", "Mean intersection over union",
        "mean over the classes of the pixels right by those that are or were called of the class",
        statistic=_over_classes(lambda right, both: right / (both - right)),
    ),
    QualityMetric(
        "mean_dice", "Mean Dice", "Mean Dice coefficient",
        "mean over the classes of twice the pixels right by those that are and those that were called of the class",
        statistic=_over_classes(lambda right, both: 2 * right / both),
    ),
    QualityMetric(
        "pixel_accuracy", "Pixels", "Pixels right", "share of the pixels whose class is right", statistic=_pixels,
    ),
)  # fmt: skip
