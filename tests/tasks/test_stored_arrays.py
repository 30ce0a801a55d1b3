"""What a result file says was judged may be anything: it is refused in one line before a metric is computed."""

from __future__ import annotations

import numpy as np
import pytest

from nnpipe.core.errors import ArtifactError
from nnpipe.core.evaluation import Evaluation
from nnpipe.core.ragged import Ragged
from nnpipe.core.task import task_named

FOUR = np.arange(4)
BOXES = {
    name: Ragged(np.ones((4, 4)) if "boxes" in name else np.ones(4, kind), np.ones(4, np.int64))
    for name, kind in (
        ("truth_boxes", float), ("truth_class", int), ("truth_crowd", np.uint8), ("truth_area", float),
        ("boxes", float), ("scores", float), ("class", int),
    )
}  # fmt: skip
PIXELS = {name: Ragged(np.ones((4, 3), int), np.ones(4, np.int64)) for name in ("pixels", "contours")}
ODD = Ragged(np.ones(4, int), np.array([4, 0, 0, 0]))


@pytest.mark.parametrize(
    "strange",
    [
        Evaluation("regression", {"truth": FOUR, "predicted": np.zeros((4, 2))}),
        Evaluation("classification", {"truth": FOUR, "predicted": np.zeros((4, 2), int)}),
        Evaluation("classification", {"truth": FOUR, "predicted": np.array([0, 1, 2, 1 << 40])}),
        Evaluation("segmentation", {}, (), {**PIXELS, "pixels": Ragged(np.ones((4, 2), int), np.ones(4, np.int64))}),
        Evaluation("segmentation", {}, (), {**PIXELS, "pixels": Ragged(np.full((4, 3), -1), np.ones(4, np.int64))}),
        Evaluation(
            "segmentation", {}, (), {**PIXELS, "pixels": Ragged(np.full((4, 3), 1 << 40), np.ones(4, np.int64))}
        ),
        Evaluation("segmentation", {}, (), {**PIXELS, "contours": Ragged(np.ones((4, 3)), np.ones(4, np.int64))}),
        Evaluation("anomaly", {"truth": FOUR, "score": np.zeros((4, 2))}),
        Evaluation("anomaly", {"truth": FOUR, "score": np.zeros(4), "clip": np.zeros((4, 2))}),
        Evaluation("forecast", {"truth": FOUR, "predicted": FOUR, "scale": FOUR, "block": FOUR}),
        Evaluation("series_anomaly", {"window": FOUR, "series": FOUR / 2, "score": FOUR}),
        Evaluation("series_anomaly", {"window": FOUR, "series": FOUR, "score": FOUR}, settings={"thresholds": ["x"]}),
        Evaluation("detection", {name: np.ones(4) for name in BOXES}),
        Evaluation("detection", {}, (), {**BOXES, "class": ODD}),
        Evaluation("detection", {}, (), {**BOXES, "truth_class": ODD}),
        Evaluation("detection", {}, (), {**BOXES, "class": Ragged(np.full(4, 1 << 40), np.ones(4, np.int64))}),
    ],
)
def test_arrays_that_do_not_belong_together_are_refused(strange: Evaluation) -> None:
    with pytest.raises(ArtifactError) as caught:
        task_named(strange.task).check(strange)
    assert "\n" not in str(caught.value)


def test_sound_boxes_and_masks_are_not_refused() -> None:
    task_named("detection").check(Evaluation("detection", {}, (), BOXES))
    task_named("segmentation").check(Evaluation("segmentation", {}, (), PIXELS))
