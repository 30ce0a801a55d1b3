"""The classification section's numbers equal scikit-learn's, absent classes included."""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from property_examples import examples

from nnpipe.analysis.classification import (
    ClassificationMetrics,
    compute_true_class_rank,
    confusion_matrix,
    wilson_interval,
)
from nnpipe.core.errors import ConfigError, NNPipeError, SpecMismatch


def names(count):
    return [f"class {number}" for number in range(count)]


@st.composite
def predictions(draw):
    """(truth, predicted, number of classes) in which whole classes may lack samples, predictions
    or both.
    """
    classes = draw(st.integers(1, 12))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    samples = draw(st.integers(1, 300))
    true_ones = draw(
        st.lists(st.integers(0, classes - 1), min_size=1, max_size=classes, unique=True)
    )
    claimed_ones = draw(
        st.lists(st.integers(0, classes - 1), min_size=1, max_size=classes, unique=True)
    )
    truth, guess = random.choice(true_ones, samples), random.choice(claimed_ones, samples)
    predicted = np.where(
        (random.random(samples) < draw(st.floats(0, 1))) & np.isin(truth, claimed_ones),
        truth,
        guess,
    )
    dtype = draw(st.sampled_from(["int8", "uint8", "uint16", "int32", "int64", "uint64"]))
    return truth.astype(dtype), predicted.astype(dtype), classes


@settings(max_examples=examples(200), deadline=None)
@given(case=predictions())
def test_every_number_equals_scikit_learn(case):
    metrics = pytest.importorskip("sklearn.metrics", reason="scikit-learn gives the right answer")
    truth, predicted, classes = case
    ours = ClassificationMetrics.from_predictions(truth, predicted, names(classes))

    every, occurring = np.arange(classes), np.unique(truth).astype(np.int64)
    truth, predicted = truth.astype(np.int64), predicted.astype(np.int64)
    if classes > 1:  # of a single label it warns
        np.testing.assert_array_equal(
            ours.confusion_matrix,
            metrics.confusion_matrix(truth, predicted, labels=every),
            strict=True,
        )
    each = metrics.precision_recall_fscore_support(
        truth, predicted, labels=every, zero_division=np.nan
    )
    for mine, theirs in zip(
        (ours.precision, ours.sensitivity, ours.f1, ours.support), each, strict=True
    ):
        np.testing.assert_allclose(mine, theirs, rtol=1e-14)
    means = metrics.precision_recall_fscore_support(
        truth, predicted, labels=occurring, average="macro", zero_division=0
    )
    assert (ours.mean_precision, ours.mean_sensitivity, ours.macro_f1) == pytest.approx(
        means[:3], rel=1e-14
    )
    assert ours.accuracy == metrics.accuracy_score(truth, predicted)
    recalls = metrics.recall_score(
        truth, predicted, labels=occurring, average=None, zero_division=0
    )
    assert ours.g_mean == pytest.approx(np.prod(recalls) ** (1 / len(recalls)), rel=1e-12)


def test_mean_sensitivity_is_the_balanced_accuracy():
    metrics = pytest.importorskip("sklearn.metrics", reason="scikit-learn gives the right answer")
    truth, predicted = np.array([0, 0, 1, 1, 1, 2]), np.array([0, 1, 1, 1, 0, 2])
    ours = ClassificationMetrics.from_predictions(truth, predicted, names(5))
    assert ours.mean_sensitivity == pytest.approx(
        metrics.balanced_accuracy_score(truth, predicted), rel=1e-15
    )


def test_numbers_of_a_case_worked_out_by_hand():
    # Class 2 is never predicted, class 3 has no samples but is predicted, class 4 is neither.
    truth = np.array([0, 0, 0, 0, 1, 1, 2, 2])
    predicted = np.array([0, 0, 0, 1, 1, 3, 0, 1])
    ours = ClassificationMetrics.from_predictions(truth, predicted, names(5))
    expected = [[3, 1, 0, 0, 0], [0, 1, 0, 1, 0], [1, 1, 0, 0, 0], [0] * 5, [0] * 5]
    np.testing.assert_array_equal(ours.confusion_matrix, expected)
    np.testing.assert_array_equal(ours.support, [4, 2, 2, 0, 0])
    np.testing.assert_array_equal(ours.precision, [3 / 4, 1 / 3, np.nan, 0, np.nan])
    np.testing.assert_array_equal(ours.sensitivity, [3 / 4, 1 / 2, 0, np.nan, np.nan])
    np.testing.assert_array_equal(ours.f1, [6 / 8, 2 / 5, 0, 0, np.nan])
    assert ours.accuracy == 0.5
    assert ours.mean_precision == pytest.approx((3 / 4 + 1 / 3 + 0) / 3)
    assert ours.mean_sensitivity == pytest.approx((3 / 4 + 1 / 2 + 0) / 3)
    assert ours.macro_f1 == pytest.approx((6 / 8 + 2 / 5 + 0) / 3)
    assert ours.g_mean == 0.0
    assert ours.samples == 8


def test_g_mean_of_two_classes_is_the_root_of_the_product():
    truth, predicted = np.repeat([0, 1], 10), np.array([0] * 9 + [1] + [1] * 4 + [0] * 6)
    ours = ClassificationMetrics.from_predictions(truth, predicted, names(2))
    assert ours.g_mean == pytest.approx(math.sqrt(0.9 * 0.4), rel=1e-14)


def test_g_mean_of_many_classes_does_not_underflow():
    truth = np.repeat(np.arange(1000), 10)
    predicted = np.where(np.arange(10_000) % 10 < 2, truth, (truth + 1) % 1000)
    assert ClassificationMetrics.from_predictions(
        truth, predicted, names(1000)
    ).g_mean == pytest.approx(0.2)


