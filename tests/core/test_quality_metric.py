"""Metrics are the same whether each sample is counted alone or with those that are like it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from nnpipe.analysis.quality_intervals import compute_contributions
from nnpipe.core.errors import ConfigError
from nnpipe.core.evaluation import Evaluation
from nnpipe.core.quality_metric import QualityMetric
from nnpipe.core.task import get_task

OF_CLASSES = [metric for metric in get_task("classification").metrics if metric.alike is not None]


def classified(samples: int, classes: int, first: int = 0) -> Evaluation:
    random = np.random.default_rng(samples + classes)
    truth = random.integers(0, classes, samples)
    predicted = np.where(random.random(samples) < 0.8, truth, random.integers(0, classes, samples))
    return Evaluation("classification", {"truth": truth + first, "predicted": predicted + first})


@pytest.mark.parametrize("metric", OF_CLASSES, ids=lambda metric: metric.name)
@pytest.mark.parametrize(
    ("samples", "classes", "first"),
    [(0, 3, 0), (1, 3, 0), (300, 3, 0), (300, 12, 0), (50, 4, 10**6)],
)
def test_kinds_of_samples_stand_for_their_samples(
    metric: QualityMetric, samples: int, classes: int, first: int
) -> None:
    found, alone = classified(samples, classes, first), dataclasses.replace(metric, alike=None)
    weights = np.random.default_rng(1).integers(0, 4, samples).astype(float)
    by_kind, by_sample = metric.build_statistic(found), alone.build_statistic(found)
    assert by_kind(weights) == pytest.approx(by_sample(weights), abs=1e-12, nan_ok=True)
    assert metric.compute(found) == pytest.approx(alone.compute(found), abs=1e-12, nan_ok=True)


@pytest.mark.parametrize("metric", OF_CLASSES, ids=lambda metric: metric.name)
def test_what_samples_contribute_is_the_same_by_kinds(metric: QualityMetric) -> None:
    found = classified(300, 4)
    by_kind, by_sample = (
        compute_contributions(each, found)
        for each in (metric, dataclasses.replace(metric, alike=None))
    )
    np.testing.assert_allclose(by_kind, by_sample, atol=1e-9)
    assert by_kind.mean() == pytest.approx(metric.compute(found))


def test_a_mean_of_values_has_no_kinds() -> None:
    accuracy = get_task("classification").metric("accuracy")
    with pytest.raises(ConfigError, match="is a mean of values"):
        dataclasses.replace(accuracy, alike=OF_CLASSES[0].alike)
