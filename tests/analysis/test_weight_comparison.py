"""Weights find each other through names, layouts and folded normalisations, and are judged by
what is claimed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from nnpipe.analysis.weight_changes import WeightComparison, find_complete_counterparts
from nnpipe.analysis.weight_comparison import compare_weights
from nnpipe.analysis.weights import Layout, Normalisation, Weight, Weights, match_weights
from nnpipe.core.artifact import Claim, normalize_claims

RANDOM = np.random.default_rng(0)
KERNELS = {
    n: RANDOM.standard_normal(shape)
    for n, shape in (("a", (6, 4, 3, 3)), ("b", (6, 6, 3, 3)), ("c", (6, 6, 3, 3)))
}
DENSE = RANDOM.standard_normal((10, 6))
BIASES = {name: RANDOM.standard_normal(6) for name in "abc"}
TURNS: dict[Layout, tuple[int, ...]] = {
    "OIHW": (0, 1, 2, 3),
    "HWIO": (2, 3, 1, 0),
    "OHWI": (0, 2, 3, 1),
}
NORM = Normalisation(
    "norm_b",
    RANDOM.uniform(0.5, 2, 6),
    RANDOM.standard_normal(6),
    RANDOM.standard_normal(6),
    RANDOM.uniform(0.1, 3, 6),
    1e-5,
    "norm_b.beta",
)


def model(
    layout: Layout = "OIHW", prefix: str = "", norm: bool = False, steps: Any = None, **changed: Any
) -> Weights:
    """Three convolutions and a dense layer; ``b`` is normalised where that is asked for."""
    found = []
    for name in "abc":
        kernel = changed.get(name, KERNELS[name]).transpose(TURNS[layout])
        step = None
        if steps is not None:
            step = (
                np.abs(kernel).max(
                    tuple(n for n in range(4) if TURNS[layout][n] != 0), keepdims=True
                )
                / 127
            )
            kernel = np.rint(kernel / step) * step
        bias = changed.get(f"bias_{name}", BIASES[name])
        found += [
            Weight(
                f"{prefix}{name}.weight",
                kernel,
                f"{prefix}conv_{name}",
                "Conv",
                1,
                step,
                f"out_{name}",
            ),
            Weight(
                f"{prefix}{name}.bias", bias, f"{prefix}conv_{name}", "Conv", 2, None, f"out_{name}"
            ),
        ]
    dense = DENSE if layout == "OIHW" else DENSE.T
    found.append(
        Weight(
            f"{prefix}dense",
            changed.get("dense", dense),
            f"{prefix}dense",
            "Gemm",
            1,
            None,
            "scores",
        )
    )
    return Weights(tuple(found), layout, {"out_b": NORM} if norm else {})


def judged(other: Weights, *claims: str, source: Weights | None = None) -> WeightComparison:
    found = compare_weights(source or model(), other, normalize_claims(claims or ("float",)))
    assert WeightComparison.from_json(found.to_json()) == found
    return found


def swapped(kernel: Any, one: int = 1, two: int = 4) -> Any:
    found = kernel.copy()
    found[[one, two]] = found[[two, one]]
    return found


def pruned(kernel: Any, part: float = 0.5) -> Any:
    return np.where(np.abs(kernel) < np.quantile(np.abs(kernel), part), 0.0, kernel)


def clustered(kernel: Any, count: int = 12) -> Any:
    levels = np.linspace(kernel.min(), kernel.max(), count)
    return levels[np.abs(kernel[..., None] - levels).argmin(-1)]


@pytest.mark.parametrize("layout", ["OIHW", "HWIO", "OHWI"])
def test_tensors_find_each_other_in_any_layout_without_names(layout: Layout) -> None:
    pairs = match_weights(model(), model(layout, prefix="other/"))
    assert {pair.source.name: pair.other.name for pair in pairs} == {
        weight.name: f"other/{weight.name}" for weight in model().tensors
    }
    for pair in pairs:
        np.testing.assert_array_equal(pair.get_aligned_values(), pair.source.values)


@pytest.mark.parametrize(
    ("claims", "change"),
    [
        (("float",), lambda k: k * (1 + 1e-6)),
        (("float16",), lambda k: k.astype(np.float16).astype(float)),
        (("pruned",), pruned),
        (("pruned", "float16"), lambda k: pruned(k).astype(np.float16).astype(float)),
        (("clustered",), clustered),
        (("pruned", "clustered"), lambda k: np.where(pruned(k) == 0, 0.0, clustered(k))),
        (("fine-tuned",), lambda k: k * 1.3 + 0.1),
    ],
)
def test_what_is_claimed_is_not_wrong(claims: tuple[str, ...], change: Any) -> None:
    found = judged(model("HWIO", "x/", b=change(KERNELS["b"])), *claims)
    assert not found.wrong
    assert not found.left
    assert len(found.tensors) == 7


@pytest.mark.parametrize("claim", ["float", "float16", "pruned", "clustered"])
def test_a_swap_is_told_on_top_of_what_is_claimed(claim: Claim) -> None:
    change = {"pruned": pruned, "clustered": clustered}.get(claim, lambda k: k)
    found = judged(model("OHWI", "x/", b=swapped(change(KERNELS["b"]))), claim)
    (wrong,) = found.wrong
    assert (wrong.name, wrong.channels) == ("b.weight", (1, 4))
    assert wrong.wrong.startswith("channels 1, 4 hold what belongs into channels 4, 1")


def test_integers_are_the_nearest_of_their_channel_and_no_others() -> None:
    sound = judged(model("OHWI", "x/", steps=True), "int8")
    assert not sound.wrong
    assert max(t.steps for t in sound.tensors if t.steps is not None) == pytest.approx(
        0.5, abs=0.01
    )
    noisy = KERNELS["c"] + 0.3 * RANDOM.standard_normal(KERNELS["c"].shape)
    assert [t.name for t in judged(model("OHWI", "x/", steps=True, c=noisy), "int8").wrong] == [
        "c.weight"
    ]
    assert [
        t.name
        for t in judged(model("OHWI", "x/", steps=True, c=swapped(KERNELS["c"])), "int8").wrong
    ] == ["c.weight"]


@pytest.mark.parametrize("epsilon", [1e-5, 1e-3, 0.0153])
@pytest.mark.parametrize("claims", [("float",), ("int8",), ("pruned",), ("clustered",)])
def test_a_folded_normalisation_is_accounted_for(claims: tuple[str, ...], epsilon: float) -> None:
    change = {"pruned": pruned, "clustered": clustered}.get(claims[0], lambda k: k)
    factor = NORM.gamma / np.sqrt(NORM.variance + epsilon)
    bias = NORM.beta + factor * (BIASES["b"] - NORM.mean)
    source = replace(model(), normalised={"out_b": replace(NORM, epsilon=epsilon)})
    kernel = change(KERNELS["b"]) * factor[:, None, None, None]
    steps = True if claims == ("int8",) else None
    found = judged(model("OHWI", "x/", b=kernel, bias_b=bias, steps=steps), *claims, source=source)
    assert not found.wrong
    assert {t.name: t.folded for t in found.tensors}["b.weight"] == "norm_b"
    damaged = swapped(change(KERNELS["b"])) * factor[:, None, None, None]
    found = judged(model("OHWI", "x/", b=damaged, bias_b=bias, steps=steps), *claims, source=source)
    assert [t.name for t in found.wrong] == ["b.weight"]
    unbiased = model("OHWI", "x/", b=kernel, bias_b=np.zeros(6), steps=steps)
    first = judged(unbiased, *claims, source=source).wrong[0]
    assert (first.name, first.wrong) == ("b.bias", "all of it is 0")


@pytest.mark.parametrize("zeros", [slice(None), slice(0, 3)])
def test_a_normalisation_with_scales_of_zero_makes_zeros(zeros: slice) -> None:
    gamma = NORM.gamma.copy()
    gamma[zeros] = 0
    norm = replace(NORM, gamma=gamma)
    source = replace(model(), normalised={"out_b": norm})
    bias = norm.beta + norm.factor * (BIASES["b"] - norm.mean)
    kernel = KERNELS["b"] * norm.factor[:, None, None, None]
    assert not judged(model("OHWI", b=kernel, bias_b=bias), source=source).wrong
    assert not judged(model("OHWI"), source=source).wrong  # not folded
    (wrong,) = judged(model("OHWI", b=0 * KERNELS["b"]), source=model()).wrong
    assert wrong.name == "b.weight"


@pytest.mark.parametrize("layout", ["OIHW", "OHWI"])
def test_a_normalisation_with_negative_factors_is_accounted_for(layout: Layout) -> None:
    """Along the outputs, the median of the channels' cosines is then -1, and along the inputs it
    is near 0.
    """
    norm = replace(NORM, gamma=NORM.gamma * np.array([-1.0, 1.0, -1.0, -1.0, 1.0, -1.0]))
    source = replace(model(), normalised={"out_b": norm})
    factor = norm.factor
    bias = norm.beta + factor * (BIASES["b"] - norm.mean)
    found = judged(
        model(layout, b=KERNELS["b"] * factor[:, None, None, None], bias_b=bias), source=source
    )
    assert not found.wrong
    assert {t.name: t.folded for t in found.tensors}["b.weight"] == "norm_b"


def test_weights_that_a_source_takes_over_are_those_before_folding() -> None:
    factor = NORM.factor[:, None, None, None]
    bias = NORM.beta + NORM.factor * (BIASES["b"] - NORM.mean)
    norm = Weight("norm_b.beta", NORM.beta, "norm_b", "BatchNorm", 2)
    source = Weights((*model(norm=True).tensors, norm), "OIHW", {"out_b": NORM})
    found = find_complete_counterparts(
        source, model("HWIO", "x/", b=pruned(KERNELS["b"]) * factor, bias_b=bias)
    )
    np.testing.assert_allclose(found["b.weight"], pruned(KERNELS["b"]), atol=1e-12)
    np.testing.assert_allclose(found["norm_b.beta"], NORM.beta, atol=1e-12)
    without = tuple(weight for weight in model().tensors if weight.name != "dense")
    assert find_complete_counterparts(source, Weights(without, "OIHW")) == {}


@pytest.mark.parametrize("claims", [("float",), ("int8",), ("clustered",), ("fine-tuned",)])
def test_a_dead_channel_is_named_unless_pruning_is_claimed(claims: tuple[str, ...]) -> None:
    kernel = KERNELS["c"].copy()
    kernel[3] = 0
    (wrong,) = judged(model("HWIO", "x/", c=kernel), *claims).wrong
    assert wrong.dead == (3,)
    assert "0 throughout, and nothing was pruned" in wrong.wrong
    allowed = judged(model("HWIO", "x/", c=kernel), *claims, "pruned")
    assert not allowed.wrong
    assert {t.name: t.dead for t in allowed.tensors}["c.weight"] == (3,)


def test_a_pruned_model_may_lose_a_bias_only_with_its_channel() -> None:
    kernel, bias = KERNELS["c"].copy(), BIASES["c"].copy()
    kernel[3], bias[3] = 0, 0
    assert not judged(model(c=kernel, bias_c=bias), "pruned").wrong
    (wrong,) = judged(model(c=kernel, bias_c=np.zeros(6)), "pruned").wrong
    assert wrong.name == "c.bias"


def test_more_different_numbers_than_clusters_are_told() -> None:
    (wrong,) = judged(
        model(c=KERNELS["c"] + 0.1 * RANDOM.standard_normal(KERNELS["c"].shape)), "clustered"
    ).wrong
    assert "it takes 324 different values" in wrong.wrong


def test_a_transposed_kernel_is_no_layout() -> None:
    (wrong,) = judged(model(c=KERNELS["c"].swapaxes(2, 3)), "pruned").wrong
    assert wrong.name == "c.weight"
    (wrong,) = judged(model("OHWI", "x/", b=KERNELS["b"].swapaxes(2, 3)), "pruned").wrong
    assert (wrong.name, wrong.by) == ("b.weight", "place")


def test_channels_that_were_taken_away_are_found_in_the_kept_ones() -> None:
    rows, columns = [0, 2, 5], [1, 2, 3, 4]
    fewer = {"b": KERNELS["b"][rows][:, columns], "bias_b": BIASES["b"][rows]}
    found = judged(model(**fewer), "pruned")
    assert not found.wrong
    assert not found.left
    assert found.taken == pytest.approx(
        (324 - 108 + 3) / sum(w.values.size for w in model().tensors)
    )
    (wrong,) = judged(model(**{**fewer, "b": fewer["b"][[1, 0, 2]]}), "pruned").wrong
    assert wrong.channels == (0, 1)


def test_a_factor_that_nothing_accounts_for_is_told_and_not_judged_unless_names_agree() -> None:
    found = judged(model("HWIO", "x/", c=3 * KERNELS["c"]), "pruned")
    assert not found.wrong
    assert [t.name for t in found.tensors if t.remark] == ["c.weight"]
    (wrong,) = judged(model(c=3 * KERNELS["c"]), "pruned").wrong
    assert "values are 3 times what they should be" in wrong.wrong


def test_numbers_that_a_file_computes_in_half_precision_are_rounded_more_than_once() -> None:
    """As weights of a convolution with weight normalisation are."""
    kernel = KERNELS["a"] * (1 + 0.003 * RANDOM.uniform(-1, 1, KERNELS["a"].shape))
    once = model("OHWI", "x/", a=kernel)
    computed = replace(
        once, tensors=tuple(replace(w, computed=w.values.ndim == 4) for w in once.tensors)
    )
    assert [t.name for t in judged(once, "float16").wrong] == ["a.weight"]
    assert not judged(computed, "float16").wrong
    swapped_there = model("OHWI", "x/", a=swapped(kernel))
    there = replace(
        swapped_there, tensors=tuple(replace(w, computed=True) for w in swapped_there.tensors)
    )
    (wrong,) = judged(there, "float16").wrong
    assert wrong.channels == (1, 4)


@pytest.mark.parametrize("claim", ["float", "int8"])
def test_a_bias_may_be_multiplied_as_its_kernel_is(claim: str) -> None:
    """As queries of attention are by the scale of the scores."""
    steps = 1 if claim == "int8" else None
    scaled = model("HWIO", "x/", steps=steps, c=0.25 * KERNELS["c"], bias_c=0.25 * BIASES["c"])
    found = judged(scaled, claim)
    assert not found.wrong
    assert [t.name for t in found.tensors if t.remark] == ["c.weight", "c.bias"]
    for other in (BIASES["c"], 0.5 * BIASES["c"], 0 * BIASES["c"]):
        (wrong,) = judged(
            model("HWIO", "x/", steps=steps, c=0.25 * KERNELS["c"], bias_c=-0.25 * other), claim
        ).wrong
        assert wrong.name == "c.bias"


def folded_by(**factors: float) -> tuple[Weights, Weights]:
    """A source whose ``b`` and ``c`` are normalised, and a file with these folded, kernels
    multiplied once more.
    """
    made = {}
    for name in "bc":
        factor = NORM.factor
        made[name] = KERNELS[name] * factor[:, None, None, None] * factors.get(name, 1.0)
        made[f"bias_{name}"] = NORM.beta + factor * (BIASES[name] - NORM.mean)
    other = replace(NORM, name="norm_c", beta_name="norm_c.beta")
    source = Weights(model().tensors, "OIHW", {"out_b": NORM, "out_c": other})
    return source, model("OHWI", "x/", **made)


@pytest.mark.parametrize("factor", [2.0, 3.0])
def test_a_lone_factor_that_its_bias_does_not_share_is_wrong(factor: float) -> None:
    source, other = folded_by(c=factor)
    (wrong,) = judged(other, source=source).wrong
    assert wrong.name == "c.weight"
    assert "neither its bias nor another layer makes up for them" in wrong.wrong


def test_factors_of_two_layers_may_make_up_for_each_other() -> None:
    source, other = folded_by(b=3.0, c=2.0)
    found = judged(other, source=source)
    assert not found.wrong
    assert [t.name for t in found.tensors if t.remark] == ["b.weight", "c.weight"]


def test_other_matrices_have_no_counterpart() -> None:
    found = judged(model("HWIO", "x/", dense=RANDOM.standard_normal(DENSE.T.shape)), "float")
    assert found.left == ("dense",)
    assert not found.wrong
    assert str(found) == "weights: 6 of 7 tensors compared; unchanged"
