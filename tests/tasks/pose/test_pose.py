"""OKS and its average precision are those of pycocotools; PCK and distances are those of the
definitions.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from installed import needs
from pycocotools_stats import assert_same_in, pycocotools_stats

from nnpipe.core.errors import SpecMismatch
from nnpipe.core.evaluation import Evaluation
from nnpipe.core.tensors import Batch, DatasetSpec
from nnpipe.tasks.frames import create_frames
from nnpipe.tasks.pose.task import Pose

SPEC = DatasetSpec("pose", (), (), tuple(map(str, range(17))))
NAMES = ("oks_ap", "oks_ap50", "oks_ap75", "oks_ap_medium", "oks_ap_large", "oks_ar")
PLACES = (0, 1, 2, 3, 4, 5)  # of these in pycocotools' stats


def random_case(random: np.random.Generator) -> tuple[Batch, Batch]:
    """Return predictions and truth with crowds, persons without points, ties and empty pictures."""
    pictures, most = int(random.integers(2, 7)), 4
    extent = random.uniform(20, 200, (pictures, most, 1, 1))
    points = random.uniform(0, 1, (pictures, most, 17, 2)) * extent + random.uniform(
        0, 200, (pictures, most, 1, 2)
    )
    seen = random.integers(0, 3, (pictures, most, 17)) * (random.random((pictures, most, 1)) < 0.8)
    corner, size = points.min(axis=2), np.ptp(points, axis=2)
    truth = {
        "points": np.concatenate([points, seen[..., None]], axis=-1).astype(np.float32),
        "count": random.integers(0, most + 1, pictures),
        "boxes": np.concatenate([corner, size], axis=-1).astype(np.float32),
        "area": size.prod(axis=-1) * 0.6,
        "crowd": (random.random((pictures, most)) < 0.15).astype(np.uint8),
        "size": np.full((pictures, 2), 400),
    }
    guessed = np.concatenate([points, points[:, ::-1]], axis=1)
    guessed = guessed + random.normal(0, random.uniform(0.5, 25), guessed.shape)
    sure = np.ones((pictures, 2 * most, 17, 1))
    predictions = {
        "points": np.concatenate([guessed, sure], axis=-1).astype(np.float32),
        "scores": np.round(random.random((pictures, 2 * most)), 1).astype(np.float32),
        "count": random.integers(0, 2 * most + 1, pictures),
    }
    return predictions, truth


def of_pycocotools(judged: Evaluation) -> list[float]:
    annotations: list[dict[str, Any]] = []
    results: list[dict[str, Any]] = []
    for picture in range(len(judged)):
        rows = [
            judged.ragged[name][picture]
            for name in ("truth_points", "truth_boxes", "truth_area", "truth_crowd")
        ]
        for points, box, area, crowd in zip(*rows, strict=True):
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": picture,
                    "category_id": 1,
                    "bbox": box.astype(float).tolist(),
                    "keypoints": points.astype(float).ravel().tolist(),
                    "num_keypoints": int((points[:, 2] > 0).sum()),
                    "area": float(area),
                    "iscrowd": int(crowd),
                }
            )
        for points, score in zip(
            judged.ragged["points"][picture], judged.ragged["scores"][picture], strict=True
        ):
            results.append(
                {
                    "image_id": picture,
                    "category_id": 1,
                    "keypoints": points.astype(float).ravel().tolist(),
                    "score": float(score),
                }
            )
    images = [{"id": picture} for picture in range(len(judged))]
    return pycocotools_stats("keypoints", images, [1], annotations, results)


def assert_same_as_pycocotools(cases: int) -> None:
    needs("pycocotools")
    random, task = np.random.default_rng(7), Pose()

    def compared() -> tuple[list[float], list[float]] | None:
        judged = task.evaluate(*random_case(random), SPEC)
        if not len(judged.ragged["points"].values):
            return None
        found = of_pycocotools(judged)
        return [task.metric(name).compute(judged) for name in NAMES], [
            found[place] for place in PLACES
        ]

    assert_same_in(cases, compared)


def test_average_precision_is_that_of_pycocotools() -> None:
    assert_same_as_pycocotools(12)


@pytest.mark.slow
def test_average_precision_is_that_of_pycocotools_in_a_thousand_cases() -> None:
    assert_same_as_pycocotools(1000)


def one_person(moved: float, **options: Any) -> Evaluation:
    points = np.zeros((1, 1, 17, 3))
    points[0, 0, :, 0], points[0, 0, :, 1], points[..., 2] = np.arange(17) * 10, 40, 2
    points[0, 0, 3:, 2] = 0
    guess = points.copy()
    guess[0, 0, 1, 1] += moved
    truth = {"points": points, "count": np.array([1]), "size": np.array([[80, 200]])}
    return Pose(**options).evaluate({"points": guess}, truth, SPEC)


def test_distances_are_in_shares_of_the_sides() -> None:
    judged, task = one_person(8.0), Pose()
    assert task.metric("point_distance").compute(judged) == pytest.approx(0.1 / 3)
    assert task.metric("greatest_point_distance").compute(judged) == pytest.approx(0.1)


def test_key_points_are_right_within_a_part_of_a_length() -> None:
    task = Pose()
    assert task.metric("pck").compute(one_person(1.9)) == 1
    assert task.metric("pck").compute(one_person(2.1)) == pytest.approx(2 / 3)
    assert task.metric("pck").compute(one_person(19, pck_length="picture")) == 1
    # the hip is not known
    assert math.isnan(task.metric("pck").compute(one_person(0, pck_length="torso")))


def test_persons_without_a_pose_are_missed() -> None:
    predictions, truth = random_case(np.random.default_rng(0))
    nothing = {**predictions, "count": np.zeros_like(predictions["count"])}
    judged = Pose().evaluate(nothing, truth, SPEC)
    assert Pose().metric("mean_oks").compute(judged) == Pose().metric("pck").compute(judged) == 0
    assert math.isnan(Pose().metric("point_distance").compute(judged))


@pytest.mark.parametrize("fit", ["squeeze", "letterbox", "letterbox-centre"])
def test_points_of_inputs_become_points_of_pictures(fit: str) -> None:
    points = np.array([[20.0, 10.0, 1.0], [30.0, 5.0, 1.0]])
    truth = {"points": points[None, None], "count": np.array([1]), "size": np.array([[20, 40]])}
    top = 20 if fit == "letterbox-centre" else 0
    factor = np.array([2, 4]) if fit == "squeeze" else np.array([2, 2])
    inside = (points[:, :2] * factor + (0, top)) / 80
    given = {
        "points": np.concatenate([inside, points[:, 2:]], axis=1)[None, None],
        "frame": create_frames(1, 80, 80, fit),
    }
    judged = Pose().evaluate(given, truth, DatasetSpec("pose", (), (), ("a", "b")))
    np.testing.assert_allclose(judged.ragged["points"].values[0], points, rtol=1e-5)


def test_predictions_that_cannot_be_are_refused() -> None:
    predictions, truth = random_case(np.random.default_rng(0))
    for changed in (
        {"points": predictions["points"][:, :, :5]},
        {"count": predictions["count"] + 100},
        {"scores": predictions["scores"][:, :2]},
    ):
        with pytest.raises(SpecMismatch):
            Pose().evaluate({**predictions, **changed}, truth, SPEC)
    with pytest.raises(SpecMismatch, match="3 deviations"):
        Pose(sigmas=(0.1, 0.1, 0.1)).evaluate(predictions, truth, SPEC)
