"""Tensors find each other by what they hold, also behind a fault and in another order of axes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from nnpipe.analysis._similarity import find_tensors_before_rounding, measure_share_of_change
from nnpipe.analysis.suspect_operations import find_suspects, get_sure_threshold
from nnpipe.analysis.tensor_pairing import ComputedTensor, Pair, TensorPairing

Function = Callable[[Any], Any]
RANDOM = np.random.default_rng(0)
IMAGE = RANDOM.standard_normal((8, 3, 6, 6))
KERNELS = [
    RANDOM.standard_normal((5, 3)),
    RANDOM.standard_normal((5, 5)),
    RANDOM.standard_normal((5, 5)),
]
BIASES = [RANDOM.standard_normal(5) for _ in KERNELS]


def layer(kernel: Any, bias: Any) -> Function:
    return lambda x: np.einsum("oi,nihw->nohw", kernel, x) + bias[:, None, None]


def relu(x: Any) -> Any:
    return np.maximum(x, 0)


def chain(kernels: Any = KERNELS, biases: Any = BIASES) -> dict[str, Function]:
    """Three layers with an activation behind each, by the names of what they compute."""
    found: dict[str, Function] = {}
    for number, (kernel, bias) in enumerate(zip(kernels, biases, strict=True)):
        found |= {f"conv{number}": layer(kernel, bias), f"relu{number}": relu}
    return found


def places(names: list[str]) -> list[ComputedTensor]:
    return [
        ComputedTensor(name, f"op_{name}", name[:4], "", ((names[n - 1],) if n else ("image",)))
        for n, name in enumerate(names)
    ]


def run(
    functions: Mapping[str, Function], given: Mapping[str, Any] = {}, image: Any = IMAGE
) -> dict[str, Any]:
    found, value = {}, image
    for name, function in functions.items():
        found[name] = function(value)
        value = given.get(name, found[name])
    return found


def pairs_of(
    source: Mapping[str, Function], other: Mapping[str, Any], claim: str = "float"
) -> list[Pair]:
    outputs = {list(source)[-1]: list(other)[-1]}
    pairing = TensorPairing(
        places(list(source)),
        places(list(other)),
        other,
        lambda given: run(source, given),
        outputs,
        get_sure_threshold((claim,)),
    )
    return pairing.find_pairs()


def suspects(
    source: Mapping[str, Function], other: Mapping[str, Any], claim: str = "float"
) -> list[Any]:
    names = list(source)
    inputs = {place.tensor: place.inputs for place in places(names)}
    weighted = {name: (f"op_{name}",) for name in names if name.startswith("conv")}
    pairs = pairs_of(source, other, claim)
    silent = run(
        source,
        {pair.source.tensor: np.zeros_like(pair.expected) for pair in pairs},
        np.zeros_like(IMAGE),
    )
    return list(find_suspects(pairs, 1, (claim,), inputs, weighted, places(list(other)), silent)[1])


def fused(values: Mapping[str, Any], last: bool = True) -> dict[str, Any]:
    """What a framework shows that has no names, fuses activations, and lays channels last."""
    kept = [value for name, value in values.items() if name.startswith("relu")]
    return {f"t{n}": value.transpose(0, 2, 3, 1) if last else value for n, value in enumerate(kept)}


def test_names_and_axes_may_be_lost() -> None:
    found = pairs_of(chain(), fused(run(chain())))
    assert [(pair.source.tensor, pair.other.tensor, pair.sure) for pair in found] == [
        ("relu0", "t0", True),
        ("relu1", "t1", True),
        ("relu2", "t2", True),
    ]
    for pair in found:
        np.testing.assert_allclose(pair.found, pair.expected)


def test_a_sound_model_has_no_suspects() -> None:
    assert suspects(chain(), fused(run(chain()))) == []
    assert suspects(chain(), run(chain())) == []


def damaged(number: int, change: Callable[[Any], Any], bias: bool = False) -> dict[str, Function]:
    kernels, biases = [k.copy() for k in KERNELS], [b.copy() for b in BIASES]
    part = biases if bias else kernels
    part[number] = change(part[number])
    return chain(kernels, biases)


@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize(
    ("change", "bias", "told"),
    [
        (lambda k: k[[1, 0, 2, 3, 4]], False, ""),
        (lambda k: k * np.array([0, 1, 1, 1, 1])[:, None], False, ""),
        (
            lambda k: k + 0.3 * k.std() * np.random.default_rng(1).standard_normal(k.shape),
            False,
            "noise",
        ),
        (lambda b: 0 * b, True, "as if its bias were missing"),
        (lambda k: 1.5 * k, False, ""),
    ],
    ids=["swap", "zero", "noise", "bias", "scale"],
)
@pytest.mark.parametrize("shown", ["all", "fused"])
def test_a_fault_is_found_where_it_is_and_nowhere_else(
    number: int, change: Callable[[Any], Any], bias: bool, told: str, shown: str
) -> None:
    values = run(damaged(number, change, bias))
    (found,) = suspects(chain(), fused(values) if shown == "fused" else values)
    assert found.within == (f"op_conv{number}",)
    assert told in found.told


def test_swapped_channels_are_called_so() -> None:
    order = [1, 0, 2, 3, 4]
    (found,) = suspects(
        chain(),
        fused(
            run(
                chain(
                    [k[order] for k in KERNELS[:1]] + KERNELS[1:], [BIASES[0][order], *BIASES[1:]]
                )
            )
        ),
    )
    assert found.told.startswith("channels 0 and 1 hold what belongs into channels 1 and 0")


def rounded(values: Any, levels: int = 255) -> Any:
    step = (values.max() - min(values.min(), 0)) / levels
    return np.rint(values / step) * step


def in_eight_bits(functions: Mapping[str, Function]) -> dict[str, Any]:
    """The same with activations rounded to 8 bits."""
    steps = {
        name: (lambda x, f=f: rounded(f(x)) if f is relu else f(x)) for name, f in functions.items()
    }
    return fused(run(steps))


def test_rounding_is_no_fault_and_a_fault_beside_it_is() -> None:
    assert suspects(chain(), in_eight_bits(chain()), "int8") == []
    # nobody said that it rounds
    assert len(suspects(chain(), in_eight_bits(chain()), "float")) == 3
    (found,) = suspects(chain(), in_eight_bits(damaged(1, lambda k: k[[1, 0, 2, 3, 4]])), "int8")
    assert found.within == ("op_conv1",)
    assert "channels 0 and 1" in found.told


def test_a_small_missing_bias_is_seen_beside_rounding() -> None:
    biases = [0.05 * bias for bias in BIASES]
    source, without = chain(KERNELS, biases), chain(KERNELS, [biases[0], 0 * biases[1], biases[2]])
    assert suspects(source, in_eight_bits(source), "int8") == []
    (found,) = suspects(source, in_eight_bits(without), "int8")
    assert found.within == ("op_conv1",)
    assert "as if its bias were missing" in found.told
    twice = chain(KERNELS, [biases[0], 2 * biases[1], biases[2]])
    (found,) = suspects(source, in_eight_bits(twice), "int8")
    assert "as if its bias were added once too often" in found.told


def test_names_decide_where_rounding_hides_a_bias() -> None:
    bias = 0.01 * np.random.default_rng(5).standard_normal(5)
    source = {
        "prod": layer(KERNELS[0], np.zeros(5)),
        "bias": lambda x: x + bias[:, None, None],
        "relu": relu,
    }
    # as far from the source's product as rounding may be
    product = run(source)["prod"] - 0.6 * bias[:, None, None]
    other = {
        "prod": product,
        "bias": source["bias"](product),
        "relu": relu(source["bias"](product)),
    }
    assert [
        (pair.source.tensor, pair.other.tensor) for pair in pairs_of(source, other, "int8")
    ] == [(name, name) for name in source]


@pytest.mark.parametrize("added", [True, False])
def test_a_bias_that_is_added_and_rounded_afterwards_is_not_missing(added: bool) -> None:
    bias = 0.02 * np.random.default_rng(6).standard_normal(5)[:, None, None]
    without, random = layer(KERNELS[0], np.zeros(5)), np.random.default_rng(7)
    source = {"conv": lambda x: without(x) + bias, "tanh": np.tanh}

    def rest(given: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "conv": np.broadcast_to(bias, given["conv"].shape),
            "tanh": np.zeros_like(given["conv"]),
        }

    product = without(IMAGE)
    total = product + bias + 0.1 * random.uniform(-1, 1, product.shape) if added else product
    other = {"prod": product, "sum": total, "tanh": np.tanh(total)}
    pairing = TensorPairing(
        places(list(source)),
        places(list(other)),
        other,
        lambda given: run(source, given),
        {"tanh": "tanh"},
        get_sure_threshold(("int8",)),
        at_rest=rest(run(source)),
    )
    found = [pair.other.tensor for pair in pairing.find_pairs()]
    assert found == (["sum", "tanh"] if added else ["prod", "tanh"])


def test_a_sum_is_found_although_only_its_rounded_values_go_on() -> None:
    bias = 0.004 * np.random.default_rng(6).standard_normal(5)[:, None, None]
    without, random = layer(KERNELS[0], np.zeros(5)), np.random.default_rng(7)
    source = {"conv": lambda x: without(x) + bias, "tanh": np.tanh}
    product = without(IMAGE)
    total = product + bias
    cast = total + 0.2 * random.uniform(-1, 1, product.shape)
    other = {"prod": product, "sum": total, "cast": cast, "tanh": np.tanh(cast)}
    pairing = TensorPairing(
        places(list(source)),
        places(list(other)),
        other,
        lambda given: run(source, given),
        {"tanh": "tanh"},
        get_sure_threshold(("int8",)),
    )
    assert [pair.other.tensor for pair in pairing.find_pairs()] == ["cast", "tanh"]


def test_a_mask_of_the_lowest_float_tells_nothing_about_a_bias() -> None:
    lowest = np.full((4, 4), float(np.finfo(np.float32).min))
    assert measure_share_of_change(np.full((4, 4), -np.inf), lowest, lowest) == (0.0, np.inf)
    assert measure_share_of_change(1e200 * lowest, lowest, lowest) == (0.0, np.inf)
    assert measure_share_of_change(np.ones((4, 4)), np.zeros((4, 4)), np.ones((4, 4))) == (1.0, 0.0)


@pytest.mark.parametrize(("kind", "paired"), [("FULLY_CONNECTED", False), ("MEAN", True)])
def test_a_tensor_that_only_leads_to_a_smaller_product_needs_no_counterpart(
    kind: str, paired: bool
) -> None:
    """A scale that the other model multiplies into a matrix; averages could hide a fault,
    though.
    """
    random = np.random.default_rng(12)
    scale, matrix = random.uniform(1.0, 1.2, 12), random.standard_normal((12, 5))
    rows = random.standard_normal((40, 12))
    source = {"scaled": lambda x: np.tanh(x) * scale, "out": lambda x: x @ matrix, "last": np.tanh}
    found = run(source, image=rows)
    other = {"even": np.tanh(rows), "out": found["out"], "last": found["last"]}
    there = [*places(list(other))]
    there[1] = replace(there[1], kind=kind)
    pairing = TensorPairing(
        places(list(source)),
        there,
        other,
        lambda given: run(source, given, rows),
        {"last": "last"},
        get_sure_threshold(("float",)),
    )
    assert ("scaled" in [pair.source.tensor for pair in pairing.find_pairs()]) is paired


def test_a_normalisation_without_its_shift_is_not_taken_for_the_layer_before_it() -> None:
    """Little more than one factor parts the two, and behind the wrong one of them everything
    would look spoilt.
    """
    random = np.random.default_rng(11)
    factor, shift = 0.4 + 0.02 * random.standard_normal(5), random.standard_normal(5)

    def normalised(x: Any, shift: Any = shift) -> Any:
        return x * factor[:, None, None] + shift[:, None, None]

    source: dict[str, Function] = {}
    for number in range(3):
        source |= {
            f"conv{number}": layer(KERNELS[number], 0 * BIASES[0]),
            f"norm{number}": normalised,
            f"relu{number}": relu,
        }
    spoilt = {**source, "norm1": lambda x: normalised(x, 0 * shift)}
    shown = {name: value for name, value in run(spoilt).items() if not name.startswith("conv")}
    found = suspects(source, shown, "int8")
    assert [suspect.level.tensor for suspect in found] == ["norm1"]
    assert "as if its bias were missing" in found[0].told


@pytest.mark.parametrize(
    ("kind", "passed_on"), [("QuantizeLinear", True), ("DynamicQuantizeLinear", False)]
)
def test_values_before_integers_of_a_scale_that_is_not_stored_are_compared(
    kind: str, passed_on: bool
) -> None:
    there = [
        ComputedTensor("a", "gelu", "Mul", "", ("x",)),
        ComputedTensor("q", "round", kind, "", ("a",)),
    ]
    assert ("a" in find_tensors_before_rounding(there)) is passed_on


def test_tensors_that_lead_to_no_output_have_no_counterpart() -> None:
    functions = chain()
    other = run(functions) | {"extra": RANDOM.standard_normal((8, 5, 6, 6))}
    names = [*places(list(functions)), ComputedTensor("spare", "op_spare", "view", "", ("conv1",))]

    def recompute(given: Mapping[str, Any]) -> dict[str, Any]:
        found = run(functions, given)
        return found | {"spare": np.roll(given.get("conv1", found["conv1"]), 1, axis=3)}

    pairing = TensorPairing(
        names,
        places(list(other)),
        other,
        recompute,
        {"relu2": "relu2"},
        get_sure_threshold(("float",)),
    )
    assert [pair.source.tensor for pair in pairing.find_pairs()] == list(functions)


def test_a_sum_with_a_small_bias_is_not_taken_for_the_product_before_it() -> None:
    random = np.random.default_rng(1)
    rows, first, second = (
        random.standard_normal(shape) for shape in ((64, 32), (32, 32), (32, 32))
    )
    bias = random.standard_normal(32) * 0.15
    source: dict[str, Function] = {
        "product": lambda x: x @ first,
        "bias": lambda x: x + bias,
        "relu": relu,
        "last": lambda x: x @ second,
    }
    added = np.rint((rows @ first + bias) / 0.6) * 0.6
    other = {"fused": added, "last": relu(added) @ second}
    names = list(source)
    values = run(
        source,
        {name: np.zeros_like(array) for name, array in run(source, image=rows).items()},
        rows * 0,
    )
    pairs = TensorPairing(
        places(names),
        places(list(other)),
        other,
        lambda given: run(source, given, rows),
        {"last": "last"},
        get_sure_threshold(("int8",)),
        at_rest=values,
    ).find_pairs()
    assert [(pair.source.tensor, pair.other.tensor) for pair in pairs] == [
        ("bias", "fused"),
        ("last", "last"),
    ]


def test_operations_are_computed_from_what_the_other_model_reads_after_a_reshape() -> None:
    random = np.random.default_rng(1)
    means, kernel = random.standard_normal((64, 32)), random.standard_normal((32, 8))
    source: dict[str, Function] = {"mean": lambda x: x * 1.0, "last": lambda x: x @ kernel}
    read = np.rint(means / 0.4) * 0.4
    other = {
        "mean": means,
        "reshape": means[..., None],
        "quantize": read[..., None],
        "last": read @ kernel,
    }
    there = [replace(place, kind=place.tensor) for place in places(list(other))]
    pairs = TensorPairing(
        places(list(source)),
        there,
        other,
        lambda given: run(source, given, means),
        {"last": "last"},
        get_sure_threshold(("int8",)),
    ).find_pairs()
    assert pairs[0].other.tensor == "mean"
    assert pairs[-1].expected == pytest.approx(pairs[-1].found)
