"""Weights of 4 and 8 bits in matrix products of ONNX models."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from installed import ImportedWhenUsed, needs
from network_contracts import ONNXNetworkContract

from nnpipe.compilers.onnx_quantizer import ONNXWeightQuantizer
from nnpipe.core.artifact import Artifact
from nnpipe.core.errors import CompileError, ConfigError
from nnpipe.core.tensors import IOSpec, TensorSpec
from nnpipe.runtimes.onnxruntime import ONNXRuntime

needs("onnx", "onnxruntime")
onnx = ImportedWhenUsed("onnx")

IO = IOSpec(
    (TensorSpec("x", (None, 4, 64), "float32"),), (TensorSpec("y", (None, 4, 96), "float32"),)
)


class TestONNXWeightQuantizer(ONNXNetworkContract):
    tolerance = 0.5  # of outputs between -14 and 7

    @pytest.fixture
    def compiler(self) -> ONNXWeightQuantizer:
        return ONNXWeightQuantizer(bits="8")


@pytest.fixture
def product(tmp_path: Path) -> Artifact:
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    weights = np.random.default_rng(0).normal(size=(64, 96)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "product",
        [helper.make_tensor_value_info("x", kind, ["n", 4, 64])],
        [helper.make_tensor_value_info("y", kind, ["n", 4, 96])],
        [onnx.numpy_helper.from_array(weights, "w")],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9),
        tmp_path / "p.onnx",
    )
    return Artifact.create(tmp_path / "p.onnx", "onnx", IO)


@pytest.mark.parametrize(("bits", "error", "share"), [("8", 0.01, 0.35), ("4", 0.15, 0.25)])
def test_products_are_nearly_the_same_and_files_smaller(
    product: Artifact, tmp_path: Path, bits: Literal["4", "8"], error: float, share: float
) -> None:
    made = ONNXWeightQuantizer(bits=bits).compile(product, tmp_path / "made.onnx")
    batch = {"x": np.random.default_rng(1).normal(size=(3, 4, 64)).astype(np.float32)}
    with ONNXRuntime().load(product) as whole, ONNXRuntime().load(made) as fewer:
        expected, found = whole.infer(batch)["y"], fewer.infer(batch)["y"]
    off = float(np.linalg.norm(found - expected) / np.linalg.norm(expected))
    assert 0 < off < error
    assert made.path.stat().st_size < share * product.path.stat().st_size
    assert made.io == IO


def test_a_model_without_such_products_is_refused(product: Artifact, tmp_path: Path) -> None:
    model = onnx.load(product.path)
    model.graph.node[0].op_type = "Add"
    onnx.save(model, tmp_path / "sum.onnx")
    with pytest.raises(
        CompileError, match="nothing in it would become int4: its weights are 6,144 float32"
    ):
        ONNXWeightQuantizer().compile(
            Artifact.create(tmp_path / "sum.onnx", "onnx", IO), tmp_path / "made.onnx"
        )
    assert not (tmp_path / "made.onnx").exists()


def test_block_sizes_are_powers_of_two() -> None:
    with pytest.raises(ConfigError, match="not 48"):
        ONNXWeightQuantizer(block_size=48)
