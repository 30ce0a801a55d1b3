"""The average precision of masks is that of pycocotools, whether masks are run lengths or
bitmaps.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from installed import needs
from pycocotools_stats import assert_same_in, pycocotools_stats

from nnpipe.core.errors import SpecMismatch
from nnpipe.core.tensors import Batch, DatasetSpec
from nnpipe.tasks.frames import create_frames
from nnpipe.tasks.instance_segmentation.run_lengths import (
    compute_run_areas,
    compute_run_intersections,
    encode_mask_runs,
    pad_runs,
)
from nnpipe.tasks.instance_segmentation.task import InstanceSegmentation

SPEC = DatasetSpec("instance_segmentation", (), (), ("cat", "dog", "cow"))
NAMES = (
    "mask_map",
    "mask_ap50",
    "mask_ap75",
    "mask_map_small",
    "mask_map_medium",
    "mask_map_large",
    "mask_ar100",
)
PLACES = (0, 1, 2, 3, 4, 5, 8)  # of these in pycocotools' stats


def blobs(random: np.random.Generator, count: int, height: int, width: int) -> np.ndarray:
    """Return random rectangles with holes and rough edges, ``(count, height, width)``."""
    found = np.zeros((count, height, width), bool)
    for mask in found:
        top, left = random.integers(0, height - 4), random.integers(0, width - 4)
        part = mask[top : top + random.integers(3, height), left : left + random.integers(3, width)]
        part[:] = random.random(part.shape) < 0.95
    return found


def random_case(random: np.random.Generator) -> tuple[Batch, Batch, np.ndarray, np.ndarray]:
    """Return predictions, truth and both as bitmaps, with crowds, ties, padding and empty
    pictures.
    """
    pictures, most, height, width = int(random.integers(1, 5)), 5, *random.integers(10, 130, 2)
    true = blobs(random, pictures * most, height, width)
    moved = np.concatenate(
        [np.roll(true, random.integers(-2, 3), axis=2), np.roll(true, 5, axis=1)]
    )
    guessed = moved.reshape(2, pictures, most, height, width).transpose(1, 0, 2, 3, 4)
    guessed = guessed.reshape(pictures, 2 * most, height, width)
    truth = {
        "runs": pad_runs([encode_mask_runs(mask) for mask in true]).reshape(pictures, most, -1),
        "class": random.integers(-1, 3, (pictures, most)),
        "crowd": (random.random((pictures, most)) < 0.15).astype(np.uint8),
        "size": np.tile([height, width], (pictures, 1)),
    }
    classes = np.where(random.random((pictures, 2 * most)) < 0.8, np.tile(truth["class"], 2), 0)
    scores = np.round(random.random((pictures, 2 * most)), 1)
    predictions = {"masks": guessed.astype(np.float32), "class": classes, "scores": scores}
    return predictions, truth, guessed, true.reshape(pictures, most, height, width)


def of_pycocotools(
    predictions: Batch, truth: Batch, guessed: np.ndarray, true: np.ndarray
) -> list[float] | None:
    from pycocotools.mask import area, encode

    annotations: list[dict[str, Any]] = []
    results: list[dict[str, Any]] = []
    for picture, thing in np.ndindex(*truth["class"].shape):
        if truth["class"][picture, thing] >= 0:
            runs = encode(np.asfortranarray(true[picture, thing].astype(np.uint8)))
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": picture,
                    "category_id": int(truth["class"][picture, thing]) + 1,
                    "segmentation": runs,
                    "area": float(area(runs)),
                    "iscrowd": int(truth["crowd"][picture, thing]),
                    "bbox": [0, 0, 1, 1],
                }
            )
    for picture, thing in np.ndindex(*predictions["class"].shape):
        if predictions["class"][picture, thing] >= 0:
            runs = encode(np.asfortranarray(guessed[picture, thing].astype(np.uint8)))
            results.append(
                {
                    "image_id": picture,
                    "category_id": int(predictions["class"][picture, thing]) + 1,
                    "segmentation": runs,
                    "score": float(np.float32(predictions["scores"][picture, thing])),
                }
            )
    if not results:
        return None
    height, width = (int(each) for each in truth["size"][0])
    images = [{"id": picture, "height": height, "width": width} for picture in range(len(true))]
    return pycocotools_stats("segm", images, [1, 2, 3], annotations, results)


def assert_same_as_pycocotools(cases: int) -> None:
    needs("pycocotools")
    random, task = np.random.default_rng(5), InstanceSegmentation()

    def compared() -> tuple[list[float], list[float]] | None:
        case = random_case(random)
        if (wanted := of_pycocotools(*case)) is None:
            return None
        judged = task.evaluate(case[0], case[1], SPEC)
        return [task.metric(name).compute(judged) for name in NAMES], [
            wanted[place] for place in PLACES
        ]

    assert_same_in(cases, compared)


def test_average_precision_is_that_of_pycocotools() -> None:
    assert_same_as_pycocotools(15)


@pytest.mark.slow
def test_average_precision_is_that_of_pycocotools_in_a_thousand_cases() -> None:
    assert_same_as_pycocotools(1000)


def test_runs_are_counted_without_drawing_masks() -> None:
    random = np.random.default_rng(0)
    masks = [*blobs(random, 6, 9, 14), np.zeros((9, 14), bool), np.ones((9, 14), bool)]
    runs = pad_runs([encode_mask_runs(mask) for mask in masks])
    assert runs.sum(axis=1).tolist() == [9 * 14] * 8
    assert compute_run_areas(runs).tolist() == [mask.sum() for mask in masks]
    wanted = [[(one & other).sum() for other in masks] for one in masks]
    np.testing.assert_array_equal(compute_run_intersections(runs, runs), wanted)


def test_masks_may_have_the_size_of_the_input() -> None:
    mask = np.zeros((1, 1, 8, 8), np.float32)
    mask[0, 0, 2:6, 0:4] = 1
    picture = np.zeros((16, 32), bool)
    picture[0:16, 0:16] = True
    truth = {
        "runs": encode_mask_runs(picture)[None, None],
        "class": np.zeros((1, 1), int),
        "size": np.array([[16, 32]]),
    }
    given = {"class": np.zeros((1, 1), int), "scores": np.ones((1, 1))}
    judged = InstanceSegmentation().evaluate(
        {**given, "masks": mask, "frame": create_frames(1, 8, 8, "letterbox-centre")}, truth, SPEC
    )
    # A cell is four pixels wide, and interpolation rounds off the two corners inside the picture.
    assert judged.ragged["pairs"].values.tolist() == [[0, 0, 254 / 256]]
    with pytest.raises(SpecMismatch, match="smaller than their picture"):
        InstanceSegmentation().evaluate({**given, "masks": mask}, truth, SPEC)


def test_runs_that_cannot_be_are_refused() -> None:
    truth = {
        "runs": np.array([[[3, 1]]]),
        "class": np.zeros((1, 1), int),
        "size": np.array([[2, 2]]),
    }
    given = {"class": np.zeros((1, 1), int), "scores": np.ones((1, 1))}
    for runs, told in (
        ([[[3, 2]]], "has 5 pixels"),
        ([[[-1, 5]]], "lengths from 0 to 4"),
        ([[[1 << 62, 4]]], "lengths"),
    ):
        with pytest.raises(SpecMismatch, match=told):
            InstanceSegmentation().evaluate({**given, "runs": np.array(runs)}, truth, SPEC)
