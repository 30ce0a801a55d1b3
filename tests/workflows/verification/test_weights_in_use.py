"""Weights that a converter changed without an effect are no faults; the same changes with an
effect are.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from installed import needs

from nnpipe.analysis.weight_changes import WeightComparison
from nnpipe.core.artifact import Claim
from nnpipe.core.live_model import LiveModel
from nnpipe.core.model import ModelWrapper
from nnpipe.core.registry import find
from nnpipe.workflows.verification.binding import match_tensors
from nnpipe.workflows.verification.compare_inside import compare_inside
from nnpipe.workflows.verification.first_difference import Divergence, update_verdict

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
needs("onnx_ir")

RANDOM = np.random.default_rng(3)
WORDS, SEEN, TOKENS, WIDTH = 40, 30, 6, 16
TOKENS_OF = RANDOM.integers(0, SEEN, (8, 1, TOKENS))
WEIGHTS: Mapping[str, Any] = {
    "table": RANDOM.standard_normal((WORDS, WIDTH)),
    "place": RANDOM.standard_normal((TOKENS, WIDTH)),
    "type": RANDOM.standard_normal(WIDTH),
    "gamma": RANDOM.uniform(0.8, 1.2, WIDTH),
    "beta": 0.1 * RANDOM.standard_normal(WIDTH),
    "kernel": RANDOM.standard_normal((WIDTH, WIDTH)),
    "bias": 1e-5 * RANDOM.standard_normal(WIDTH),
    "last": RANDOM.standard_normal((WIDTH, 4)),
}


def folded() -> dict[str, Any]:
    """The same network, as a converter might write it: rows of types added to words, and a
    normalisation folded in.
    """
    one = WEIGHTS
    return {
        **one,
        "table": one["table"] + one["type"],
        "type": np.zeros(WIDTH),
        "kernel": one["gamma"][:, None] * one["kernel"],
        "bias": one["bias"] + one["beta"] @ one["kernel"],
        "gamma": np.ones(WIDTH),
        "beta": np.zeros(WIDTH),
    }


def network(path: Path, weights: Mapping[str, Any]) -> LiveModel:
    """Words, places and types, a normalisation, and two matrices."""
    node = onnx.helper.make_node
    nodes = [
        node("Gather", ["table", "words"], ["found"], "gather"),
        node("Add", ["found", "place"], ["placed"], "places"),
        node("Add", ["placed", "type"], ["sum"], "types"),
        node("LayerNormalization", ["sum", "gamma", "beta"], ["even"], "norm"),
        node("MatMul", ["even", "kernel"], ["product"], "matrix"),
        node("Add", ["product", "bias"], ["scores"], "biases"),
        node("MatMul", ["scores", "last"], ["out"], "last"),
    ]
    taken = onnx.helper.make_tensor_value_info("words", onnx.TensorProto.INT64, ["n", TOKENS])
    given = onnx.helper.make_tensor_value_info("out", onnx.TensorProto.FLOAT, ["n", TOKENS, 4])
    arrays = [
        onnx.numpy_helper.from_array(np.float32(array), name) for name, array in weights.items()
    ]
    graph = onnx.helper.make_graph(nodes, "net", [taken], [given], arrays)
    opset = [onnx.helper.make_opsetid("", 17)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=8), path)
    return find("ONNXModel", ModelWrapper).from_json({"model_path": str(path)}).open(path)


def compared(folder: Path, weights: Mapping[str, Any]) -> tuple[WeightComparison, dict[str, Any]]:
    """Compare the network with one of other weights; return what is found of them, and what it
    adds to a verdict.
    """
    source, other = (
        network(folder / "source.onnx", WEIGHTS),
        network(folder / "other.onnx", weights),
    )
    samples = [{"words": tokens} for tokens in TOKENS_OF]
    where, weighed = compare_inside(
        source, other, match_tensors(source.io, other.io, {}, ()), samples, ("float",)
    )
    assert isinstance(where, Divergence)
    assert isinstance(weighed, WeightComparison)
    for name, array in source.get_weights().items():
        np.testing.assert_array_equal(array, np.float32(WEIGHTS[name]))
    return weighed, update_verdict({"verdict": "same", "reason": ""}, where, weighed)


def test_numbers_for_which_another_operation_makes_up_are_remarks(tmp_path: Path) -> None:
    weighed, added = compared(tmp_path, folded())
    assert added == {}
    remarks = {change.name: change.remark for change in weighed.tensors if change.remark}
    assert {"table", "kernel", "bias"} <= remarks.keys()
    assert "another operation makes up" in remarks["kernel"]
    assert "another operation makes up" in str(weighed)
    assert WeightComparison.from_json(weighed.to_json()) == weighed


def test_a_bias_that_rounding_hides_may_be_left_out(tmp_path: Path) -> None:
    weighed, added = compared(tmp_path, {**WEIGHTS, "bias": np.zeros(WIDTH)})
    assert added == {}
    (change,) = (change for change in weighed.tensors if change.remark)
    assert change.name == "bias"
    assert "lost in the rounding" in change.remark
    assert compared(tmp_path, {**WEIGHTS, "beta": np.zeros(WIDTH)})[1]["verdict"] == "different"


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("kernel", lambda w: w[:, [1, 0, *range(2, WIDTH)]]),
        ("kernel", lambda w: 1.01 * w),
        ("bias", lambda w: w + 0.01),
        # no sample has it
        ("table", lambda w: np.where(np.arange(WORDS)[:, None] == SEEN + 2, w + 0.1 * w[::-1], w)),
        ("table", lambda w: np.where(np.arange(WORDS)[:, None] == SEEN + 2, 0.0, w)),
    ],
)
def test_a_fault_beside_such_numbers_is_found(tmp_path: Path, name: str, change: Any) -> None:
    weights = folded()
    weights[name] = change(weights[name])
    weighed, added = compared(tmp_path, weights)
    assert added["verdict"] == "different"
    assert name in {change.name for change in weighed.wrong}


def normalised(path: Path, gamma: Any, beta: Any, kernel: Any, bias: Any) -> LiveModel:
    """A layer normalisation and a layer with a bias."""
    node = onnx.helper.make_node
    nodes = [
        node("LayerNormalization", ["x", "gamma", "beta"], ["even"], "norm"),
        node("Gemm", ["even", "kernel", "bias"], ["layer"], "dense", transB=1),
        node("Relu", ["layer"], ["out"], "relu"),
    ]
    taken = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", WIDTH])
    given = onnx.helper.make_tensor_value_info("out", onnx.TensorProto.FLOAT, ["n", len(bias)])
    weights = {"gamma": gamma, "beta": beta, "kernel": kernel, "bias": bias}
    arrays = [
        onnx.numpy_helper.from_array(np.float32(array), name) for name, array in weights.items()
    ]
    graph = onnx.helper.make_graph(nodes, "net", [taken], [given], arrays)
    opset = [onnx.helper.make_opsetid("", 17)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=8), path)
    return find("ONNXModel", ModelWrapper).from_json({"model_path": str(path)}).open(path)


@pytest.mark.parametrize("claim", ["float", "int8"])
@pytest.mark.parametrize("swapped", [False, True])
def test_a_normalisation_within_the_next_layer_is_not_looked_for(
    tmp_path: Path, claim: Claim, swapped: bool
) -> None:
    random = np.random.default_rng(7)
    gamma, beta = random.uniform(0.97, 1.03, WIDTH), 0.1 * random.standard_normal(WIDTH)
    kernel, bias = random.standard_normal((8, WIDTH)), random.standard_normal(8)
    source = normalised(tmp_path / "source.onnx", gamma, beta, kernel, bias)
    rows = [1, 0, *range(2, 8)] if swapped else list(range(8))
    shown = (np.ones(WIDTH), np.zeros(WIDTH), (kernel * gamma)[rows], bias + kernel @ beta)
    other = normalised(tmp_path / "other.onnx", *shown)
    samples = [{"x": random.standard_normal((8, WIDTH)).astype(np.float32)} for _ in range(8)]
    where, weighed = compare_inside(
        source, other, match_tensors(source.io, other.io, {}, ()), samples, (claim,)
    )
    assert isinstance(where, Divergence)
    assert isinstance(weighed, WeightComparison)
    told = {
        change.name: change.wrong for change in weighed.tensors if change.name in ("kernel", "bias")
    }
    assert told.pop("bias") == ""
    assert (
        ("channels 0 and 1" in told["kernel"] or "channels 0, 1" in told["kernel"])
        if swapped
        else not told["kernel"]
    )
    assert ("dense" in {suspect.name for suspect in where.suspects}) is swapped
    assert "norm" not in {
        suspect.name for suspect in where.suspects if "as if its bias were missing" in suspect.told
    }
