"""Metrics of anomaly scores equal scikit-learn's, with ties and weights, and published figures."""

from __future__ import annotations

import csv

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from installed import ImportedWhenUsed
from property_examples import examples
from shared_data import shared_data

from nnpipe.core.errors import SpecMismatch
from nnpipe.core.evaluation import Evaluation
from nnpipe.core.tensors import DatasetSpec
from nnpipe.tasks import AnomalyDetection
from nnpipe.tasks.anomaly.task import MAX_FPR

sk = ImportedWhenUsed("sklearn.metrics")
TASK = AnomalyDetection()
SPEC = DatasetSpec("anomaly", (), ())


def judged(score: np.ndarray, truth: np.ndarray, **more: np.ndarray) -> Evaluation:
    return TASK.evaluate({"score": score}, {"anomalous": truth, **more}, SPEC)


@st.composite
def scored(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return scores with ties, kinds, and weights of which some are 0."""
    count = draw(st.integers(2, 60))
    score = draw(
        hnp.arrays(
            np.float64,
            count,
            elements=st.sampled_from([-1.0, 0.0, 0.1, 0.1 + 1e-15, 2.0, 3.5, 9.0]),
        )
    )
    truth = draw(hnp.arrays(np.int64, count, elements=st.integers(0, 1)))
    weights = draw(hnp.arrays(np.int64, count, elements=st.integers(0, 4))).astype(np.float64)
    return score, truth, weights


@given(scored())
@settings(max_examples=examples(300), deadline=None)
def test_metrics_are_scikit_learn_s(drawn):
    score, truth, weights = drawn
    found = judged(score, truth)
    value = {metric.name: metric.build_statistic(found)(weights) for metric in TASK.metrics}
    there = weights > 0
    if len(set(truth[there])) < 2:
        assert np.isnan(value["auc"])
        assert np.isnan(value["pauc"])
        return
    kept = {"sample_weight": weights}
    assert value["auc"] == pytest.approx(sk.roc_auc_score(truth, score, **kept), abs=1e-12)
    assert value["pauc"] == pytest.approx(
        sk.roc_auc_score(truth, score, max_fpr=MAX_FPR, **kept), abs=1e-12
    )
    best = max(sk.f1_score(truth, score >= least, **kept) for least in set(score[there]))
    assert value["best_f1"] == pytest.approx(best, abs=1e-12)


@given(scored(), st.integers(1, 5))
@settings(max_examples=examples(100), deadline=None)
def test_a_clip_is_one_sample_with_the_mean_score_of_its_parts(drawn, parts):
    score, truth, weights = drawn
    spread = np.linspace(-1, 1, parts) if parts > 1 else np.zeros(1)
    frames = judged(
        (score[:, None] + spread).reshape(-1),
        np.repeat(truth, parts),
        clip=np.repeat(np.arange(len(score)), parts),
    )
    means = np.bincount(np.repeat(np.arange(len(score)), parts), frames.arrays["score"]) / parts
    whole = judged(means, truth)
    for metric in TASK.metrics:
        one, other = (
            metric.build_statistic(frames)(np.repeat(weights, parts)),
            metric.build_statistic(whole)(weights),
        )
        np.testing.assert_allclose(one, other, atol=1e-12)


@pytest.mark.parametrize("prefix", ["", "tflite_", "tflite_quant_", "tflite_quant_fullint_"])
def test_published_figures_of_toycar_follow_from_published_scores(prefix):
    folder = shared_data("models/mlperf_tiny_ad/baseline_tf23_result")
    with open(folder / f"{prefix}result.csv", newline="") as file:
        said = {row[0]: row[1:] for row in csv.reader(file) if len(row) == 3}
    means = []
    for machine in ("01", "02", "03", "04"):
        with open(folder / f"{prefix}anomaly_score_ToyCar_id_{machine}.csv", newline="") as file:
            rows = list(csv.reader(file))
        found = judged(
            np.array([float(row[1]) for row in rows]),
            np.array(["anomaly" in row[0] for row in rows]),
        )
        means.append([TASK.metric(name).compute(found) for name in ("auc", "pauc")])
        np.testing.assert_allclose(means[-1], [float(cell) for cell in said[machine]], atol=1e-12)
    np.testing.assert_allclose(
        np.mean(means, axis=0), [float(cell) for cell in said["Average"]], atol=1e-12
    )


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_a_score_that_is_no_number_is_the_worst_for_its_kind(number):
    for truth in ([1, 0, 0], [0, 1, 1]):
        found = judged(np.array([number, 1.0, 2.0], np.float32), np.array(truth))
        assert TASK.primary.compute(found) == 0
        assert found.not_finite.tolist() == [True, False, False]


@pytest.mark.parametrize("score", [np.zeros((3, 2)), np.zeros(2), np.array(["a", "b", "c"])])
def test_scores_of_another_shape_or_kind_are_refused(score):
    with pytest.raises(SpecMismatch, match=r"numbers of the shape \(3\)"):
        judged(score, np.array([0, 1, 0]))


def test_scores_that_are_all_the_same_are_doubted():
    found = judged(np.ones(5), np.array([0, 1, 0, 0, 1]))
    assert list(TASK.warnings(found)) == [("constant", "all 5 scores are 1")]
    assert TASK.primary.compute(found) == 0.5
