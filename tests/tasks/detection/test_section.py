"""The section of reports about detectors: its curves are the metric's, and its pictures those
with most mistakes.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from nnpipe.core.evaluation import Evaluation, Ragged
from nnpipe.measuring.run import Run
from nnpipe.report.document import Paragraph, Plot, Section
from nnpipe.report.drawing.pictures import Pictures
from nnpipe.report.render import render
from nnpipe.tasks.detection.metrics import (
    METRICS,
    compute_class_curves,
    count_mistakes,
    find_best_score,
)

from .coco_cases import random_case

DECODER = {
    "class": "nnpipe.decoders.yolo.YOLODecoder",
    "arguments": {"score_threshold": 0.001, "suppression": "outside", "overlap": 0.65},
}


@pytest.mark.parametrize("protocol", ["coco", "pascal", "open_images"])
def test_the_mean_over_the_classes_is_the_metric(protocol: str) -> None:
    for seed in range(60):
        found = replace(random_case(seed).evaluation(), settings={"protocol": protocol})
        curves = compute_class_curves(found)
        mean = float(np.mean([each.average_precision for each in curves])) if curves else math.nan
        assert METRICS[1].compute(found) == pytest.approx(mean, abs=1e-9, nan_ok=True)
        assert all((np.diff(each.precision) <= 0).all() for each in curves)


def pictures(count: int, **given: Any) -> Evaluation:
    """Pictures of 100 x 200 pixels with one true box each, which is predicted with a score of
    0.9.
    """
    box, ones = np.tile([10.0, 20, 30, 40], (count, 1)), np.ones(count, np.int64)
    ragged = {
        "truth_boxes": box,
        "truth_class": np.zeros(count, np.int32),
        "truth_crowd": np.zeros(count, np.uint8),
        "truth_area": np.full(count, 1200.0),
        "boxes": box,
        "scores": np.full(count, 0.9),
        "class": np.zeros(count, np.int32),
    }
    rows = {name: Ragged(values, ones) for name, values in ragged.items()} | given
    sizes = {"size": np.tile(np.array([100, 200], np.int32), (count, 1))}
    return Evaluation(
        "detection", sizes, ("cat", "dog"), rows, {"protocol": "coco", "decoder": DECODER}
    )


def run(title: str, evaluation: Evaluation) -> Run:
    return Run(title, (), {}, {}, {}, {"batch_size": 1}, {}, evaluation=evaluation)


def section_of(*runs: Run) -> Section:
    return next(each for each in render(runs, "T").sections if each.title == "Detection")


def plots(section: Section) -> list[Plot]:
    return [
        p
        for block in section.blocks
        for p in (plots(block) if isinstance(block, Section) else [block])
        if isinstance(p, Plot)
    ]


def test_mistakes_are_missing_and_wrong_boxes() -> None:
    boxes = np.array([[10.0, 20, 30, 40], [60, 60, 9, 9], [61, 60, 9, 9], [10, 20, 30, 40]])
    worse = pictures(
        3,
        boxes=Ragged(boxes, np.array([3, 0, 1])),
        scores=Ragged(np.array([0.9, 0.8, 0.7, 0.2]), np.array([3, 0, 1])),
        **{"class": Ragged(np.zeros(4, np.int32), np.array([3, 0, 1]))},
    )
    assert count_mistakes(worse, 0.0).tolist() == [2, 1, 0]
    assert count_mistakes(worse, 0.5).tolist() == [2, 1, 1]
    assert count_mistakes(pictures(3), 0.5).tolist() == [0, 0, 0]
    assert find_best_score(worse) == 0.2
    section = section_of(run("good", pictures(3)), run("bad", worse))
    named = [plot.name for plot in plots(section)]
    assert named == ["precision-recall", "1-picture-1", "2-picture-1", "1-picture-2", "2-picture-2"]
    drawn = Pictures()
    assert "1 true boxes and 3 predicted ones" in drawn.render_svg(plots(section)[2])
    assert "cat 0.90" in drawn.render_svg(plots(section)[2])
    assert drawn.render_svg(plots(section)[4]).count("<path") < drawn.render_svg(
        plots(section)[3]
    ).count("<path")


def test_it_says_where_overlapping_boxes_were_dropped() -> None:
    inside = {
        "class": "x.FinishedBoxesDecoder",
        "arguments": {"score_threshold": 0.3, "suppression": "inside"},
    }
    one, two = pictures(2), pictures(2)
    two = replace(two, settings={**two.settings, "decoder": inside})
    texts = [
        block.text
        for block in section_of(run("a", one), run("b", two)).blocks
        if isinstance(block, Paragraph)
    ]
    assert (
        "a: Boxes with scores above 0.001 were read by YOLODecoder; overlapping boxes were "
        "dropped outside" in texts[1]
    )
    assert (
        "b: Boxes with scores above 0.3 were read by FinishedBoxesDecoder; overlapping boxes were "
        "dropped inside" in texts[1]
    )


def test_absurd_boxes_of_a_file_are_drawn_within_the_frame() -> None:
    boxes = np.array([[np.nan, 0, 1, 1], [-1e30, -1e30, 2e30, 2e30], [1e9, 0, -5, np.inf]])
    absurd = pictures(3, boxes=Ragged(boxes, np.ones(3, np.int64)))
    for found in (
        absurd,
        replace(absurd, arrays={}),
        replace(absurd, arrays={"size": np.zeros((3, 2), np.int32)}),
    ):
        for plot in plots(section_of(run("absurd", found))):
            assert "nan" not in Pictures().render_svg(plot)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_report_of_5000_pictures_is_small(tmp_path: Any) -> None:
    from nnpipe.workflows.reporting import write_report

    random, count, each = np.random.default_rng(0), 5000, 20
    rows = np.full(count, each)
    boxes = np.concatenate(
        [random.uniform(0, 400, (count * each, 2)), random.uniform(5, 200, (count * each, 2))],
        axis=1,
    )
    labels = random.integers(0, 80, count * each).astype(np.int32)
    near = boxes + random.normal(0, 3, boxes.shape)
    found = Evaluation(
        "detection",
        {},
        tuple(f"class {n}" for n in range(80)),
        {
            "truth_boxes": Ragged(boxes, rows),
            "truth_class": Ragged(labels, rows),
            "truth_crowd": Ragged(np.zeros(count * each, np.uint8), rows),
            "truth_area": Ragged(boxes[:, 2] * boxes[:, 3], rows),
            "boxes": Ragged(near, rows),
            "scores": Ragged(random.random(count * each), rows),
            "class": Ragged(labels, rows),
        },
        {"protocol": "coco", "decoder": DECODER},
    )
    write_report([run("one", found), run("two", found)], "T", tmp_path / "report.html")
    assert (tmp_path / "report.html").stat().st_size < 2e6
