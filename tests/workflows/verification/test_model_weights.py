"""Weights of any model as the numbers with which it computes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nnpipe.core.artifact import Artifact
from nnpipe.core.model import ModelWrapper
from nnpipe.core.registry import find
from nnpipe.core.tensors import IOSpec, TensorSpec
from nnpipe.workflows.verification.model_weights import extract_weights

onnx = pytest.importorskip("onnx", reason="onnx is not installed")
pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")


def test_columns_of_a_square_matrix_have_their_own_scales(tmp_path: Path) -> None:
    from onnx import TensorProto, helper, numpy_helper

    from nnpipe.compilers.onnx_quantizer import ONNXDynamicQuantizer

    scales = np.logspace(-2, 0, 8)
    matrix = (np.random.default_rng(0).standard_normal((8, 8)) * scales).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], "product")],
        "square",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, 8])],
        [numpy_helper.from_array(matrix, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    path = tmp_path / "square.onnx"
    onnx.save_model(model, str(path))
    io = IOSpec((TensorSpec("x", (None, 8), "float32"),), (TensorSpec("y", (None, 8), "float32"),))
    made = ONNXDynamicQuantizer(per_channel=True).compile(
        Artifact.create(path, "onnx", io), tmp_path / "made.onnx"
    )
    opened = (
        find("ONNXModel", ModelWrapper).from_json({"model_path": str(made.path)}).open(made.path)
    )
    (weight,) = [
        each for each in extract_weights(opened).tensors if each.values.shape == matrix.shape
    ]
    assert weight.step is not None
    assert np.all(np.abs(weight.values - matrix) <= 0.51 * weight.step)


def test_weights_that_a_model_computes_are_told_from_those_that_it_only_turns(
    tmp_path: Path,
) -> None:
    from onnx import TensorProto, helper, numpy_helper

    random = np.random.default_rng(0)
    nodes = [
        helper.make_node("Mul", ["v", "g"], ["w"]),
        helper.make_node("Transpose", ["plain"], ["turned"], perm=[1, 0]),
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("MatMul", ["h", "turned"], ["y"]),
    ]
    shapes = {"v": (8, 8), "g": (8,), "plain": (8, 8)}
    graph = helper.make_graph(
        nodes,
        "computed",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, 8])],
        [
            numpy_helper.from_array(random.standard_normal(s).astype(np.float32), n)
            for n, s in shapes.items()
        ],
    )
    path = tmp_path / "computed.onnx"
    onnx.save_model(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9),
        str(path),
    )
    opened = find("ONNXModel", ModelWrapper).from_json({"model_path": str(path)}).open(path)
    assert {weight.name: weight.computed for weight in extract_weights(opened).tensors} == {
        "v": True,
        "plain": False,
    }
