"""Predictions and truth become evaluations that metrics can be computed from."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from nnpipe.core.errors import SpecMismatch
from nnpipe.core.task import get_task
from nnpipe.core.tensors import DatasetSpec

NAMES = ("a", "b", "c")


def judged_by(task, predictions, truth, class_names=()):
    return get_task(task).evaluate(predictions, truth, DatasetSpec(task, (), (), class_names))


scores = hnp.arrays(
    st.sampled_from([np.float32, np.int8]),
    st.tuples(st.integers(0, 20), st.just(3)),
    elements=st.integers(-3, 3),  # few values, so that there are ties
)


@given(scores, st.integers(0, 2))
def test_rank_and_prediction_agree(table, label):
    truth = {"label": np.full(len(table), label, np.int64)}
    judged = judged_by("classification", {"output": table}, truth, NAMES)
    assert judged.task == "classification"
    assert judged.class_names == NAMES
    assert len(judged) == len(table)
    np.testing.assert_array_equal(judged.arrays["predicted"], np.argmax(table, axis=1))
    np.testing.assert_array_equal(judged.arrays["rank"] == 0, judged.arrays["predicted"] == label)


def test_a_score_that_is_no_number_is_never_the_best():
    table = np.array([[np.nan, 1, 2], [3, np.nan, 1], [np.nan] * 3], np.float32)
    judged = judged_by("classification", {"scores": table}, {"label": np.array([0, 1, 2])}, NAMES)
    np.testing.assert_array_equal(judged.arrays["rank"], [2, 2, 2])
    assert (judged.arrays["predicted"] != judged.arrays["truth"]).all()
    assert judged.not_finite.all()


def test_minus_infinity_is_the_logarithm_of_a_probability_of_nothing():
    table = np.array([[0, -np.inf, -np.inf], [-1, -0.5, -np.inf], [-np.inf] * 3], np.float32)
    judged = judged_by("classification", {"scores": table}, {"label": np.array([0, 1, 2])}, NAMES)
    assert judged.not_finite.tolist() == [False, False, True]
    assert (judged.arrays["predicted"] == judged.arrays["truth"]).tolist() == [True, True, False]


@pytest.mark.parametrize("kind", ["logits", "probabilities"])
def test_metrics_of_scores_count_them_as_the_worst_and_others_as_before(kind):
    random = np.random.default_rng(1)
    truth = np.arange(90) % 3
    table = random.normal(size=(90, 3)) + 2 * np.eye(3)[truth]
    if kind == "probabilities":
        table = np.exp(table) / np.exp(table).sum(axis=1, keepdims=True)
    lost = np.arange(90) % 5 == 0
    part = judged_by(
        "classification",
        {"scores": np.where(lost[:, None], np.nan, table)},
        {"label": truth},
        NAMES,
    )
    kept = judged_by("classification", {"scores": table[~lost]}, {"label": truth[~lost]}, NAMES)
    for name in ("roc_auc", "pr_auc"):
        metric = get_task("classification").metric(name)
        assert metric.compute(part) < metric.compute(kept)
        assert metric.build_statistic(part)((~lost).astype(float)) == pytest.approx(
            metric.compute(kept)
        )
    error = get_task("classification").metric("calibration_error")
    assert error.compute(part) > error.compute(kept)


def test_the_tensor_is_found_by_name_or_because_it_is_alone():
    table = np.eye(3, dtype=np.float32)
    truth = {"label": np.arange(3)}
    for predictions in (
        {"scores": table},
        {"anything": table},
        {"scores": table, "other": table[:, ::-1]},
    ):
        assert not judged_by("classification", predictions, truth, NAMES).arrays["rank"].any()
    with pytest.raises(SpecMismatch, match="'scores' or one tensor only; given: x, y"):
        judged_by("classification", {"x": table, "y": table}, truth, NAMES)


@pytest.mark.parametrize("shape", [(3,), (3, 4), (3, 2), (3, 3, 1), (2, 3)])
def test_scores_of_another_shape_are_refused(shape):
    with pytest.raises(SpecMismatch):
        judged_by("classification", {"scores": np.zeros(shape)}, {"label": np.arange(3)}, NAMES)


@pytest.mark.parametrize(
    ("given", "wanted"), [((4, 1), (4,)), ((4,), (4, 1)), ((4, 1, 3), (4, 3)), ((1, 1), (1,))]
)
def test_axes_of_length_1_do_not_matter_to_a_regression(given, wanted):
    value = np.arange(np.prod(wanted), dtype=np.float32).reshape(wanted)
    judged = judged_by("regression", {"y": value.reshape(given) + 1}, {"value": value})
    assert judged.arrays["predicted"].shape == wanted
    assert get_task("regression").metric("mae").compute(judged) == 1


def test_numbers_are_kept_beside_the_truth():
    judged = judged_by(
        "regression", {"y": np.ones((4, 2))}, {"value": np.zeros((4, 2), np.float32)}
    )
    assert judged.arrays["predicted"].dtype == np.float32
    np.testing.assert_array_equal(
        judged.arrays["predicted"] - judged.arrays["truth"], np.ones((4, 2))
    )
    with pytest.raises(SpecMismatch, match=r"\(4, 2\), not \(4, 1\)"):
        judged_by("regression", {"y": np.ones((4, 1))}, {"value": np.zeros((4, 2), np.float32)})


masks = hnp.arrays(np.int64, (3, 4, 5), elements=st.integers(0, 2))


@given(masks, masks)
def test_pixels_are_counted_by_true_and_predicted_class(mask, predicted):
    judged = judged_by("segmentation", {"mask": predicted}, {"mask": mask}, NAMES)
    pixels = judged.ragged["pixels"]
    for image in range(3):
        found = {(true, guess): count for true, guess, count in pixels[image].tolist()}
        for true in range(3):
            for guess in range(3):
                expected = np.sum((mask[image] == true) & (predicted[image] == guess))
                assert found.get((true, guess), 0) == expected
    as_scores = judged_by("segmentation", {"scores": np.eye(3)[predicted]}, {"mask": mask}, NAMES)
    assert as_scores.ragged["pixels"].has_same_rows(pixels)


@pytest.mark.parametrize(
    "predicted",
    [
        np.zeros((1, 4, 4), int),
        np.zeros((1, 4, 5)),
        np.full((1, 4, 5), 3),
        np.full((1, 4, 5), -1),
        np.zeros((1, 4, 5, 2)),
    ],
)
def test_masks_that_cannot_be_are_refused(predicted):
    with pytest.raises(SpecMismatch):
        judged_by(
            "segmentation", {"mask": predicted}, {"mask": np.zeros((1, 4, 5), np.int64)}, NAMES
        )


def test_no_images_give_an_empty_evaluation():
    empty = np.zeros((0, 4, 5), np.int64)
    assert judged_by("segmentation", {"mask": empty}, {"mask": empty}, NAMES).ragged[
        "pixels"
    ].values.shape == (0, 3)


def test_strangeness_is_kept_beside_the_truth():
    judged = judged_by("anomaly", {"x": np.array([0.5, 2.0])}, {"anomalous": np.array([0, 1])})
    np.testing.assert_array_equal(judged.arrays["truth"], [0, 1])
    np.testing.assert_array_equal(judged.arrays["score"], np.array([0.5, 2.0], np.float32))
    with pytest.raises(SpecMismatch):
        judged_by("anomaly", {"x": np.zeros((2, 2))}, {"anomalous": np.array([0, 1])})


def test_pixels_without_a_class_do_not_count():
    mask = np.array([[[0, 1, 255], [2, -1, 1]]])
    judged = judged_by(
        "segmentation", {"mask": np.array([[[0, 1, 2], [2, 0, 0]]])}, {"mask": mask}, NAMES
    )
    assert judged.ragged["pixels"].values[:, 2].sum() == 4
    assert get_task("segmentation").metric("pixel_accuracy").compute(judged) == 0.75
    with pytest.raises(SpecMismatch, match="below 3, or 255"):
        judged_by(
            "segmentation",
            {"mask": np.zeros((1, 2, 3), int)},
            {"mask": np.full((1, 2, 3), 7)},
            NAMES,
        )
