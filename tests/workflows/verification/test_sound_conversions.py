"""Sound conversions agree, whatever they did; a cause is stated only if undoing it makes the
outputs equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from installed import needs

from nnpipe.analysis.agreement import Tolerances
from nnpipe.core.artifact import Claim
from nnpipe.core.live_model import LiveModel
from nnpipe.core.model import ModelWrapper
from nnpipe.core.registry import find
from nnpipe.workflows.verification.binding import match_tensors
from nnpipe.workflows.verification.claims import infer_number_format
from nnpipe.workflows.verification.compare_inside import compare_inside
from nnpipe.workflows.verification.compare_outputs import Reference, verify_outputs
from nnpipe.workflows.verification.first_difference import update_verdict

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
needs("onnx_ir")

CHANNELS = 6
ODD_EPSILON = 0.0153  # no framework's default


def weights_of(random: np.random.Generator) -> dict[str, Any]:
    """Two convolutions, each with a normalisation."""
    found: dict[str, Any] = {"last": random.standard_normal((CHANNELS, 4))}
    for name, taken in (("a", 3), ("b", CHANNELS)):
        found |= {
            f"{name}.kernel": random.standard_normal((CHANNELS, taken, 3, 3)) / 4,
            f"{name}.gamma": random.uniform(0.5, 2, CHANNELS),
            f"{name}.beta": random.standard_normal(CHANNELS),
            f"{name}.mean": random.standard_normal(CHANNELS),
            f"{name}.variance": random.uniform(0.01, 1, CHANNELS),
        }
    return found


def network(
    path: Path, weights: dict[str, Any], epsilon: float = 1e-5, folded: float | None = None
) -> LiveModel:
    """Write and open the network; with ``folded``, its normalisations are in its kernels, with
    this epsilon.
    """
    node = onnx.helper.make_node
    held = {"last": weights["last"]}
    nodes, tensor = [], "x"
    for name in "ab":
        kernel, *norm = (
            weights[f"{name}.{part}"] for part in ("kernel", "gamma", "beta", "mean", "variance")
        )
        held[f"{name}.kernel"] = kernel
        inputs = [tensor, f"{name}.kernel"]
        if folded is not None:
            gamma, beta, mean, variance = norm
            factor = gamma / np.sqrt(variance + folded)
            held[f"{name}.kernel"] = kernel * factor[:, None, None, None]
            held[f"{name}.bias"] = beta - factor * mean
            inputs.append(f"{name}.bias")
        nodes.append(node("Conv", inputs, [f"{name}c"], f"conv_{name}", pads=[1] * 4))
        tensor = f"{name}c"
        if folded is None:
            parts = [f"{name}.{part}" for part in ("gamma", "beta", "mean", "variance")]
            held |= {part: weights[part] for part in parts}
            nodes.append(
                node(
                    "BatchNormalization",
                    [tensor, *parts],
                    [f"{name}n"],
                    f"norm_{name}",
                    epsilon=epsilon,
                )
            )
            tensor = f"{name}n"
        nodes.append(node("Relu", [tensor], [f"{name}r"], f"relu_{name}"))
        tensor = f"{name}r"
    nodes += [
        node("GlobalAveragePool", [tensor], ["pooled"], "pool"),
        node("Flatten", ["pooled"], ["flat"], "flatten"),
        node("MatMul", ["flat", "last"], ["scores"], "matrix"),
    ]
    kind = onnx.TensorProto.FLOAT
    graph = onnx.helper.make_graph(
        nodes,
        "net",
        [onnx.helper.make_tensor_value_info("x", kind, ["n", 3, 8, 8])],
        [onnx.helper.make_tensor_value_info("scores", kind, ["n", 4])],
        [onnx.numpy_helper.from_array(np.float32(array), name) for name, array in held.items()],
    )
    opset = [onnx.helper.make_opsetid("", 17)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=8), path)
    return opened(path)


def opened(path: Path, cls: str = "ONNXModel") -> LiveModel:
    return find(cls, ModelWrapper).from_json({"model_path": str(path)}).open(path)


def told_of(
    source: LiveModel,
    other: LiveModel,
    claims: tuple[Claim, ...] = ("float",),
    samples: Sequence[dict[str, Any]] = (),
) -> dict[str, Any]:
    """Compare two models as ``verify`` does; return the verdict and its reason."""
    random = np.random.default_rng(1)
    samples = samples or [
        {"x": random.standard_normal((1, 3, 8, 8)).astype(np.float32)} for _ in range(8)
    ]
    binding = match_tensors(source.io, other.io, {}, ())
    with source.session() as session:
        reference = Reference.from_session(session, source.io, samples)
    with other.session() as session:
        found = verify_outputs(session, reference, Tolerances(), binding, claims)
    where, weights = compare_inside(source, other, binding, samples, claims)
    assert not isinstance(where, str)
    assert not isinstance(weights, str)
    return {**found, **update_verdict(found, where, weights)}


@pytest.mark.parametrize("zeros", [CHANNELS, 2])
@pytest.mark.parametrize("epsilon", [1e-3, 1e-5, ODD_EPSILON])
def test_a_folded_normalisation_is_as_the_source_states_it(
    tmp_path: Path, zeros: int, epsilon: float
) -> None:
    weights = weights_of(np.random.default_rng(0))
    weights["b.gamma"][:zeros] = 0  # as the last scales of residual branches are at first
    source = network(tmp_path / "source.onnx", weights, epsilon)
    found = told_of(source, network(tmp_path / "folded.onnx", weights, folded=epsilon))
    assert (found["verdict"], "suspect" in found["reason"]) == ("same", False)
    wrong = network(tmp_path / "other.onnx", weights, folded=3 * epsilon + 0.01)
    # or b is constant
    assert told_of(source, wrong)["verdict"] == ("same" if zeros == CHANNELS else "different")


def test_another_epsilon_that_changes_no_output_is_a_remark(tmp_path: Path) -> None:
    weights = weights_of(np.random.default_rng(0))
    weights["b.kernel"][:3] *= 1e-4
    # channels that are always off
    weights["b.variance"][:3], weights["b.mean"][:3], weights["b.beta"][:3] = 0, 0, -5
    source = network(tmp_path / "source.onnx", weights, 1e-3)
    weights |= {"a.variance": weights["a.variance"] + 1e-3 - 1e-5}
    weights["b.variance"] = weights["b.variance"] + np.where(
        np.arange(CHANNELS) < 3, 0, 1e-3 - 1e-5
    )
    found = told_of(source, network(tmp_path / "folded.onnx", weights, folded=1e-5))
    assert found["verdict"] == "same"


@pytest.mark.parametrize("folded", [None, 1e-5])
def test_a_cause_is_stated_if_undoing_it_makes_the_outputs_equal(
    tmp_path: Path, folded: float | None
) -> None:
    weights = weights_of(np.random.default_rng(0))
    source = network(tmp_path / "source.onnx", weights)
    bad = {**weights, "b.kernel": weights["b.kernel"][[1, 0, 2, 3, 4, 5]]}
    found = told_of(source, network(tmp_path / "bad.onnx", bad, folded=folded))
    assert found["verdict"] == "different"
    assert "the cause is 'conv_b" in found["reason"]


def test_one_of_two_faults_is_only_most_suspect(tmp_path: Path) -> None:
    weights = weights_of(np.random.default_rng(0))
    source = network(tmp_path / "source.onnx", weights)
    bad = {**weights, "b.kernel": weights["b.kernel"][::-1], "last": weights["last"][::-1]}
    found = told_of(source, network(tmp_path / "bad.onnx", bad))
    assert found["verdict"] == "different"
    assert "most suspect is" in found["reason"]
    assert "cause" not in found["reason"]


def test_a_source_of_integers_is_not_judged_for_floats(tmp_path: Path) -> None:
    from nnpipe.compilers.onnx_quantizer import ONNXStaticQuantizer

    weights = weights_of(np.random.default_rng(0))
    made = network(tmp_path / "source.onnx", weights)
    random = np.random.default_rng(2)
    samples = [{"x": random.standard_normal((1, 3, 8, 8)).astype(np.float32)} for _ in range(8)]
    exported = made.export(tmp_path / "exported.onnx", "onnx")
    integers = ONNXStaticQuantizer().compile(exported, tmp_path / "integers.onnx", lambda: samples)
    source = opened(integers.path)
    assert infer_number_format(source) == "int8"
    assert infer_number_format(made) == "float"
    with source.session() as session:
        reference = Reference.from_session(session, source.io, samples, infer_number_format(source))
    assert reference.with_own_numbers(()) == ("int8",)
    reference.write(tmp_path / "reference.npz")
    assert Reference.read(tmp_path / "reference.npz").with_own_numbers(("float",)) == ("int8",)


def test_a_bias_added_twice_is_seen_although_weights_are_rounded(tmp_path: Path) -> None:
    from nnpipe.compilers.onnx_quantizer import ONNXDynamicQuantizer

    random, node = np.random.default_rng(0), onnx.helper.make_node
    nodes = [
        node("MatMul", ["x", "weights"], ["product"], "product"),
        node("Add", ["product", "bias"], ["sum"], "sum"),
        node("Softmax", ["sum"], ["scores"], "softmax"),
    ]
    held = {"weights": random.standard_normal((16, 4)), "bias": 0.1 * random.standard_normal(4)}
    kind = onnx.TensorProto.FLOAT
    graph = onnx.helper.make_graph(
        nodes,
        "net",
        [onnx.helper.make_tensor_value_info("x", kind, ["n", 16])],
        [onnx.helper.make_tensor_value_info("scores", kind, ["n", 4])],
        [onnx.numpy_helper.from_array(np.float32(array), name) for name, array in held.items()],
    )
    opset = [onnx.helper.make_opsetid("", 17)]
    onnx.save(
        onnx.helper.make_model(graph, opset_imports=opset, ir_version=8), tmp_path / "source.onnx"
    )
    source = opened(tmp_path / "source.onnx")
    exported = source.export(tmp_path / "exported.onnx", "onnx")
    path = ONNXDynamicQuantizer().compile(exported, tmp_path / "integers.onnx").path
    samples = [{"x": random.standard_normal((1, 16)).astype(np.float32)} for _ in range(8)]
    assert told_of(source, opened(path), ("int8-weights",), samples)["verdict"] == "close"

    proto = onnx.load(path)
    last = next(each for each in proto.graph.node if each.op_type == "Softmax")
    bias = next(
        name
        for each in proto.graph.node
        if each.op_type == "Add"
        for name in each.input
        if "bias" in name
    )
    again = node("Add", [last.input[0], bias], ["again"], "again")
    last.input[0] = "again"
    proto.graph.node.insert(list(proto.graph.node).index(last), again)
    onnx.save(proto, tmp_path / "damaged.onnx")
    found = told_of(source, opened(tmp_path / "damaged.onnx"), ("int8-weights",), samples)
    assert found["verdict"] == "different"
    assert "'softmax'" in found["reason"]


@pytest.mark.parametrize(
    ("level", "numbers"), [(0, "float"), (1, "float"), (2, "float16"), (4, "int8-weights")]
)
def test_a_source_that_lets_activations_be_rounded_is_only_as_exact(
    tmp_path: Path, level: int, numbers: str
) -> None:
    from onnx import TensorProto, helper, numpy_helper

    random = np.random.default_rng(0)
    packed = random.integers(0, 256, (32, 2, 16), dtype=np.uint8)
    scales = (random.random(64) / 10 + 0.05).astype(np.float32)
    shape = {"K": 64, "N": 32, "bits": 4, "block_size": 32, "accuracy_level": level}
    node = helper.make_node(
        "MatMulNBits", ["x", "w", "s"], ["y"], "product", domain="com.microsoft", **shape
    )
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", n])
        for name, n in (("x", 64), ("y", 32))
    ]
    constants = [numpy_helper.from_array(packed, "w"), numpy_helper.from_array(scales, "s")]
    graph = helper.make_graph([node], "blocks", ends[:1], ends[1:], constants)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(
        helper.make_model(graph, opset_imports=opsets, ir_version=8), str(tmp_path / "blocks.onnx")
    )
    assert infer_number_format(opened(tmp_path / "blocks.onnx")) == numbers
