"""Key points are drawn where they are in the picture, and two models are compared by them."""

from __future__ import annotations

import numpy as np
import pytest
from installed import needs

from nnpipe.core.errors import SpecMismatch
from nnpipe.report.task_section import COLOURS, find_task_pictures
from nnpipe.tasks.frames import create_frames


def predicted(x: float, score: float = 0.9) -> dict[str, np.ndarray]:
    points = np.full((1, 1, 17, 3), 0.5)
    points[0, 0, :, 0], points[..., 2] = x, score
    return {
        "points": points,
        "scores": np.array([[score]]),
        "frame": create_frames(1, 64, 64, "squeeze"),
    }


def test_key_points_are_drawn_in_pixels_of_the_picture() -> None:
    needs("PIL")
    black = np.zeros((40, 80, 3), np.uint8)
    picture, told = find_task_pictures("pose").draw(black, predicted(0.25), ())
    assert picture[20, 20].tolist() == list(COLOURS[0])
    assert not picture[:, 40:].any()
    assert told == "1 person with scores from 0.2 on"
    assert not find_task_pictures("pose").draw(black, predicted(0.25, 0.1), ())[0].any()


def test_models_differ_by_the_distance_of_key_points() -> None:
    pictures, black = find_task_pictures("pose"), np.zeros((40, 80, 3), np.uint8)
    assert pictures.measure_difference(black, predicted(0.25), predicted(0.75)) == 0.5
    assert pictures.measure_difference(black, predicted(0.25), predicted(0.25, 0.1)) == 1
    with pytest.raises(SpecMismatch, match="--decoder"):
        pictures.measure_difference(black, {"x": np.zeros(1)}, predicted(0.5))


def test_models_that_take_pictures_in_different_ways_are_compared_in_the_picture() -> None:
    black = np.zeros((40, 80, 3), np.uint8)
    other = predicted(0.25)
    other["points"][..., 1] = 0.25  # the picture fills the upper half of a letterbox
    other["frame"] = create_frames(1, 64, 64, "letterbox")
    assert find_task_pictures("pose").measure_difference(
        black, predicted(0.25), other
    ) == pytest.approx(0)
