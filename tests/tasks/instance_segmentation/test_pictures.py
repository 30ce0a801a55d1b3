"""Masks of things are drawn where they are in the picture, and two models are compared by them."""

from __future__ import annotations

import numpy as np
import pytest
from installed import needs

from nnpipe.core.errors import SpecMismatch
from nnpipe.report.task_section import COLOURS, find_task_pictures
from nnpipe.tasks.frames import create_frames
from nnpipe.tasks.instance_segmentation.run_lengths import encode_mask_runs, pad_runs

BLACK = np.zeros((40, 80, 3), np.uint8)


def masks(*corners: int, width: int = 80) -> np.ndarray:
    found = np.zeros((len(corners), 40, width), bool)
    for mask, corner in zip(found, corners, strict=True):
        mask[20:36, corner : corner + 16] = True
    return found


def predicted(*corners: int, scores: tuple[float, ...] = (0.5, 0.9)) -> dict[str, np.ndarray]:
    runs = pad_runs([encode_mask_runs(mask) for mask in masks(*corners)])
    return {
        "runs": runs[None],
        "class": np.zeros((1, len(corners)), np.int64),
        "scores": np.array([scores[: len(corners)]], np.float32),
    }


def test_each_thing_is_coloured_the_most_certain_one_first() -> None:
    needs("PIL")
    picture, told = find_task_pictures("instance_segmentation").draw(
        BLACK, predicted(4, 60), ("cat",)
    )
    assert told == "2 things with scores from 0.25 on"
    assert picture[34, 66].tolist() == np.rint(np.array(COLOURS[0]) / 2).tolist()
    assert picture[34, 10].tolist() == np.rint(np.array(COLOURS[1]) / 2).tolist()
    assert not picture[:18].any()


def test_bitmaps_of_the_models_input_are_brought_to_the_picture() -> None:
    needs("PIL")
    whole = predicted(4)
    # an input of 40 x 40, to which pictures are squeezed
    whole["masks"] = masks(4)[None, :, :, ::2].astype(np.float32)
    del whole["runs"]
    whole["frame"] = create_frames(1, 40, 40, "squeeze")
    assert (
        find_task_pictures("instance_segmentation").measure_difference(BLACK, whole, predicted(4))
        == 0
    )


def test_models_differ_by_things_that_only_one_has() -> None:
    pictures = find_task_pictures("instance_segmentation")
    assert pictures.measure_difference(BLACK, predicted(4, 60), predicted(4, 60)) == 0
    assert pictures.measure_difference(BLACK, predicted(4, 60), predicted(60)) == 1
    assert pictures.measure_difference(BLACK, predicted(4), predicted(16)) == 2
    assert pictures.measure_difference(BLACK, predicted(4), predicted(4, scores=(0.1,))) == 1
    with pytest.raises(SpecMismatch, match="hold masks"):
        pictures.measure_difference(BLACK, {"x": np.zeros(1)}, predicted(4))
