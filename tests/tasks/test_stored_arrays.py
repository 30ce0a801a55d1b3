"""What a result file says was judged may be anything: it is refused in one line before a metric
is computed.
"""

from __future__ import annotations

import numpy as np
import pytest

from nnpipe.core.errors import ArtifactError
from nnpipe.core.evaluation import Evaluation, Ragged
from nnpipe.core.task import get_task

FOUR = np.arange(4)
BOXES = {
    name: Ragged(np.ones((4, 4)) if "boxes" in name else np.ones(4, kind), np.ones(4, np.int64))
    for name, kind in (
        ("truth_boxes", float),
        ("truth_class", int),
        ("truth_crowd", np.uint8),
        ("truth_area", float),
        ("boxes", float),
        ("scores", float),
        ("class", int),
    )
}
PIXELS = {
    name: Ragged(np.ones((4, 3), int), np.ones(4, np.int64)) for name in ("pixels", "contours")
}
PERSONS = {
    "truth_points": Ragged(np.ones((4, 2, 3)), np.ones(4, np.int64)),
    "points": Ragged(np.ones((4, 2, 3)), np.ones(4, np.int64)),
    **{name: BOXES[name] for name in ("truth_boxes", "truth_crowd", "truth_area", "scores")},
}
POSE_SETTINGS = {"sigmas": [0.1, 0.1], "pck_fraction": 0.1, "pck_length": "box"}
SIZES = {"size": np.ones((4, 2), int)}
THINGS = {
    **{
        name: BOXES[name]
        for name in ("truth_class", "truth_crowd", "truth_area", "class", "scores")
    },
    "area": BOXES["truth_area"],
    "pairs": Ragged(np.zeros((4, 3)), np.ones(4, np.int64)),
}
MAPS = {
    name: Ragged(np.ones(4), np.ones(4, np.int64))
    for name in ("level", "good", "bad", "covered", "regions")
}
OF_MAPS = {"truth": FOUR, "score": np.zeros(4)}
ODD = Ragged(np.ones(4, int), np.array([4, 0, 0, 0]))


@pytest.mark.parametrize(
    "strange",
    [
        Evaluation("regression", {"truth": FOUR, "predicted": np.zeros((4, 2))}),
        Evaluation("classification", {"truth": FOUR, "predicted": np.zeros((4, 2), int)}),
        Evaluation("classification", {"truth": FOUR, "predicted": np.array([0, 1, 2, 1 << 40])}),
        Evaluation(
            "segmentation",
            {},
            (),
            {**PIXELS, "pixels": Ragged(np.ones((4, 2), int), np.ones(4, np.int64))},
        ),
        Evaluation(
            "segmentation",
            {},
            (),
            {**PIXELS, "pixels": Ragged(np.full((4, 3), -1), np.ones(4, np.int64))},
        ),
        Evaluation(
            "segmentation",
            {},
            (),
            {**PIXELS, "pixels": Ragged(np.full((4, 3), 1 << 40), np.ones(4, np.int64))},
        ),
        Evaluation(
            "segmentation",
            {},
            (),
            {**PIXELS, "contours": Ragged(np.ones((4, 3)), np.ones(4, np.int64))},
        ),
        Evaluation("pose", SIZES, (), PERSONS),
        Evaluation("pose", SIZES, (), PERSONS, {**POSE_SETTINGS, "sigmas": [0.1] * 3}),
        Evaluation("pose", SIZES, (), PERSONS, {**POSE_SETTINGS, "sigmas": [0.1, 0]}),
        Evaluation("pose", SIZES, (), PERSONS, {**POSE_SETTINGS, "pck_length": "torso"}),
        Evaluation("pose", SIZES, (), {**PERSONS, "scores": ODD}, POSE_SETTINGS),
        Evaluation(
            "instance_segmentation",
            {},
            (),
            {**THINGS, "pairs": Ragged(np.ones((4, 3)), np.ones(4, np.int64))},
        ),
        Evaluation("instance_segmentation", {}, (), {**THINGS, "area": ODD}),
        Evaluation(
            "instance_segmentation",
            {},
            (),
            {**THINGS, "class": Ragged(np.full(4, -2), np.ones(4, np.int64))},
        ),
        Evaluation("anomaly", {"truth": FOUR, "score": np.zeros((4, 2))}),
        Evaluation("anomaly", {"truth": FOUR, "score": np.zeros(4), "clip": np.zeros((4, 2))}),
        Evaluation("anomaly_map", {"truth": FOUR, "score": np.zeros((4, 2))}, (), MAPS),
        Evaluation("anomaly_map", OF_MAPS, (), {**MAPS, "good": ODD}),
        Evaluation(
            "anomaly_map",
            OF_MAPS,
            (),
            {**MAPS, "bad": Ragged(np.full(4, -1), np.ones(4, np.int64))},
        ),
        Evaluation(
            "anomaly_map",
            OF_MAPS,
            (),
            {**MAPS, "regions": Ragged(np.full(4, np.nan), np.ones(4, np.int64))},
        ),
        Evaluation("forecast", {"truth": FOUR, "predicted": FOUR, "scale": FOUR, "block": FOUR}),
        Evaluation("series_anomaly", {"window": FOUR, "series": FOUR / 2, "score": FOUR}),
        Evaluation(
            "series_anomaly",
            {"window": FOUR, "series": FOUR, "score": FOUR},
            settings={"thresholds": ["x"]},
        ),
        Evaluation("detection", {name: np.ones(4) for name in BOXES}),
        Evaluation("detection", {}, (), {**BOXES, "class": ODD}),
        Evaluation("detection", {}, (), {**BOXES, "truth_class": ODD}),
        Evaluation(
            "detection",
            {},
            (),
            {**BOXES, "class": Ragged(np.full(4, 1 << 40), np.ones(4, np.int64))},
        ),
    ],
)
def test_arrays_that_do_not_belong_together_are_refused(strange: Evaluation) -> None:
    with pytest.raises(ArtifactError) as caught:
        get_task(strange.task).check(strange)
    assert "\n" not in str(caught.value)


def test_sound_boxes_masks_and_points_are_not_refused() -> None:
    get_task("detection").check(Evaluation("detection", {}, (), BOXES))
    get_task("segmentation").check(Evaluation("segmentation", {}, (), PIXELS))
    get_task("instance_segmentation").check(Evaluation("instance_segmentation", {}, (), THINGS))
    get_task("anomaly_map").check(Evaluation("anomaly_map", OF_MAPS, (), MAPS))
    get_task("pose").check(Evaluation("pose", SIZES, (), PERSONS, POSE_SETTINGS))
