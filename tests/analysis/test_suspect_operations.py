"""How far an operation is from what its source computes."""

from __future__ import annotations

import numpy as np

from nnpipe.analysis.suspect_operations import level_of, suspects_among
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


def suspects_of(found: np.ndarray, expected: np.ndarray, bias: np.ndarray) -> list[str]:
    rest, only = {"t": np.broadcast_to(bias, expected.shape)}, pair(expected, found)
    return [s.told for s in suspects_among([only], 1, ("int8",), {"t": ("x",)}, {}, [only.other], rest)[1]]


def test_biases_of_a_matrix_that_takes_sequences_are_on_the_last_axis() -> None:
    random = np.random.default_rng(1)
    expected, bias = random.normal(size=(40, 6, CHANNELS)), random.normal(0.02, 0.05, CHANNELS)
    rounded = with_integers(expected, 4.0)
    assert suspects_of(rounded + np.median(bias), expected, bias) == []  # in all channels the same
    assert suspects_of(rounded + 0.02, expected, np.full(CHANNELS, 0.02)) == []
    assert suspects_of(rounded, expected, bias) == []
    assert suspects_of(rounded - bias, expected, bias)[0].startswith("its bias is missing")
    assert suspects_of(rounded + bias, expected, bias)[0].startswith("its bias is added once too often")


def test_an_error_much_larger_than_a_bias_is_not_that_bias() -> None:
    random = np.random.default_rng(2)
    expected, bias = random.normal(size=(200, CHANNELS)), random.normal(0, 1e-4, CHANNELS)
    assert suspects_of(with_integers(expected, 4.0) + 300 * bias, expected, bias) == []
