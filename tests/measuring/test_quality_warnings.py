"""Predictions that tell nothing, and samples that a model was not made for, are found; sound
ones are left alone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from nnpipe.core.evaluation import Evaluation
from nnpipe.measuring.quality_warnings import check_quality
from nnpipe.measuring.run import Run
from nnpipe.tasks.classification.task import compute_chance_p_value

PLAIN = Run("r", (), {}, {}, {}, {}, {})


def judged(truth: Any, predicted: Any) -> Run:
    arrays = {"truth": np.asarray(truth, np.int32), "predicted": np.asarray(predicted, np.int32)}
    return replace(PLAIN, evaluation=Evaluation("classification", arrays))


def kinds(run: Run) -> list[str]:
    return [doubt.kind for doubt in check_quality(run)]


def test_the_chance_of_being_right_by_luck_is_that_of_dealing_predictions_out_anew() -> None:
    random = np.random.default_rng(0)
    truth, told = random.integers(0, 4, 60), random.choice(4, 60, p=[0.7, 0.1, 0.1, 0.1])
    counts = np.bincount(truth, minlength=4), np.bincount(told, minlength=4)
    dealt = np.array([np.count_nonzero(random.permutation(told) == truth) for _ in range(4000)])
    for right in range(8, 28, 3):
        p = compute_chance_p_value(*counts, right)
        assert p is not None
        assert abs(p - np.mean(dealt >= right)) < 0.03


def test_predictions_by_dice_are_no_better_than_chance_and_good_ones_are() -> None:
    random = np.random.default_rng(1)
    truth = random.integers(0, 10, 400)
    found = [kinds(judged(truth, random.integers(0, 10, 400))) for _ in range(100)]
    assert sum("chance" in each for each in found) >= 95
    assert (
        kinds(judged(truth, np.where(random.random(400) < 0.3, truth, random.integers(0, 10, 400))))
        == []
    )


def test_one_class_for_all_is_found_unless_all_are_of_it() -> None:
    truth = np.arange(200) % 10
    assert kinds(judged(truth, np.full(200, 3))) == ["chance", "constant"]
    assert kinds(judged(np.zeros(200), np.zeros(200))) == []
    rare = (np.arange(200) % 20 == 0).astype(int)
    assert kinds(judged(rare, rare)) == []


@pytest.mark.parametrize(
    ("session", "artifact", "expected"),
    [
        (
            {"saturating_integers": True},
            {"claims": ["int8"], "outcome": {"weight_bits": 8}},
            ["saturation"],
        ),
        (
            {"saturating_integers": True},
            {"parent": {"outcome": {"weight_bits": 8}}},
            ["saturation"],
        ),
        ({"saturating_integers": True}, {"claims": ["int8"], "outcome": 3}, ["saturation"]),
        ({"saturating_integers": True}, {"claims": ["int8"], "outcome": {"weight_bits": 7}}, []),
        ({"saturating_integers": True}, {"claims": ["float"]}, []),
        ({}, {"claims": ["int8"], "outcome": {"weight_bits": 8}}, []),
    ],
)
def test_weights_of_8_bits_are_doubted_where_kernels_saturate(
    session: dict[str, Any], artifact: dict[str, Any], expected: list[str]
) -> None:
    assert kinds(replace(PLAIN, timing={"session": session}, artifact=artifact)) == expected


def arrived(said: dict[str, Any] | None = None, **figures: Any) -> Run:
    meaning = {"inputs": [{"name": "x", **(said or {})}], "outputs": []}
    preparation = {
        "source": "description",
        "by": "",
        "meaning": meaning,
        "overridden": {},
        "arrived": {"x": figures},
    }
    return replace(PLAIN, preparation=preparation)


@pytest.mark.parametrize(
    ("said", "figures", "expected"),
    [
        ({}, {"numbers": [0, 1], "holds": [0, 1], "beyond": 0.0, "used": 1.0}, []),
        ({}, {"numbers": [0, 1.2], "holds": [0, 1], "beyond": 0.004, "used": 1.0}, []),
        ({}, {"numbers": [0, 16], "holds": [0, 1], "beyond": 0.4, "used": 1.0}, ["range"]),
        ({}, {"numbers": [0, 1], "holds": [0, 255], "beyond": 0.0, "used": 1 / 255}, ["range"]),
        ({"sample_range": [0, 255]}, {"sample_range": [0, 16]}, ["range"]),
        ({"sample_range": [0, 16]}, {"sample_range": [0, 255]}, ["range"]),
        ({"sample_range": [0, 255]}, {"sample_range": [3, 250]}, []),
        ({"observed_range": [0, 1]}, {"numbers": [0, 16]}, ["range"]),
        ({"observed_range": [-3, 3]}, {"numbers": [-3.5, 2.9]}, []),
        ({}, {"sample_dtype": "int8", "taken_dtype": "int8"}, ["quantised twice"]),
        ({"quantised": "already"}, {"sample_dtype": "int8", "taken_dtype": "int8"}, []),
        (
            {"sample_range": "x"},
            {"sample_range": {}, "numbers": 3, "beyond": "a", "holds": [1]},
            [],
        ),
    ],
)
def test_what_arrives_is_held_against_what_the_model_was_made_for(
    said: dict[str, Any], figures: dict[str, Any], expected: list[str]
) -> None:
    assert kinds(arrived(said, **figures)) == expected


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ({}, []),
        ({"spread": 0.8, "shift": 0.1}, []),
        ({"spread": 3.0, "shift": 0.9}, []),
        ({"spread": 3128.0, "shift": 37.0}, ["range"]),
        ({"spread": 0.05, "shift": 0.25}, ["range"]),
        ({"spread": 1.0, "shift": 5.0}, ["range"]),
        ({"spread": "many"}, []),
    ],
)
def test_what_arrives_at_the_first_normalisation_fits_its_statistics(
    found: Any, expected: list[str]
) -> None:
    assert (
        kinds(replace(PLAIN, preparation={"source": "options", "first_normalisation": found}))
        == expected
    )


def test_what_nobody_said_and_what_was_overridden_are_doubts() -> None:
    unknown = replace(
        PLAIN, preparation={"source": "unknown", "arrived": {"x": {"sample_range": [0, 16]}}}
    )
    assert (
        "which went in as they are (0 to 16); say it with --scale"
        in check_quality(unknown)[0].reason
    )
    changed = replace(
        PLAIN, preparation={"source": "description", "overridden": {"scale": [16.0, 255.0]}}
    )
    assert "scale: 255.0 instead of 16.0" in check_quality(changed)[0].reason
    assert check_quality(PLAIN) == ()