def test_top_k_comes_from_ranks_and_is_absent_where_it_says_nothing():
    random = np.random.default_rng(2)
    scores, truth = random.random((500, 8), np.float32), random.integers(0, 8, 500)
    rank = compute_true_class_rank(scores, truth)
    predicted = scores.argmax(axis=1)
    ours = ClassificationMetrics.from_predictions(truth, predicted, names(8), rank)
    assert ours.k == 5
    assert ours.top_k_accuracy == np.mean(rank < 5)
    assert (
        ClassificationMetrics.from_predictions(truth, predicted, names(8), rank, k=1).top_k_accuracy
        == ours.accuracy
    )
    assert (
        ClassificationMetrics.from_predictions(truth, predicted, names(8), rank, k=8).top_k_accuracy
        is None
    )
    assert ClassificationMetrics.from_predictions(truth, predicted, names(8)).top_k_accuracy is None


def test_json_holds_every_field_and_no_nan():
    ours = ClassificationMetrics.from_predictions([0, 0, 1], [0, 1, 1], names(7), rank=[0, 6, 0])
    data = json.loads(json.dumps(ours.to_json(), allow_nan=False))
    assert {field.name for field in dataclasses.fields(ours)} | {"samples"} == data.keys()
    assert data["precision"] == [1.0, 0.5, None, None, None, None, None]
    assert data["confusion_matrix"][0] == [1, 1, 0, 0, 0, 0, 0]
    assert data["top_k_accuracy"] == pytest.approx(2 / 3)
    assert data["accuracy_interval"] == list(wilson_interval(2, 3))
    assert data["samples"] == 3


def test_metrics_cannot_be_changed():
    ours = ClassificationMetrics.from_predictions([0, 1], [0, 1], names(2))
    with pytest.raises(dataclasses.FrozenInstanceError):
        ours.accuracy = 1.0
    for field in ("confusion_matrix", "support", "precision", "sensitivity", "f1"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(ours, field)[0] = 7


@settings(max_examples=examples(100), deadline=None)
@given(
    data=st.data(),
    trials=st.integers(1, 10**7),
    confidence=st.sampled_from([0.5, 0.9, 0.95, 0.999]),
)
def test_wilson_interval_equals_scipy(data, trials, confidence):
    stats = pytest.importorskip("scipy.stats", reason="SciPy gives the right answer")
    successes = data.draw(st.one_of(st.integers(0, trials), st.sampled_from([0, trials])))
    theirs = stats.binomtest(successes, trials).proportion_ci(confidence, method="wilson")
    low, high = wilson_interval(successes, trials, confidence)
    assert (low, high) == pytest.approx((theirs.low, theirs.high), rel=1e-9, abs=1e-12)
    assert 0 <= low <= successes / trials <= high <= 1


@pytest.mark.parametrize(
    "arguments", [(1, 0), (0, 0), (-1, 5), (6, 5), (1, 2, 0.0), (1, 2, 1.0), (1, 2, math.nan)]
)
def test_impossible_counts_have_no_interval(arguments):
    with pytest.raises(ConfigError, match="confidence"):
        wilson_interval(*arguments)


def test_labels_of_narrow_types_do_not_overflow():
    truth = np.array([199, 198, 0], np.uint8)
    matrix = confusion_matrix(truth, truth.astype(np.int16), 200)
    assert matrix.dtype == np.int64
    assert matrix[199, 199] == matrix[198, 198] == matrix[0, 0] == 1
    assert matrix.sum() == 3


def test_no_samples_give_an_empty_matrix():
    np.testing.assert_array_equal(confusion_matrix([], [], 2), np.zeros((2, 2)))


@pytest.mark.parametrize(
    ("truth", "predicted", "classes", "rank", "kind", "complaint"),
    [
        ([0, 1], [0, 2], 2, None, SpecMismatch, r"predicted\[1\] is 2, but with 2 classes"),
        ([0, -1], [0, 1], 2, None, SpecMismatch, r"truth\[1\] is -1"),
        (
            np.array([2**63], np.uint64),
            [0],
            2,
            None,
            SpecMismatch,
            r"truth\[0\] is 9223372036854775808",
        ),
        ([0, 1], [0], 2, None, SpecMismatch, "truth has 2, predicted has 1"),
        ([0, 1], [0.0, 1.0], 2, None, SpecMismatch, "predicted must hold integer class numbers"),
        (["cat"], [0], 2, None, SpecMismatch, "truth must hold integer class numbers"),
        ([[0], [1]], [0, 1], 2, None, SpecMismatch, r"its shape is \(2, 1\)"),
        ([0, 1], [0, 1], 2, [0], SpecMismatch, "rank has 1 entries"),
        ([0, 1], [0, 1], 2, [0, 2], SpecMismatch, r"rank\[1\] is 2"),
        ([], [], 2, None, ConfigError, "nothing to judge"),
        ([0], [0], 0, None, ConfigError, "at least one class"),
    ],
)
def test_what_does_not_fit_is_named_in_one_line(truth, predicted, classes, rank, kind, complaint):
    with pytest.raises(NNPipeError, match=complaint) as caught:
        ClassificationMetrics.from_predictions(truth, predicted, names(classes), rank)
    assert type(caught.value) is kind
    assert "\n" not in str(caught.value)


def test_k_is_checked_even_without_ranks():
    with pytest.raises(ConfigError, match="whole number k"):
        ClassificationMetrics.from_predictions([0], [0], names(2), k=0)
