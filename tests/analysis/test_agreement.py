"""Two models are compared by figures that a wrong output cannot pass."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from property_examples import examples

from nnpipe.analysis.agreement import Agreement, AgreementAccumulator, Tolerances, compare
from nnpipe.analysis.classification import binomial_cdf
from nnpipe.core.errors import ConfigError, SpecMismatch


def scores(rows=50, classes=10, seed=0):
    return np.random.default_rng(seed).standard_normal((rows, classes)).astype(np.float32)


def against(ours, theirs) -> Agreement:
    return compare([{"y": np.asarray(ours)}], [{"y": np.asarray(theirs)}])


def verdict(ours, theirs, **tolerances) -> str:
    return against(ours, theirs).verdict(Tolerances(**tolerances))[0]


def test_errors_are_those_of_the_definition() -> None:
    ours, theirs = np.array([[3.0, 4.0, 0.0]]), np.array([[3.0, 4.5, 0.25]])
    found = against(ours, theirs).tensors[0]
    level = np.sqrt(25 / 3)
    assert found.max_absolute == 0.5
    assert found.mean_absolute == pytest.approx(0.25)
    assert found.max_relative == pytest.approx(0.5 / 4)
    assert found.mean_relative == pytest.approx((0.5 / 4 + 0.25 / level) / 3)


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_in_both_is_counted_and_gets_no_class(number: float) -> None:
    ours = scores()
    ours[:20] = number
    found = against(ours, ours)
    assert (found.not_finite, found.same_class) == (20, 30)
    assert found.verdict(Tolerances()) == (
        "same",
        "no relative error is above 0.0001; outputs for 20 of 50 samples are NaN or infinite",
    )
    assert Agreement.from_json(json.loads(json.dumps(found.to_json(), allow_nan=False))) == found
    rounded = ours * np.linspace(1, 1.001, 10, dtype=np.float32)
    assert against(ours, rounded).verdict(Tolerances())[0] == "close"


def test_quantiles_are_of_each_samples_largest_error() -> None:
    ours = np.ones((100, 3))
    theirs = ours.copy()
    theirs[:, 1] += np.arange(100)
    found = against(ours, theirs).tensors[0]
    assert found.absolute_quantiles == {0.5: 50, 0.9: 90, 0.99: 99}


def test_equal_outputs_are_the_same_and_rounding_is() -> None:
    ours = scores()
    assert verdict(ours, ours) == "same"
    assert verdict(ours, ours * np.float32(1 + 1e-6)) == "same"


def test_swapped_outputs_are_different() -> None:
    ours = scores()
    assert verdict(ours, ours[:, ::-1]) == "different"
    assert verdict(ours, ours[::-1]) == "different"


def test_one_perturbed_element_is_not_the_same() -> None:
    ours = scores()
    theirs = ours.copy()
    theirs[7, 3] += 0.01
    assert verdict(ours, theirs) == "close"


def test_small_errors_that_change_classes_are_different() -> None:
    ours = np.full((40, 10), 1.0)
    ours[:, 2] += 1e-3
    theirs = np.full((40, 10), 1.0)
    theirs[:, 5] += 1e-3
    found = against(ours, theirs)
    assert found.same_class == 0
    assert found.verdict(Tolerances())[0] == "different"
    assert "0 of 40 samples" in found.verdict(Tolerances())[1]


@pytest.mark.parametrize(
    ("samples", "kept", "expected"),
    [
        (8, 6, "close"),
        (32, 29, "close"),
        (64, 57, "close"),
        (64, 54, "different"),
        (320, 290, "different"),
    ],
)
def test_classes_decide_only_where_there_are_samples_enough_to_tell(
    samples: int, kept: int, expected: str
) -> None:
    ours = np.full((samples, 10), 1.0)
    ours[:, 2] += 1e-2
    theirs = ours.copy()
    theirs[kept:, 5] += 2e-2
    found = against(ours, theirs)
    assert found.same_class == kept
    assert found.verdict(Tolerances())[0] == expected
    assert f"{kept} of {samples} samples" in found.verdict(Tolerances())[1]


def test_a_model_that_keeps_just_enough_classes_is_rarely_called_different() -> None:
    """However few samples there are: of 8 that each keep their class in 95 of 100 cases, 6 do in
    6 of 100 times.
    """
    for samples in (4, 8, 16, 60, 500):
        kept = np.random.default_rng(samples).binomial(samples, 0.95, 4000)
        rare = [binomial_cdf(int(each), samples, 0.95) for each in kept]
        assert np.mean(np.array(rare) < 0.005) < 0.01
        assert binomial_cdf(samples // 2, samples, 0.95) < 0.02
    assert binomial_cdf(6, 8, 0.95) == pytest.approx(1 - 0.95**8 - 8 * 0.05 * 0.95**7)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_number_against_none_is_different_however_wide_the_tolerance(bad: float) -> None:
    ours = scores()
    theirs = ours.copy()
    theirs[0, 0] = bad
    wide = {"same_tolerance": 1e300, "close_tolerance": 1e300, "close_class_agreement": 0.0}
    assert verdict(ours, theirs, **wide) == "different"
    assert verdict(theirs, ours, **wide) == "different"
    assert verdict(theirs, theirs.copy()) == "same"


def test_infinities_of_other_sign_are_different() -> None:
    assert verdict([[np.inf, 1.0]], [[-np.inf, 1.0]]) == "different"


def test_near_zero_outputs_are_judged_by_their_own_size() -> None:
    ours = scores() * np.float32(1e-30)
    assert verdict(ours, ours * np.float32(1.0005)) == "close"
    assert verdict(ours, np.zeros_like(ours)) == "different"
    assert verdict(np.zeros((4, 3)), np.full((4, 3), 1e-12)) == "different"


def test_huge_outputs_do_not_overflow() -> None:
    ours = scores().astype(np.float64) * 1e306
    assert verdict(ours, ours * (1 + 1e-7)) == "same"
    assert verdict(ours, -ours) == "different"


def test_integers_beyond_doubles_are_told_apart() -> None:
    ours = np.array([[2**60, 2**60]])
    assert against(ours, ours + 1).tensors[0].max_absolute == 1
    assert against(ours, ours).tensors[0].max_absolute == 0


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "uint64", "float16", "float64"])
def test_every_kind_of_number_is_compared(dtype: str) -> None:
    ours = np.array([[0, 1, 1, 0]]).astype(dtype)
    theirs = np.array([[1, 1, 1, 0]]).astype(dtype)
    assert against(ours, theirs).tensors[0].max_absolute == 1
    assert verdict(ours, ours) == "same"


def test_texts_are_compared_as_wholes() -> None:
    ours = np.array([["cat", "dog"]], dtype=object)
    assert verdict(ours, ours.copy()) == "same"
    assert verdict(ours, np.array([["cat", "cow"]], dtype=object)) == "different"
    with pytest.raises(SpecMismatch, match="'y' has object in the source, int64"):
        against(ours, np.array([[1, 2]]))


def test_outputs_without_axes_or_elements_are_compared() -> None:
    assert verdict(np.float32(2), np.float32(2)) == "same"
    assert verdict(np.float32(2), np.float32(3)) == "different"
    assert against(np.zeros((3, 0)), np.zeros((3, 0))).tensors[0].elements == 0


def test_names_and_shapes_must_be_the_same() -> None:
    with pytest.raises(SpecMismatch, match="outputs a cannot be compared with b"):
        compare([{"a": np.zeros(2)}], [{"b": np.zeros(2)}])
    with pytest.raises(SpecMismatch, match=r"'y' has shape \(2, 3\) in the source, \(3, 2\)"):
        against(np.zeros((2, 3)), np.zeros((3, 2)))


def test_nothing_compared_is_refused() -> None:
    with pytest.raises(ConfigError, match="no samples"):
        AgreementAccumulator().result()


def test_outputs_are_bound_by_name() -> None:
    a, b = scores(seed=1), scores(seed=2)
    found = compare([{"a": a, "b": b}], [{"b": b, "a": a}])
    assert found.verdict(Tolerances())[0] == "same"
    assert found.same_class == len(a)


@pytest.mark.parametrize(
    ("shape", "counted"),
    [((5, 7), True), ((5, 7, 1, 1), True), ((5, 1, 1, 7), True), ((5, 7, 2), False), ((5,), False)],
)
def test_classes_are_counted_where_samples_have_one_row_of_scores(
    shape: tuple[int, ...], counted: bool
) -> None:
    ours = np.random.default_rng(0).random(shape)
    assert against(ours, ours).same_class == (5 if counted else None)


def test_a_worse_output_beside_a_good_one_decides() -> None:
    a, b = scores(seed=1), scores(seed=2)
    found = compare([{"a": a, "b": b}], [{"a": a, "b": -b}])
    assert found.verdict(Tolerances())[0] == "different"
    assert "'b'" in found.verdict(Tolerances())[1]


def test_json_holds_infinite_errors_and_gives_the_same_back() -> None:
    ours = scores()
    theirs = ours.copy()
    theirs[0, 0] = np.nan
    found = against(ours, theirs)
    data = json.loads(json.dumps(found.to_json(Tolerances()), allow_nan=False))
    assert data["verdict"] == "different"
    assert data["tensors"][0]["max_absolute"] == "infinite"
    assert Agreement.from_json(data) == found


def test_tolerances_must_make_sense() -> None:
    with pytest.raises(ConfigError, match="--same-tolerance"):
        Tolerances(same_tolerance=1.0)
    with pytest.raises(ConfigError, match="close_tolerance"):
        Tolerances(close_tolerance=float("inf"))


@settings(max_examples=examples(100), deadline=None)
@given(cuts=st.lists(st.integers(1, 29), max_size=4, unique=True), seed=st.integers(0, 100))
def test_batches_add_up_to_the_whole(cuts: list[int], seed: int) -> None:
    ours, noise = scores(30, 6, seed), scores(30, 6, seed + 1)
    theirs = ours + np.float32(0.1) * noise
    parts = compare(
        [{"y": part} for part in np.split(ours, sorted(cuts))],
        [{"y": part} for part in np.split(theirs, sorted(cuts))],
    )
    whole = against(ours, theirs)
    assert (
        parts.same_class == whole.same_class == np.count_nonzero(ours.argmax(1) == theirs.argmax(1))
    )
    assert parts.tensors[0].max_relative == whole.tensors[0].max_relative
    assert parts.tensors[0].mean_absolute == pytest.approx(whole.tensors[0].mean_absolute)
