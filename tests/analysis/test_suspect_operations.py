"""How far an operation is from what its source computes."""

from __future__ import annotations

import numpy as np
import pytest

from nnpipe.analysis.channel_errors import round_to_8_bits
from nnpipe.analysis.suspect_operations import find_suspects, measure_pair
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
    assert measure_pair(pair(expected, found), 1, ("int8",)).over < 0
    assert measure_pair(pair(expected, found), 1, ("float",)).over > 0
    # no integers: nothing cuts there
    assert measure_pair(pair(expected, expected.clip(-3, 3)), 1, ("int8",)).over > 0


def test_of_few_values_some_may_lie_beyond_the_range_by_chance() -> None:
    expected = signal()[:10]
    expected[[2, 7], 3] = 3.5, -3.3  # 2 of 80
    assert measure_pair(pair(expected, with_integers(expected, 2.9)), 1, ("int8",)).over < 0


def test_noise_as_of_rounded_inputs_is_no_fault_even_in_faint_channels() -> None:
    random = np.random.default_rng(4)
    inputs, weights = random.normal(size=(VALUES, 32)), random.normal(size=(32, CHANNELS))
    inputs[:, 0] *= 50.0  # so all others are rounded coarsely
    weights[0, 2] = 0.0
    expected = inputs @ weights
    simulated = round_to_8_bits(inputs) @ weights
    found = round_to_8_bits(inputs * 1.01) / 1.01 @ weights  # in a slightly other range
    assert measure_pair(pair(expected, found), 1, ("int8-weights",)).over > 0
    assert measure_pair(pair(expected, found), 1, ("int8-weights",), simulated).over < 0
    found[:, 2] *= 1.6
    assert measure_pair(pair(expected, found), 1, ("int8-weights",), simulated).over > 0


def test_a_range_that_cuts_off_many_values_is_a_fault() -> None:
    expected = signal()
    assert measure_pair(pair(expected, with_integers(expected, 0.5)), 1, ("int8",)).over > 0


def test_wrong_values_within_the_range_are_a_fault() -> None:
    expected = signal()
    found = with_integers(expected, 4.0)
    found[:, 3] = found[:, 5]
    assert measure_pair(pair(expected, found), 1, ("int8",)).over > 0


def suspects_of(found: np.ndarray, expected: np.ndarray, bias: np.ndarray) -> list[str]:
    rest, only = {"t": np.broadcast_to(bias, expected.shape)}, pair(expected, found)
    return [
        s.told
        for s in find_suspects([only], 1, ("int8",), {"t": ("x",)}, {}, [only.other], rest)[1]
    ]


def test_biases_of_a_matrix_that_takes_sequences_are_on_the_last_axis() -> None:
    random = np.random.default_rng(1)
    expected, bias = random.normal(size=(40, 6, CHANNELS)), random.normal(0.02, 0.05, CHANNELS)
    rounded = with_integers(expected, 4.0)
    assert suspects_of(rounded + np.median(bias), expected, bias) == []  # in all channels the same
    assert suspects_of(rounded + 0.02, expected, np.full(CHANNELS, 0.02)) == []
    assert suspects_of(rounded, expected, bias) == []
    assert suspects_of(rounded - bias, expected, bias)[0].startswith("as if its bias were missing")
    assert suspects_of(rounded + bias, expected, bias)[0].startswith(
        "as if its bias were added once too often"
    )


def test_an_error_much_larger_than_a_bias_is_not_that_bias() -> None:
    random = np.random.default_rng(2)
    expected, bias = random.normal(size=(200, CHANNELS)), random.normal(0, 1e-4, CHANNELS)
    assert suspects_of(with_integers(expected, 4.0) + 300 * bias, expected, bias) == []


def test_a_constant_row_is_no_bias() -> None:
    """The token that a transformer puts before the others differs from element to element, and
    is rounded once.
    """
    random = np.random.default_rng(3)
    expected, token = random.normal(size=(40, 5, CHANNELS)), random.normal(size=CHANNELS)
    token += 0.1 - np.median(token)
    expected[:, 0] = token
    rest = np.zeros_like(expected)
    rest[:, 0] = token
    found = expected.copy()
    found[:, 0] = token - 0.6 * np.median(token)
    only = pair(expected, found)
    assert (
        find_suspects([only], 1, ("int8",), {"t": ("x",)}, {}, [only.other], {"t": rest})[1] == ()
    )


@pytest.mark.parametrize(
    ("kind", "wrong"), [("aten.adaptive_avg_pool2d.default", False), ("Conv", True)]
)
def test_an_average_of_integers_may_be_off_by_a_step_more(kind: str, wrong: bool) -> None:
    """Kernels of LiteRT truncate the zero point before they add it, and round the result
    besides.
    """
    random, step = np.random.default_rng(4), 0.1
    expected = random.normal(size=(VALUES, CHANNELS)) * np.where(
        np.arange(CHANNELS) == 5, 3 * step, 20 * step
    )
    found = (np.rint(expected / step) + 1) * step
    place = ComputedTensor("t", "operation", kind, "layer", ("x",))
    one = Pair(place, place, expected, found, True)
    assert (measure_pair(one, 1, ("int8",)).over > 0) is wrong
    assert measure_pair(one, 1, ("float",)).over > 0
    assert measure_pair(Pair(place, place, expected, found + 2 * step, True), 1, ("int8",)).over > 0


def test_what_is_computed_without_rounded_numbers_is_held_to_be_as_exact() -> None:
    expected = signal()
    only = pair(expected, expected + 0.01 * signal(1))
    given = ([only], 1, ("int8-weights",), {"t": ("x",)}, {}, [only.other], {})
    assert find_suspects(*given)[1] == ()
    assert [each.name for each in find_suspects(*given, {"t"})[1]] == ["operation"]


def test_a_bias_that_is_missing_is_missing_in_the_operations_before_too() -> None:
    bias, expected = np.linspace(1, 2, CHANNELS), signal()
    conv = ComputedTensor("c", "conv", "Conv", "", ("x",))
    relu = ComputedTensor("r", "relu", "Relu", "", ("c",))
    only = Pair(
        ComputedTensor("t", "sum", "Add", "", ("x",)), relu, expected + bias, expected, True
    )
    rest = {"t": np.broadcast_to(bias, expected.shape)}
    before = Pair(conv, conv, expected, expected, True)
    (suspect,) = find_suspects(
        [before, only], 1, ("float",), {"t": ("c",)}, {}, [conv, relu], rest
    )[1]
    assert "its bias were missing" in suspect.told
    assert suspect.there == ("relu", "conv")
