"""COCO's metrics are those of pycocotools, and follow from weights of pictures as from repeated
pictures.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from installed import needs

from nnpipe.core.evaluation import Evaluation
from nnpipe.tasks.detection.metrics import METRICS

from .coco_cases import Case, random_case


def assert_as_pycocotools(case: Case) -> None:
    found = case.evaluation()
    for name, wanted in case.by_pycocotools().items():
        value = next(metric for metric in METRICS if metric.name == name).compute(found)
        assert math.isnan(value) if wanted == -1 else abs(value - wanted) < 1e-9, (
            name,
            value,
            wanted,
        )


@pytest.mark.parametrize(
    "seeds", [range(50), pytest.param(range(50, 1050), marks=pytest.mark.slow)], ids=len
)
def test_metrics_are_those_of_pycocotools(seeds: range) -> None:
    needs("pycocotools")
    cases = [case for case in map(random_case, seeds) if case.predicted]  # pycocotools refuses none
    assert len(cases) > 0.9 * len(seeds)
    for case in cases:
        assert_as_pycocotools(case)


def test_nothing_predicted_is_worth_nothing_and_nothing_true_is_not_defined() -> None:
    case = random_case(3)
    assert case.true
    blind = Case(case.pictures, case.classes, case.true, []).evaluation()
    assert METRICS[0].compute(blind) == 0
    assert next(metric for metric in METRICS if metric.name == "ar100").compute(blind) == 0
    empty = Case(case.pictures, case.classes, [], case.predicted).evaluation()
    assert math.isnan(METRICS[0].compute(empty))


@pytest.mark.parametrize("seed", [5, 7, 11])
def test_a_weight_counts_a_picture_as_often(seed: int) -> None:
    case = random_case(seed)
    for number, box in enumerate(case.predicted):
        box["score"] = (number * 37 % 997) / 1000  # without equal scores, whose order is by picture
    found = case.evaluation()
    weights = np.random.default_rng(seed).integers(0, 4, len(found))
    again: Evaluation = found.take(np.repeat(np.arange(len(found)), weights))
    for metric in METRICS:
        value, wanted = (
            metric.build_statistic(found)(weights.astype(float)),
            metric.compute(again) if len(again) else math.nan,
        )
        assert value == pytest.approx(wanted, abs=1e-9, nan_ok=True), metric.name


def plainly(case: Case, protocol: str) -> float:
    """Return mAP at an overlap of 0.5 by Pascal VOC's or Open Images' rules, box by box."""

    def overlap(box: list[float], other: list[float], whole: bool) -> float:
        across = min(box[0] + box[2], other[0] + other[2]) - max(box[0], other[0])
        down = min(box[1] + box[3], other[1] + other[3]) - max(box[1], other[1])
        inside = max(across, 0) * max(down, 0)
        return inside / (
            box[2] * box[3] if whole else box[2] * box[3] + other[2] * other[3] - inside
        )

    areas = []
    for label in range(case.classes):
        true = [box for box in case.true if box["category_id"] == label]
        wanted = sum(not box["iscrowd"] for box in true)
        if not wanted:
            continue
        taken: set[int] = set()
        hits = []
        given = [box for box in case.predicted if box["category_id"] == label]
        for box in sorted(given, key=lambda box: (-box["score"], box["image_id"])):
            here = [other for other in true if other["image_id"] == box["image_id"]]
            single = (
                here if protocol == "pascal" else [other for other in here if not other["iscrowd"]]
            )
            best = max(
                single, key=lambda other: overlap(box["bbox"], other["bbox"], False), default=None
            )
            near = best is not None and overlap(box["bbox"], best["bbox"], False) >= 0.5
            if near and best is not None and best["iscrowd"]:
                continue
            if near and best is not None and best["id"] not in taken:
                taken.add(best["id"])
                hits.append(True)
                continue
            groups = [other for other in here if other["iscrowd"] and protocol == "open_images"]
            if not any(overlap(box["bbox"], other["bbox"], True) >= 0.5 for other in groups):
                hits.append(False)
        precision = np.cumsum(hits) / np.arange(1, len(hits) + 1)
        areas.append(sum(precision[place:].max() for place, hit in enumerate(hits) if hit) / wanted)
    return float(np.mean(areas)) if areas else math.nan


@pytest.mark.parametrize("protocol", ["pascal", "open_images"])
def test_other_protocols_match_only_the_best_true_box(protocol: str) -> None:
    differing = 0
    for case in map(random_case, range(60)):
        found = replace(case.evaluation(), settings={"protocol": protocol})
        value = METRICS[0].compute(found)
        assert value == pytest.approx(plainly(case, protocol), abs=1e-9, nan_ok=True)
        assert METRICS[1].compute(found) == pytest.approx(value, abs=1e-12, nan_ok=True)
        assert math.isnan(METRICS[3].compute(found))
        differing += value != pytest.approx(METRICS[1].compute(case.evaluation()), abs=1e-6)
    assert differing > 20
