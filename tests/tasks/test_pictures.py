"""What tasks show of single numbers and of pixels."""

from __future__ import annotations

import numpy as np
import pytest
from installed import needs

from nnpipe.report.task_section import COLOURS, find_task_pictures
from nnpipe.tasks.frames import create_frames

BLACK = np.zeros((40, 80, 3), np.uint8)


def boxes(left: float, fit: str) -> dict[str, np.ndarray]:
    height, top = (0.5, 0.25) if fit == "squeeze" else (0.25, 0.125)  # a letterbox is half empty
    return {
        "boxes": np.array([[[left, top, 0.25, height]]]),
        "scores": np.array([[0.9]]),
        "class": np.array([[0]]),
        "frame": create_frames(1, 64, 64, fit),
    }


def test_detectors_that_take_pictures_in_different_ways_are_compared_in_the_picture() -> None:
    pictures = find_task_pictures("detection")
    assert pictures.measure_difference(BLACK, boxes(0.25, "squeeze"), boxes(0.25, "letterbox")) == 0
    assert pictures.measure_difference(BLACK, boxes(0.25, "squeeze"), boxes(0.6, "letterbox")) == 2


def test_segmenters_of_different_sizes_are_compared_in_the_picture() -> None:
    needs("PIL")
    mask = np.zeros((1, 20, 20), np.int64)
    mask[:, 10:] = 1
    one, other = (
        {"mask": mask.repeat(n, axis=1), "frame": create_frames(1, 20 * n, 20, "squeeze")}
        for n in (1, 2)
    )
    pictures = find_task_pictures("segmentation")
    assert pictures.measure_difference(BLACK, one, other) == 0
    assert pictures.measure_difference(BLACK, one, {"mask": np.zeros_like(mask)}) == 0.5
    picture, told = pictures.draw(BLACK, one, ("ground", "sky"))
    assert told == "ground 50%, sky 50%"
    assert not picture[:20].any()
    assert picture[30, 3].tolist() == np.rint(np.array(COLOURS[1]) / 2).tolist()


def test_an_anomaly_is_shown_by_its_score_and_pixels() -> None:
    pictures = find_task_pictures("anomaly")
    picture, told = pictures.draw(BLACK, {"score": np.array([0.25])}, ())
    assert told == "score 0.25"
    assert not picture.any()
    error = np.zeros((1, 10, 10))
    error[0, 5:, 5:] = 2
    picture, told = pictures.draw(BLACK, {"score": np.array([0.5]), "map": error}, ())
    assert told == "score 0.5; pixels from 0 to 2"
    assert picture[30, 70].tolist() == list(COLOURS[1])
    assert not picture[:20].any()
    assert not picture[:, :40].any()
    assert (
        pictures.measure_difference(BLACK, {"score": np.array([2.0])}, {"score": np.array([1.0])})
        == 0.5
    )
    assert (
        pictures.measure_difference(BLACK, {"score": np.array([0.0])}, {"score": np.array([0.0])})
        == 0
    )


def test_a_map_alone_has_the_score_of_its_greatest_pixel() -> None:
    pictures = find_task_pictures("anomaly_map")
    error = np.zeros((1, 10, 10))
    error[0, 5:, 5:] = 2
    picture, told = pictures.draw(BLACK, {"anomalies": error}, ())
    assert told == "score 2; pixels from 0 to 2"
    assert picture[30, 70].tolist() == list(COLOURS[1])
    assert (
        pictures.measure_difference(BLACK, {"map": error}, {"map": error, "score": np.ones(1)})
        == 0.5
    )


def test_numbers_are_shown_below_pictures() -> None:
    pictures = find_task_pictures("regression")
    assert pictures.draw(BLACK, {"age": np.array([[31.25, 2]])}, ())[1] == "31.25, 2"
    assert pictures.draw(BLACK, {"value": np.zeros((1, 100))}, ())[1].endswith("... (100 numbers)")
    assert (
        pictures.measure_difference(BLACK, {"a": np.array([[1.0, 2]])}, {"b": np.array([[1.0, 5]])})
        == 3
    )
    assert pictures.measure_difference(
        BLACK, {"a": np.array([1.0])}, {"b": np.array([[1.0, 5]])}
    ) == pytest.approx(np.inf)
