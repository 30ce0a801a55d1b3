"""Equalised models compute the same numbers, and uneven channels no longer spoil their
quantisation.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from network_contracts import ONNXNetworkContract

from nnpipe.compilers.onnx_optimizer import ONNXEqualizer
from nnpipe.compilers.onnx_quantizer import ONNXStaticQuantizer
from nnpipe.core.artifact import Artifact
from nnpipe.core.tensors import Batch, IOSpec, TensorSpec, generate_random_batch
from nnpipe.runtimes.onnxruntime import ONNXRuntime
from nnpipe.testing.compiler import run_compiled

onnx = pytest.importorskip("onnx", reason="onnx is not installed")
pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")

IO = IOSpec(
    (TensorSpec("x", (None, 2, 8, 8), "float32"),), (TensorSpec("y", (None, 4), "float32"),)
)


class TestONNXEqualizer(ONNXNetworkContract):
    tolerance = 1e-5

    @pytest.fixture
    def compiler(self) -> ONNXEqualizer:
        return ONNXEqualizer()


def write_uneven(path: Path, factor: float) -> Artifact:
    """Write a convolution, a depthwise one, a pointwise one and a matrix product, between which
    one channel is huge.
    """
    from onnx import TensorProto, helper, numpy_helper

    generator = np.random.default_rng(0)
    scale = np.array([factor, 1, 1, 1, 1, 1])
    weights = {
        "w1": generator.standard_normal((6, 2, 3, 3)) * scale[:, None, None, None],
        "b1": generator.standard_normal(6) * scale,
        "w2": generator.standard_normal((6, 1, 3, 3)),
        "w3": generator.standard_normal((6, 6, 1, 1))
        / scale[:, None, None]
        * scale[:, None, None, None],
        "w4": generator.standard_normal((4, 6)) / scale,
        "b4": generator.standard_normal(4),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c1"]),
        helper.make_node("Relu", ["c1"], ["r1"]),
        helper.make_node("Conv", ["r1", "w2"], ["c2"], group=6),
        helper.make_node("LeakyRelu", ["c2"], ["r2"]),
        helper.make_node("Conv", ["r2", "w3"], ["c3"]),
        helper.make_node("Relu", ["c3"], ["r3"]),
        helper.make_node("GlobalAveragePool", ["r3"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Gemm", ["f", "w4", "b4"], ["y"], transB=1),
    ]
    graph = helper.make_graph(
        nodes,
        "uneven",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 2, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4])],
        [
            numpy_helper.from_array(array.astype(np.float32), name)
            for name, array in weights.items()
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save_model(model, str(path))
    return Artifact.create(path, "onnx", IO)


def samples(count: int) -> list[Batch]:
    return [generate_random_batch(IO, 1, seed) for seed in range(count)]


def test_the_numbers_are_the_same_to_the_last_bit(tmp_path: Path) -> None:
    source = write_uneven(tmp_path / "uneven.onnx", 256.0)
    made = ONNXEqualizer().compile(source, tmp_path / "even.onnx")
    plain = ONNXRuntime(graph_optimisation="none")
    before, after = (run_compiled(plain, each, IO, samples(10)) for each in (source, made))
    for one, other in zip(before, after, strict=True):
        np.testing.assert_array_equal(one["y"], other["y"])


def test_uneven_channels_no_longer_spoil_integers(tmp_path: Path) -> None:
    source = write_uneven(tmp_path / "uneven.onnx", 300.0)
    even = ONNXEqualizer().compile(source, tmp_path / "even.onnx")
    weights = {
        each.name: onnx.numpy_helper.to_array(each)
        for each in onnx.load_model(str(even.path)).graph.initializer
    }
    largest = np.abs(weights["w1"]).max(axis=(1, 2, 3))
    assert largest.max() / largest.min() < 16

    def error(model: Artifact) -> float:
        made = ONNXStaticQuantizer().compile(model, tmp_path / "made.onnx", lambda: samples(60))
        pairs = zip(
            *(run_compiled(ONNXRuntime(), each, IO, samples(20)) for each in (source, made)),
            strict=True,
        )
        return float(np.mean([np.abs(one["y"] - other["y"]).mean() for one, other in pairs]))

    assert error(even) < error(source) / 3
