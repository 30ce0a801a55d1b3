"""The rank of the true class equals its place in a stable sort, whatever the scores are."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from property_examples import examples

from nnpipe.analysis.classification import compute_true_class_rank, top_k_accuracy
from nnpipe.core.errors import ConfigError, SpecMismatch


def by_sorting(scores, truth):
    """Place of the true class when the row is sorted downwards, equal scores by class number."""
    order = np.argsort(-scores.astype(np.float64), axis=1, kind="stable")
    return np.argmax(order == np.asarray(truth)[:, np.newaxis], axis=1)


def random_scores(seed, samples, classes, dtype, distinct):
    random = np.random.default_rng(seed)
    scores = random.integers(-distinct, distinct, (samples, classes), endpoint=True)
    if np.dtype(dtype).kind == "f":
        scores = scores * 0.25
    elif np.dtype(dtype).kind == "u":
        scores = np.abs(scores)
    return scores.astype(dtype), random.integers(0, classes, samples)


@settings(max_examples=examples(150), deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    samples=st.integers(0, 60),
    classes=st.one_of(st.integers(1, 40), st.sampled_from([2039, 2040, 2041, 4500])),
    dtype=st.sampled_from(["float16", "float32", "float64", "int8", "uint8", "int32", "int64"]),
    distinct=st.sampled_from([0, 1, 3, 127]),
)
def test_rank_is_the_place_in_a_stable_descending_sort(seed, samples, classes, dtype, distinct):
    scores, truth = random_scores(seed, samples, classes, dtype, distinct)
    np.testing.assert_array_equal(compute_true_class_rank(scores, truth), by_sorting(scores, truth))


@pytest.mark.parametrize(("samples", "classes"), [(60_000, 10), (3000, 1000), (7, 70_000)])
@pytest.mark.parametrize("distinct", [2, 10**6])
def test_rank_over_many_chunks_is_the_place_in_a_sort(samples, classes, distinct):
    scores, truth = random_scores(1, samples, classes, "float32", distinct)
    ranks = compute_true_class_rank(scores, truth)
    np.testing.assert_array_equal(ranks, by_sorting(scores, truth))
    assert ranks.dtype == (np.uint16 if classes <= 65_536 else np.uint32)
    np.testing.assert_array_equal(ranks == 0, scores.argmax(axis=1) == truth)


def test_among_equal_scores_the_lower_class_number_is_ahead():
    equal = np.full((4, 4), 0.25, np.float32)
    np.testing.assert_array_equal(compute_true_class_rank(equal, np.arange(4)), [0, 1, 2, 3])
    signed_zeros = np.array([[0.0, -0.0]], np.float32)
    np.testing.assert_array_equal(compute_true_class_rank(signed_zeros, [1]), [1])


def test_infinite_scores_are_the_greatest_and_the_least():
    scores = np.array([[np.inf, 1.0, -np.inf, np.inf]] * 4, np.float32)
    np.testing.assert_array_equal(compute_true_class_rank(scores, [0, 1, 2, 3]), [0, 2, 3, 1])


def test_a_true_class_with_nan_is_last_and_other_nans_are_behind():
    nan = np.nan
    scores = np.array(
        [[nan, 1.0, 2.0], [nan, 1.0, 2.0], [nan, nan, nan], [nan, nan, 1.0], [1.0, 1.0, 1.0]],
        np.float32,
    )
    truth = [0, 1, 0, 2, 1]
    np.testing.assert_array_equal(compute_true_class_rank(scores, truth), [2, 1, 2, 0, 1])


def test_scores_in_any_memory_layout_give_the_same_ranks():
    scores, truth = random_scores(5, 500, 30, "float32", 50)
    expected = compute_true_class_rank(scores, truth)
    np.testing.assert_array_equal(
        compute_true_class_rank(np.asfortranarray(scores), truth), expected
    )
    np.testing.assert_array_equal(
        compute_true_class_rank(np.repeat(scores, 2, axis=0)[::2], truth), expected
    )
    np.testing.assert_array_equal(
        compute_true_class_rank(scores.tolist(), truth.tolist()), expected
    )


def test_ranking_needs_little_memory_beside_the_scores():
    scores, truth = random_scores(6, 40_000, 250, "float32", 3)
    tracemalloc.start()
    try:
        compute_true_class_rank(scores, truth)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2 << 20 < scores.nbytes


@pytest.mark.parametrize("k", [1, 2, 5, 9])
def test_top_k_accuracy_equals_scikit_learn(k):
    metrics = pytest.importorskip("sklearn.metrics", reason="scikit-learn gives the right answer")
    scores, truth = random_scores(7, 400, 10, "float32", 20)
    # Of equal scores scikit-learn takes the last class first; turned round it takes the first, as
    # we do.
    theirs = metrics.top_k_accuracy_score(9 - truth, scores[:, ::-1], k=k, labels=np.arange(10))
    assert top_k_accuracy(compute_true_class_rank(scores, truth), k) == theirs


@pytest.mark.parametrize("k", [0, -1, 1.5, "5", None, True])
def test_k_must_be_a_whole_number_above_zero(k):
    with pytest.raises(ConfigError, match="whole number k"):
        top_k_accuracy([0, 1], k)


def test_what_is_no_rank_is_refused():
    with pytest.raises(SpecMismatch, match="vector of integers"):
        top_k_accuracy([0.5], 1)
    with pytest.raises(SpecMismatch, match="vector of integers"):
        top_k_accuracy([[0]], 1)
    with pytest.raises(ConfigError, match="no samples"):
        top_k_accuracy([], 1)


SCORES = np.zeros((3, 4), np.float32)


@pytest.mark.parametrize(
    ("scores", "truth", "complaint"),
    [
        (SCORES[0], [0], r"shape \(samples, classes\)"),
        (SCORES[:, :0], [0, 0, 0], r"shape \(samples, classes\)"),
        (SCORES.astype(bool), [0, 1, 2], "floats or integers"),
        (SCORES.astype(np.complex64), [0, 1, 2], "floats or integers"),
        (SCORES, [0, 1], "scores has 3, truth has 2"),
        (SCORES, [0, 1, 4], r"truth\[2\] is 4, but with 4 classes labels go from 0 to 3"),
        (SCORES, [0, -1, 2], r"truth\[1\] is -1"),
        (SCORES, [0.0, 1.0, 2.0], "integer class numbers, but is float64"),
        (SCORES, np.array([True, False, True]), "integer class numbers, but is bool"),
        (SCORES, [[0, 1, 2]], r"its shape is \(1, 3\)"),
    ],
)
def test_what_does_not_fit_is_named_in_one_line(scores, truth, complaint):
    with pytest.raises(SpecMismatch, match=complaint) as caught:
        compute_true_class_rank(scores, truth)
    assert "\n" not in str(caught.value)
