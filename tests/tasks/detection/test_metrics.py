"""COCO's metrics are those of pycocotools, and follow from weights of pictures as from repeated pictures."""

from __future__ import annotations

import math

import numpy as np
import pytest
from installed import needs

from nnpipe.core.evaluation import Evaluation
from nnpipe.tasks.detection.metrics import METRICS

from .coco_cases import Case, random_case


def assert_as_pycocotools(case: Case) -> None:
    found = case.evaluation()
    for name, wanted in case.by_pycocotools().items():
        value = next(metric for metric in METRICS if metric.name == name).of(found)
        assert math.isnan(value) if wanted == -1 else abs(value - wanted) < 1e-9, (name, value, wanted)


@pytest.mark.parametrize("seeds", [range(50), pytest.param(range(50, 1050), marks=pytest.mark.slow)], ids=len)
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
    assert METRICS[0].of(blind) == 0
    assert METRICS[-1].of(blind) == 0
    empty = Case(case.pictures, case.classes, [], case.predicted).evaluation()
    assert math.isnan(METRICS[0].of(empty))


@pytest.mark.parametrize("seed", [5, 7, 11])
def test_a_weight_counts_a_picture_as_often(seed: int) -> None:
    case = random_case(seed)
    for number, box in enumerate(case.predicted):
        box["score"] = (number * 37 % 997) / 1000  # without equal scores, whose order is by picture
    found = case.evaluation()
    weights = np.random.default_rng(seed).integers(0, 4, len(found))
    again: Evaluation = found.take(np.repeat(np.arange(len(found)), weights))
    for metric in METRICS:
        value, wanted = metric.prepared(found)(weights.astype(float)), metric.of(again) if len(again) else math.nan
        assert value == pytest.approx(wanted, abs=1e-9, nan_ok=True), metric.name
