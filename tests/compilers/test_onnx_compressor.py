"""Compressed ONNX models take fewer bytes, are unpacked when they are loaded, and compute nearly
the same.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from network_contracts import ONNXNetworkContract

from nnpipe.compilers.onnx_compression import ONNXCompressor
from nnpipe.compilers.onnx_quantizer import ONNXStaticQuantizer
from nnpipe.core.artifact import Artifact
from nnpipe.core.errors import CompileError, ConfigError
from nnpipe.core.tensors import IOSpec, TensorSpec
from nnpipe.testing.session import assert_one_line

onnx = pytest.importorskip("onnx", reason="onnx is not installed")
ort = pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")

IO = IOSpec(
    (TensorSpec("x", (None, 8, 6, 6), "float32"),), (TensorSpec("y", (None, 10), "float32"),)
)


class TestONNXCompressor(ONNXNetworkContract):
    tolerance = 1.0  # of outputs between -14 and 7
    agreement = 0.6

    @pytest.fixture
    def compiler(self) -> ONNXCompressor:
        return ONNXCompressor(layers=("Conv*=int6", "Gemm*=cluster32"))


@pytest.fixture
def source(tmp_path: Path) -> Artifact:
    """Two convolutions, one of them in two groups, and a matrix product."""
    from onnx import TensorProto, helper, numpy_helper

    random = np.random.default_rng(0)
    weights = {
        "first": random.normal(size=(16, 8, 3, 3)),
        "second": random.normal(size=(12, 8, 3, 3)),
    }
    weights["last"] = random.normal(size=(12, 10))
    nodes = [
        helper.make_node("Conv", ["x", "first"], ["a"], "first", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"], "relu"),
        helper.make_node("Conv", ["b", "second"], ["c"], "second", group=2, strides=[2, 2]),
        helper.make_node("GlobalAveragePool", ["c"], ["d"], "mean"),
        helper.make_node("Flatten", ["d"], ["e"], "flat"),
        helper.make_node("MatMul", ["e", "last"], ["y"], "last"),
    ]
    sides = [
        [helper.make_tensor_value_info(spec.name, TensorProto.FLOAT, ["n", *spec.shape[1:]])]
        for spec in (*IO.inputs, *IO.outputs)
    ]
    constants = [
        numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()
    ]
    graph = helper.make_graph(nodes, "network", sides[0], sides[1], constants)
    path = tmp_path / "source.onnx"
    onnx.save_model(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9),
        str(path),
    )
    return Artifact.create(path, "onnx", IO)


def samples() -> list[dict[str, np.ndarray]]:
    """Return inputs whose channels are correlated, as those of images are."""
    random = np.random.default_rng(1)
    mixed = np.einsum(
        "nkhw,kc->nchw", random.normal(size=(64, 2, 6, 6)), random.normal(size=(2, 8))
    )
    return [
        {"x": each[None].astype(np.float32)}
        for each in mixed + 0.1 * random.normal(size=mixed.shape)
    ]


SAMPLES = samples()


@pytest.fixture
def compressed(source: Artifact, tmp_path: Path) -> Callable[..., Artifact]:
    def made(*layers: str, of: Artifact = source, **arguments: Any) -> Artifact:
        path = tmp_path / f"{abs(hash((layers, of.path, *arguments)))}.onnx"
        return ONNXCompressor(layers=layers, **arguments).compile(of, path, lambda: SAMPLES)

    return made


def outputs(artifact: Artifact) -> np.ndarray:
    session = ort.InferenceSession(str(artifact.path), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": np.concatenate([each["x"] for each in SAMPLES])})[0]


def off(artifact: Artifact, source: Artifact) -> float:
    """Return by how much the outputs differ from those of the source, as a share."""
    return float(
        np.linalg.norm(outputs(artifact) - outputs(source)) / np.linalg.norm(outputs(source))
    )


def test_fewer_bits_take_fewer_bytes_and_cost_more_accuracy(
    source: Artifact, compressed: Callable[..., Artifact]
) -> None:
    made = [compressed(f"*={form}") for form in ("float16", "int8", "int6", "int4", "int2")]
    sizes, errors = [each.size for each in made], [off(each, source) for each in made]
    assert sizes == sorted(sizes, reverse=True)
    assert errors == sorted(errors)
    assert errors[1] < 0.01
    # Weights of 4 bits: less than a quarter of the floats, with all that belongs to them.
    assert sizes[3] < source.size / 4 + 1000


@pytest.mark.parametrize("form", ["int4", "cluster8", "prune50+int6", "prune50"])
def test_errors_make_up_for_each_other(
    source: Artifact, compressed: Callable[..., Artifact], form: str
) -> None:
    alone, together = compressed(f"first={form}", error_feedback=False), compressed(f"first={form}")
    assert off(together, source) < 0.9 * off(alone, source)


def test_a_layer_has_as_few_values_as_its_form_says(compressed: Callable[..., Artifact]) -> None:
    weights = unpacked(compressed("first=cluster8", "last=int3", "second=prune75"))
    # A scale for each channel, times the values: 8 of k-means, 7 evenly spaced ones.
    assert {
        len(np.unique(np.round(row / np.abs(row).max(), 4))) <= 8
        for row in weights[0].reshape(16, -1)
    } == {True}
    assert {len(np.unique(column)) <= 7 for column in weights[2].T} == {True}
    assert np.count_nonzero(weights[1] == 0) == 12 * int(0.75 * 8 * 9)


def unpacked(artifact: Artifact) -> list[np.ndarray]:
    """Return the weights of the layers as ONNX Runtime has them after loading."""
    model = onnx.load(artifact.path)
    layers = [node.input[1] for node in model.graph.node if node.op_type in ("Conv", "MatMul")]
    model.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in layers)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(layers, {"x": SAMPLES[0]["x"]})


def test_weights_of_another_quantiser_are_packed_without_loss(
    source: Artifact, compressed: Callable[..., Artifact], tmp_path: Path
) -> None:
    quantised = ONNXStaticQuantizer().compile(source, tmp_path / "int8.onnx", lambda: SAMPLES)
    packed, small = compressed(of=quantised), compressed("first=int4", "second=int4", of=quantised)
    np.testing.assert_array_equal(outputs(packed), outputs(quantised))
    assert small.size < packed.size < quantised.size
    # Activations stay integers: the runtime finds the same kernels behind the unpacked weights.
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "loaded.onnx")
    ort.InferenceSession(str(small.path), options, providers=["CPUExecutionProvider"])
    kinds = [node.op_type for node in onnx.load(tmp_path / "loaded.onnx").graph.node]
    assert kinds.count("QLinearConv") == 2


def test_what_cannot_be_packed_stays(source: Artifact, compressed: Callable[..., Artifact]) -> None:
    np.testing.assert_array_equal(outputs(compressed()), outputs(source))


def test_layers_that_are_not_there_are_refused_by_name(compressed: Callable[..., Artifact]) -> None:
    for layers, told in (
        ("frist=int4", "no layer 'frist'.*first"),
        ("first=int9", "'int9' is no form"),
    ):
        with pytest.raises(ConfigError, match=told) as caught:
            compressed(layers)
        assert_one_line(caught.value)


def test_a_model_without_layers_is_refused(tmp_path: Path) -> None:
    from onnx import TensorProto, helper

    sides = [
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 8, 6, 6])] for name in "xy"
    ]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", sides[0], sides[1])
    path = tmp_path / "relu.onnx"
    onnx.save_model(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9),
        str(path),
    )
    io = IOSpec(IO.inputs, (TensorSpec("y", (None, 8, 6, 6), "float32"),))
    with pytest.raises(CompileError, match="no convolution or matrix product"):
        ONNXCompressor().compile(Artifact.create(path, "onnx", io), tmp_path / "made.onnx")
