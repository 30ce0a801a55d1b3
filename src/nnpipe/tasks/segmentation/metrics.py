"""The metrics of a segmentation, from the pixels of each picture by true and predicted class."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nnpipe.core.evaluation import Evaluation
from nnpipe.core.quality_metric import Floats, QualityMetric, Statistic

_DENSE = 1 << 24  # numbers, 128 MiB


@dataclass(frozen=True, eq=False)
class ClassPixels:
    """Numbers of pixels of each class, ``(classes,)`` each.

    Attributes
    ----------
    true, called
        Pixels that are of the class, and that were called so.
    right
        Pixels that are both.
    near_both, near_either
        Pixels of the class near the true and near the predicted contour, and near at least one of
        the two.
    """

    true: Floats
    called: Floats
    right: Floats
    near_both: Floats
    near_either: Floats

    @property
    def iou(self) -> Floats:
        """Right pixels by those that are or were called of the class; NaN for a class that is
        nowhere.
        """
        return _compute_ratio(self.right, self.true + self.called - self.right)

    @property
    def dice(self) -> Floats:
        """Twice the right pixels by those that are and those that were called of the class."""
        return _compute_ratio(2 * self.right, self.true + self.called)

    @property
    def boundary_iou(self) -> Floats:
        """The same as ``iou``, of pixels near contours only."""
        return _compute_ratio(self.near_both, self.near_either)


def prepare_class_pixels(
    found: Evaluation,
) -> tuple[npt.NDArray[np.int64], Callable[[Floats], ClassPixels]]:
    """Return the classes of an evaluation, and a function that counts their pixels for weights
    of pictures.
    """
    pixels, contours = found.ragged["pixels"], found.ragged["contours"]
    rows, near = pixels.values.astype(np.int64), contours.values.astype(np.int64)
    classes, places = np.unique(
        np.concatenate([rows[:, 0], rows[:, 1], near[:, 0]]), return_inverse=True
    )
    true, called, edge = np.split(places.reshape(-1), [len(rows), 2 * len(rows)])
    right, count = true == called, len(classes)
    owners, edge_owners = pixels.owners, contours.owners
    numbers, both, either = (
        column.astype(np.float64) for column in (rows[:, 2], near[:, 1], near[:, 2])
    )
    parts = (
        (true, owners, numbers),
        (called, owners, numbers),
        (true[right], owners[right], numbers[right]),
        (edge, edge_owners, both),
        (edge, edge_owners, either),
    )
    # sums of all weightings are one product each then
    if len(found) * len(parts) * count <= _DENSE:
        table = np.concatenate(
            [_compute_dense_sums(part, len(found), count) for part in parts], axis=1
        )
        return classes, lambda weights: ClassPixels(*(weights @ table).reshape(len(parts), count))

    def count_pixels(weights: Floats) -> ClassPixels:
        return ClassPixels(
            *(
                np.bincount(place, weights[owner] * each, count).astype(np.float64)
                for place, owner, each in parts
            )
        )

    return classes, count_pixels


def _compute_dense_sums(
    part: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], Floats], pictures: int, count: int
) -> Floats:
    """Return sums by picture and class, ``(pictures, classes)``."""
    place, owner, each = part
    sums = np.bincount(owner * count + place, each, pictures * count)
    return sums.astype(np.float64).reshape(pictures, count)


def count_true_pixels(found: Evaluation) -> npt.NDArray[np.int64]:
    """Return picture, true class and number of pixels, ``(k, 3)``, of all classes in all
    pictures, sorted.
    """
    pixels = found.ragged["pixels"]
    rows = pixels.values.astype(np.int64)
    kinds, places = np.unique(
        np.stack([pixels.owners, rows[:, 0]], axis=1), axis=0, return_inverse=True
    )
    numbers = np.zeros(len(kinds), np.int64)
    np.add.at(numbers, places.reshape(-1), rows[:, 2])
    return np.concatenate([kinds, numbers[:, None]], axis=1)


def _compute_ratio(part: Floats, whole: Floats) -> Floats:
    found: Floats = np.divide(part, whole, out=np.full(len(whole), np.nan), where=whole > 0)
    return found


def _create_class_mean_statistic(
    measure: Callable[[ClassPixels], Floats],
) -> Callable[[Evaluation], Statistic]:
    """Return the mean of a measure over the classes that are in the truth."""

    def prepare(found: Evaluation) -> Statistic:
        _, counted = prepare_class_pixels(found)

        def statistic(weights: Floats) -> float:
            pixels = counted(weights)
            there = pixels.true > 0
            return (
                float(np.nan_to_num(measure(pixels)[there]).mean()) if there.any() else float("nan")
            )

        return statistic

    return prepare


def _prepare_pixel_accuracy(found: Evaluation) -> Statistic:
    pixels = found.ragged["pixels"]
    rows, count = pixels.values.astype(np.int64), len(found)
    numbers = rows[:, 2].astype(np.float64)
    every = np.bincount(pixels.owners, numbers, count)
    right = np.bincount(pixels.owners, numbers * (rows[:, 0] == rows[:, 1]), count)

    def statistic(weights: Floats) -> float:
        total = float(weights @ every)
        return float(weights @ right) / total if total > 0 else float("nan")

    return statistic


METRICS = (
    QualityMetric(
        "mean_iou", "Mean IoU", "Mean intersection over union",
        "mean over the classes in the truth of the pixels right by those that are or were called "
        "of the class",
        "share", False,
        statistic=_create_class_mean_statistic(lambda pixels: pixels.iou),
    ),
    QualityMetric(
        "mean_dice", "Mean Dice", "Mean Dice coefficient",
        "mean over the classes in the truth of twice the pixels right by those that are and those "
        "that were called of "
        "the class", "share", False,
        statistic=_create_class_mean_statistic(lambda pixels: pixels.dice),
    ),
    QualityMetric(
        "pixel_accuracy", "Pixels", "Pixels right", "share of the pixels whose class is right",
        "share", False, statistic=_prepare_pixel_accuracy,
    ),
    QualityMetric(
        "boundary_iou", "Boundary IoU", "Mean boundary intersection over union",
        "mean over the classes in the truth of the IoU of pixels near contours (Cheng et al., CVPR "
        "2021)",
        "share", False,
        statistic=_create_class_mean_statistic(lambda pixels: pixels.boundary_iou),
    ),
)  # fmt: skip
