"""Masks are judged at the size of the picture, wherever it lies in a model's input, and contours
as by definition.
"""

from __future__ import annotations

import numpy as np
import pytest

from nnpipe.core.errors import SpecMismatch
from nnpipe.core.task import get_task
from nnpipe.core.tensors import DatasetSpec
from nnpipe.tasks.frames import create_frames
from nnpipe.tasks.segmentation.task import Segmentation, find_near_contours

SPEC = DatasetSpec("segmentation", (), (), ("ground", "thing", "other"))


def metric(name: str, predicted: np.ndarray, truth: np.ndarray) -> float:
    judged = Segmentation().evaluate({"mask": predicted}, {"mask": truth}, SPEC)
    return Segmentation().metric(name).compute(judged)


@pytest.mark.parametrize("reach", [1, 2, 5])
def test_pixels_near_contours_are_those_with_another_class_nearby(reach: int) -> None:
    random = np.random.default_rng(reach)
    labels = np.kron(random.integers(0, 3, (3, 4)), np.ones((5, 4), np.int64))
    found = find_near_contours(labels, reach)
    padded = np.pad(labels, reach, constant_values=9)
    for row, column in np.ndindex(*labels.shape):
        window = padded[row : row + 2 * reach + 1, column : column + 2 * reach + 1]
        assert found[row, column] == bool((window != labels[row, column]).any())
    assert 0 < found.sum() < labels.size or reach > 1


def test_classes_that_are_not_in_the_truth_do_not_count() -> None:
    truth = np.zeros((1, 2, 5), np.int64)
    truth[0, 0] = 1
    predicted = truth.copy()
    predicted[0, 0, 0] = 2
    assert metric("mean_iou", predicted, truth) == pytest.approx((0.8 + 1) / 2)
    assert metric("mean_dice", predicted, truth) == pytest.approx((2 * 4 / 9 + 1) / 2)


def test_a_shifted_contour_costs_more_near_the_contour() -> None:
    truth = np.zeros((1, 200, 200), np.int64)
    truth[0, 40:160, 40:160] = 1
    shifted = np.roll(truth, 3, axis=2)
    assert metric("boundary_iou", shifted, truth) < metric("mean_iou", shifted, truth) - 0.2
    truth[0, :, :100] = 255
    assert metric("boundary_iou", np.where(truth == 255, 2, truth), truth) == 1


@pytest.mark.parametrize("fit", ["squeeze", "letterbox", "letterbox-centre"])
def test_masks_are_compared_in_pixels_of_pictures(fit: str) -> None:
    sizes = np.array([[30, 60], [60, 60], [20, 10]])
    truth = np.full((3, 60, 60), -1, np.int64)
    inputs = np.full((3, 60, 60), 2, np.int64)
    for place, (height, width) in enumerate(sizes):
        truth[place, :height, :width] = 0
        truth[place, : height // 2, : width // 2] = 1
        step = 60 / max(height, width)
        rows, columns = (
            (60, 60) if fit == "squeeze" else (round(height * step), round(width * step))
        )
        top, left = ((60 - rows) // 2, (60 - columns) // 2) if fit == "letterbox-centre" else (0, 0)
        part = inputs[place, top : top + rows, left : left + columns]
        part[:] = 0
        part[: rows // 2, : columns // 2] = 1
    given = {"mask": inputs, "frame": create_frames(3, 60, 60, fit)}
    judged = Segmentation().evaluate(given, {"mask": truth, "size": sizes}, SPEC)
    assert Segmentation().metric("pixel_accuracy").compute(judged) == 1
    assert judged.ragged["pixels"].values[:, 2].sum() == np.prod(sizes, axis=1).sum()


def test_masks_of_other_sizes_need_a_frame() -> None:
    with pytest.raises(SpecMismatch, match="SegmentationDecoder"):
        get_task("segmentation").evaluate(
            {"mask": np.zeros((1, 8, 8), int)}, {"mask": np.zeros((1, 4, 4), int)}, SPEC
        )


def test_many_classes_need_little_memory() -> None:
    names = tuple(map(str, range(5000)))
    truth = np.arange(400).reshape(1, 20, 20) * 10
    judged = Segmentation().evaluate(
        {"mask": truth}, {"mask": truth}, DatasetSpec("segmentation", (), (), names)
    )
    assert Segmentation().primary.compute(judged) == 1
    assert judged.ragged["pixels"].values.shape == (400, 3)
