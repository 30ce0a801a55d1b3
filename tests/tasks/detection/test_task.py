"""Predicted boxes become evaluations: undone from the model's input, unpadded, and doubted if
they collapsed.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from nnpipe.core.errors import SpecMismatch
from nnpipe.core.evaluation import Evaluation
from nnpipe.core.tensors import DatasetSpec
from nnpipe.tasks.detection.task import Detection
from nnpipe.tasks.frames import convert_boxes_to_pixels, create_frames
from nnpipe.testing.task import TaskContract

SPEC = DatasetSpec("detection", (), (), ("cat", "dog"))
TRUTH = {
    "boxes": np.array([[[10.0, 20, 30, 40], [0, 0, 5, 5]], [[1, 2, 3, 4], [0, 0, 0, 0]]]),
    "class": np.array([[0, 1], [1, -1]]),
    "size": np.array([[100, 200], [50, 50]], np.int32),
}


def perfect() -> dict[str, np.ndarray]:
    return {"boxes": TRUTH["boxes"], "scores": np.ones((2, 2)), "class": TRUTH["class"]}


def test_perfect_boxes_have_perfect_metrics() -> None:
    found = Detection().evaluate(perfect(), TRUTH, SPEC)
    assert found.ragged["boxes"].counts.tolist() == [2, 1]
    assert found.settings["protocol"] == "coco"
    for metric in Detection().metrics:
        assert metric.compute(found) == 1 or metric.name.endswith(("_medium", "_large")), (
            metric.name
        )


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"boxes": np.zeros((2, 2, 5))}, r"the shape \(2, k, 4\)"),
        ({"scores": np.ones((2, 3))}, r"\(2, k\)"),
        ({"class": np.array([[0.0, 1], [1, -1]])}, "class integers"),
        ({"class": np.array([[0, 2], [1, -1]])}, "class must be below 2"),
    ],
)
def test_predictions_of_another_form_are_refused(change: dict[str, np.ndarray], told: str) -> None:
    with pytest.raises(SpecMismatch, match=told):
        Detection().evaluate(perfect() | change, TRUTH, SPEC)


def test_raw_outputs_are_refused_with_a_hint_at_decoders() -> None:
    with pytest.raises(SpecMismatch, match="--decoder"):
        Detection().evaluate({"output": np.zeros((2, 85, 22, 22))}, TRUTH, SPEC)


@pytest.mark.parametrize("fit", ["squeeze", "letterbox", "letterbox-centre"])
def test_boxes_in_the_models_input_are_found_in_the_picture(fit: str) -> None:
    from nnpipe.core.image_conversion import resize_images, resize_to_letterbox

    image = np.zeros((1, 90, 200, 1), np.float32)
    image[0, 30:60, 100:160] = 1
    if fit == "squeeze":
        taken = resize_images(image, 128, 160)
    else:
        taken = resize_to_letterbox(image, 128, 160, centred=fit == "letterbox-centre")
    rows, columns = (np.flatnonzero((taken[0, ..., 0] > 0.5).any(axis=axis)) for axis in (1, 0))
    start, end = np.array([columns[0], rows[0]]), np.array([columns[-1] + 1, rows[-1] + 1])
    shares = np.concatenate([start / [160, 128], (end - start) / [160, 128]])[None, None]
    found = convert_boxes_to_pixels(shares, create_frames(1, 128, 160, fit), np.array([[90, 200]]))
    np.testing.assert_allclose(found[0, 0], [100, 30, 60, 30], atol=1.3)


def test_a_collapsed_detector_is_doubted() -> None:
    classes = np.zeros((2, 30), np.int64)
    boxes = np.broadcast_to(np.array([0.0, 0, 5, 5]), (2, 30, 4))
    one = {"boxes": boxes, "scores": np.full((2, 30), 0.5), "class": classes}
    assert [kind for kind, _ in Detection().warnings(Detection().evaluate(one, TRUTH, SPEC))] == [
        "collapsed"
    ]
    none = {"boxes": boxes, "scores": one["scores"], "class": np.full((2, 30), -1)}
    assert "finds nothing" in next(Detection().warnings(Detection().evaluate(none, TRUTH, SPEC)))[1]
    usual = one | {"scores": np.linspace(0, 1, 60).reshape(2, 30)}
    assert not list(Detection().warnings(Detection().evaluate(usual, TRUTH, SPEC)))


def test_by_open_images_rules_classes_that_were_not_looked_for_do_not_count() -> None:
    task = Detection(protocol="open_images")
    given = perfect() | {"class": np.array([[0, 1], [1, 0]])}
    found = task.evaluate(given, TRUTH | {"verified": np.array([[0], [-1]])}, SPEC)
    assert found.ragged["class"].values.tolist() == [0, 1, 1]
    assert found.settings["protocol"] == "open_images"


class TestDetection(TaskContract):
    @pytest.fixture
    def task(self) -> Detection:
        return Detection()

    @pytest.fixture
    def spec(self) -> DatasetSpec:
        return SPEC

    @pytest.fixture
    def truth(self) -> dict[str, np.ndarray]:
        random = np.random.default_rng(0)
        corners, sizes = random.uniform(0, 200, (12, 5, 2)), random.uniform(10, 150, (12, 5, 2))
        return {
            "boxes": np.concatenate([corners, sizes], axis=2),
            "class": random.integers(-1, 2, (12, 5)),
        }

    @pytest.fixture
    def predictions(self, truth: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        random = np.random.default_rng(1)
        shift = random.uniform(0, 40, truth["boxes"].shape)
        return {
            "boxes": truth["boxes"] + shift,
            "scores": random.random(truth["class"].shape),
            "class": np.where(random.random(truth["class"].shape) < 0.8, truth["class"], -1),
        }


def test_evaluations_above_different_scores_are_not_compared() -> None:
    found = Detection().evaluate(perfect(), TRUTH, SPEC)

    def by(name: str, score: float) -> Evaluation:
        told = {"class": name, "arguments": {"score_threshold": score, "overlap": random.random()}}
        return replace(found, settings={**found.settings, "decoder": told})

    random = np.random.default_rng(0)
    assert Detection().has_same_settings(by("a", 0.001), by("b", 0.001))
    assert not Detection().has_same_settings(by("a", 0.001), by("a", 0.25))
    assert not Detection().has_same_settings(found, replace(found, settings={"protocol": "pascal"}))
