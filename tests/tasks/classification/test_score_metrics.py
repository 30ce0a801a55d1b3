"""Metrics of the scores of all classes are those of scikit-learn, from probabilities and from
logits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nnpipe.core.errors import ArtifactError
from nnpipe.core.evaluation import Evaluation
from nnpipe.core.task import find_quality_metric, get_task
from nnpipe.core.tensors import DatasetSpec
from nnpipe.tasks.classification.metrics import SCORE_METRICS, convert_to_probabilities

sk = pytest.importorskip("sklearn.metrics", reason="scikit-learn is not installed")
TASK = get_task("classification")


def drawn(classes: int, samples: int = 200, ties: bool = False) -> tuple[Any, Any]:
    rng = np.random.default_rng(classes)
    truth = rng.integers(0, classes, samples)
    logits = rng.normal(size=(samples, classes)) + 1.5 * np.eye(classes)[truth]
    return (np.round(logits) if ties else logits).astype(np.float32), truth


def softmax(logits: Any) -> Any:
    powers = np.exp(logits.astype(np.float64))
    return powers / powers.sum(1, keepdims=True)


def judged(scores: Any, truth: Any) -> Evaluation:
    names = tuple(map(str, range(scores.shape[1])))
    return TASK.evaluate(
        {"scores": scores}, {"label": truth}, DatasetSpec("classification", (), (), names)
    )


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("classes", [2, 5])
@pytest.mark.parametrize("of", ["logits", "probabilities"])
def test_areas_are_those_of_scikit_learn(of: str, classes: int, ties: bool, weighted: bool) -> None:
    logits, truth = drawn(classes, ties=ties)
    weights = np.random.default_rng(1).random(200) if weighted else np.ones(200)
    scores = logits if of == "logits" else softmax(logits).astype(np.float32)
    chances = convert_to_probabilities(scores)
    given = (truth, chances[:, 1]) if classes == 2 else (np.eye(classes)[truth], chances)
    found = judged(scores, truth)
    for name, function in (("roc_auc", sk.roc_auc_score), ("pr_auc", sk.average_precision_score)):
        expected = function(*given, sample_weight=weights)
        assert SCORE_METRICS[name].build_statistic(found)(weights) == pytest.approx(
            expected, abs=1e-9
        ), name


def test_the_calibration_error_is_the_mean_gap_of_15_bins() -> None:
    logits, truth = drawn(4)
    chances = softmax(logits)
    confidence, right = chances.max(1), chances.argmax(1) == truth
    expected = 0.0
    for low in np.arange(15) / 15:
        inside = (confidence > low) & (confidence <= low + 1 / 15)
        if inside.any():
            expected += inside.mean() * abs(confidence[inside].mean() - right[inside].mean())
    assert SCORE_METRICS["calibration_error"].compute(judged(logits, truth)) == pytest.approx(
        expected, abs=1e-9
    )


def test_a_sure_model_that_is_always_right_is_calibrated() -> None:
    found = judged(np.eye(3, dtype=np.float32), np.arange(3))
    assert [metric.compute(found) for metric in SCORE_METRICS.values()] == [1.0, 1.0, 0.0]


def test_a_class_without_samples_is_left_out() -> None:
    logits, truth = drawn(4)
    truth = np.where(truth == 3, 0, truth)
    chances = softmax(logits)
    expected = np.mean([sk.roc_auc_score(truth == n, chances[:, n]) for n in range(3)])
    assert SCORE_METRICS["roc_auc"].compute(judged(logits, truth)) == pytest.approx(expected)
    assert np.isnan(SCORE_METRICS["roc_auc"].compute(judged(logits, np.zeros_like(truth))))


def test_rounded_probabilities_are_no_logits() -> None:
    rounded = np.round(softmax(drawn(4)[0]) * 256) / 256
    assert convert_to_probabilities(rounded) == pytest.approx(rounded, abs=0.01)
    assert convert_to_probabilities(np.array([[2.0, 0.0], [0.5, 0.5]]))[1].tolist() == [0.5, 0.5]
    assert convert_to_probabilities(np.array([[2.0, 0.0]]))[0, 0] == pytest.approx(
        np.exp(2) / (1 + np.exp(2))
    )


def test_scores_of_many_classes_are_kept_on_demand_only() -> None:
    logits, truth = drawn(30)
    found = judged(logits, truth)
    assert "scores" not in found.arrays
    assert all(np.isnan(metric.compute(found)) for metric in SCORE_METRICS.values())
    spec = DatasetSpec("classification", (), (), tuple(map(str, range(30))))
    whole = TASK.keeping_all().evaluate({"scores": logits}, {"label": truth}, spec)
    assert SCORE_METRICS["roc_auc"].compute(whole) > 0.8


def test_they_are_found_by_name() -> None:
    assert find_quality_metric("roc_auc") is TASK.metric("roc_auc") is SCORE_METRICS["roc_auc"]


@pytest.mark.parametrize(
    "scores", [np.zeros(3, np.float32), np.zeros((3, 2), np.float32), np.zeros((3, 3), np.int32)]
)
def test_an_evaluation_of_a_file_is_checked(scores: Any) -> None:
    labels = np.zeros(3, np.int32)
    with pytest.raises(
        ArtifactError, match="'scores' should hold one number for each sample and class"
    ):
        TASK.check(
            Evaluation(
                "classification",
                {"truth": labels, "predicted": labels, "scores": scores},
                tuple("abc"),
            )
        )
