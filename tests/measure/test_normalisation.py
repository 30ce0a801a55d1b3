"""Samples prepared otherwise than in training show at the first batch normalisation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nnpipe.measure.normalisation import first_normalisation
from nnpipe.modelwrappers.files.onnx import ONNXModel

onnx = pytest.importorskip("onnx", reason="onnx is not installed")
pytest.importorskip("onnx_ir", reason="onnx-ir is not installed")
pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")


def model(path: Path, mean: float, deviation: float) -> ONNXModel:
    """A network whose input doubles before it is normalised, by these statistics of each channel."""
    from onnx import TensorProto, helper, numpy_helper

    constants = {
        "two": np.float32(2), "weight": np.ones(3), "bias": np.zeros(3),
        "mean": np.full(3, 2 * mean), "variance": np.full(3, (2 * deviation) ** 2),
    }  # fmt: skip
    nodes = [
        helper.make_node("Mul", ["x", "two"], ["twice"]),
        helper.make_node("BatchNormalization", ["twice", "weight", "bias", "mean", "variance"], ["y"], name="norm"),
    ]
    shape = ["n", 3, 8, 8]
    graph = helper.make_graph(
        nodes, "network", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(np.asarray(a, np.float32), name) for name, a in constants.items()],
    )  # fmt: skip
    onnx.save_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), str(path))
    return ONNXModel(model_path=path)


def test_the_ratio_of_variances_and_the_distance_of_means_are_told(tmp_path: Path) -> None:
    wrapper = model(tmp_path / "m.onnx", mean=0.5, deviation=0.25)
    samples = np.random.default_rng(0).normal(0.5, 0.25, (16, 3, 8, 8)).astype(np.float32)
    right = first_normalisation(wrapper, [{"x": samples}])
    assert right["name"] == "norm"
    assert abs(right["spread"] - 1) < 0.1
    assert right["shift"] < 0.1
    wrong = first_normalisation(wrapper, [{"x": samples[:8] * 255}, {"x": samples[8:] * 255}])
    assert wrong["spread"] == pytest.approx(right["spread"] * 255**2, rel=1e-3)
    assert wrong["shift"] > 100


def test_nothing_is_told_of_a_model_that_cannot_be_looked_into(tmp_path: Path) -> None:
    wrapper = model(tmp_path / "m.onnx", mean=0.0, deviation=0.0)
    assert first_normalisation(wrapper, [{"x": np.ones((4, 3, 8, 8), np.float32)}]) == {}
    assert first_normalisation(wrapper, [{"strange": np.ones((4, 3, 8, 8), np.float32)}]) == {}
