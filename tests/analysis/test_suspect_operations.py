"""How far an operation is from what its source computes."""

from __future__ import annotations

import numpy as np

from nnpipe.analysis.suspect_operations import level_of
from nnpipe.analysis.tensor_pairing import ComputedTensor, Pair

CHANNELS, VALUES = 8, 400


def pair(expected: np.ndarray, found: np.ndarray) -> Pair:
    place = ComputedTensor("t", "operation", "Conv", "layer", ("x",))
    return Pair(place, place, expected, found, True)


def with_integers(values: np.ndarray, largest: float) -> np.ndarray:
    step = largest / 127
    return np.clip(np.rint(values / step), -127, 127) * step


def signal(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(VALUES, CHANNELS))


def test_few_values_beyond_the_range_of_the_calibration_are_no_fault() -> None:
    expected = signal()
    expected[:4, 2] = 30.0  # samples such as the calibration had none
    found = with_integers(expected, 3.0)
    assert level_of(pair(expected, found), 1, ("int8",)).over < 0
    assert level_of(pair(expected, found), 1, ("float",)).over > 0
    assert level_of(pair(expected, expected.clip(-3, 3)), 1, ("int8",)).over > 0  # no integers: nothing cuts there


def test_a_range_that_cuts_off_many_values_is_a_fault() -> None:
    expected = signal()
    assert level_of(pair(expected, with_integers(expected, 0.5)), 1, ("int8",)).over > 0


def test_wrong_values_within_the_range_are_a_fault() -> None:
    expected = signal()
    found = with_integers(expected, 4.0)
    found[:, 3] = found[:, 5]
    assert level_of(pair(expected, found), 1, ("int8",)).over > 0
