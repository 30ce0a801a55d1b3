"""Samples prepared otherwise than in training show at the first batch normalisation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from installed import needs

from nnpipe.core.live_model import LiveModel
from nnpipe.measuring._sample_preparation import (
    compare_first_normalisation,
    measure_first_rescaling,
)
from nnpipe.measuring.quality_warnings import _check_preparation
from nnpipe.modelwrappers.files.keras import KerasModel
from nnpipe.modelwrappers.files.onnx import ONNXModel
from nnpipe.modelwrappers.files.tflite import TFLiteModel

onnx = pytest.importorskip("onnx", reason="onnx is not installed")
needs("onnx_ir")
pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")


def model(path: Path, mean: float, deviation: float) -> LiveModel:
    """A network whose input doubles before it is normalised, by these statistics of each
    channel.
    """
    from onnx import TensorProto, helper, numpy_helper

    constants = {
        "two": np.float32(2),
        "weight": np.ones(3),
        "bias": np.zeros(3),
        "mean": np.full(3, 2 * mean),
        "variance": np.full(3, (2 * deviation) ** 2),
    }
    nodes = [
        helper.make_node("Mul", ["x", "two"], ["twice"]),
        helper.make_node(
            "BatchNormalization",
            ["twice", "weight", "bias", "mean", "variance"],
            ["y"],
            name="norm",
        ),
    ]
    shape = ["n", 3, 8, 8]
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(np.asarray(a, np.float32), name) for name, a in constants.items()],
    )
    onnx.save_model(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9),
        str(path),
    )
    return ONNXModel(model_path=path).open()


def test_the_ratio_of_variances_and_the_distance_of_means_are_told(tmp_path: Path) -> None:
    found = model(tmp_path / "m.onnx", mean=0.5, deviation=0.25)
    samples = np.random.default_rng(0).normal(0.5, 0.25, (16, 3, 8, 8)).astype(np.float32)
    right = compare_first_normalisation(found, found.get_inference_graph(), [{"x": samples}])
    assert right["name"] == "norm"
    assert abs(right["spread"] - 1) < 0.1
    assert right["shift"] < 0.1
    wrong = compare_first_normalisation(
        found, found.get_inference_graph(), [{"x": samples[:8] * 255}, {"x": samples[8:] * 255}]
    )
    assert wrong["spread"] == pytest.approx(right["spread"] * 255**2, rel=1e-3)
    assert wrong["shift"] > 100


def test_nothing_is_told_of_a_model_that_cannot_be_looked_into(tmp_path: Path) -> None:
    found = model(tmp_path / "m.onnx", mean=0.0, deviation=0.0)
    assert (
        compare_first_normalisation(
            found, found.get_inference_graph(), [{"x": np.ones((4, 3, 8, 8), np.float32)}]
        )
        == {}
    )
    assert (
        compare_first_normalisation(
            found, found.get_inference_graph(), [{"strange": np.ones((4, 3, 8, 8), np.float32)}]
        )
        == {}
    )


def keras_model(path: Path, first: str, behind: str = "none") -> LiveModel:
    """A small network that begins with a layer of Keras for pixels, and maybe normalises a batch
    behind that.
    """
    keras = pytest.importorskip("keras", reason="Keras is not installed")
    pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
    layers = keras.layers
    scaling = {
        "rescaling": lambda: layers.Rescaling(1 / 127.5, offset=-1),
        "fixed": lambda: layers.Normalization(mean=[120.0] * 3, variance=[60.0**2] * 3),
        "fitted": layers.Normalization,
        "none": lambda: layers.Identity(),
    }[first]()
    pixels = np.random.default_rng(0).uniform(0, 255, (64, 8, 8, 3)).astype(np.float32)
    if first == "fitted":
        scaling.adapt(pixels)
    then = [layers.BatchNormalization(scale=False, momentum=0.0)] if behind == "batch" else []
    network = keras.Sequential([keras.Input((8, 8, 3)), scaling, *then, layers.Conv2D(2, 3)])
    if behind == "batch":
        network(pixels, training=True)
    network.save(path)
    return KerasModel(model_path=path).open(path)


PIXELS = np.random.default_rng(1).uniform(0, 255, (8, 8, 8, 3)).astype(np.float32)


def doubts(model: LiveModel, samples: np.ndarray) -> list[str]:
    """Return what is doubted of samples that go into a model as they are."""
    batches = [{model.io.inputs[0].name: samples}]
    preparation = {
        "first_normalisation": compare_first_normalisation(
            model, model.get_inference_graph(), batches
        ),
        "first_rescaling": measure_first_rescaling(model, model.get_inference_graph(), batches),
    }
    return [doubt.reason for doubt in _check_preparation(preparation)]


@pytest.mark.parametrize(
    ("first", "behind"),
    [("rescaling", "none"), ("fixed", "none"), ("fitted", "none"), ("none", "batch")],
)
def test_a_keras_model_that_scales_pixels_itself_doubts_those_that_are_scaled(
    first: str, behind: str, tmp_path: Path
) -> None:
    found = keras_model(tmp_path / "m.keras", first, behind)
    assert doubts(found, PIXELS) == []
    scaled = doubts(found, PIXELS / 255)
    assert scaled
    if first == "rescaling":
        assert "it looks scaled already" in scaled[0]


def test_a_tflite_model_that_scales_pixels_itself_doubts_those_that_are_scaled(
    tmp_path: Path,
) -> None:
    tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")

    class Network(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None, 8, 8, 3], tf.float32)])
        def __call__(self, x: Any) -> Any:
            return tf.nn.relu(x / 255.0 - 0.5)

    network = Network()
    converter = tf.lite.TFLiteConverter.from_concrete_functions(
        [network.__call__.get_concrete_function()], network
    )
    path = tmp_path / "m.tflite"
    path.write_bytes(converter.convert())
    found = TFLiteModel(model_path=path).open(path)
    assert doubts(found, PIXELS) == []
    assert "it looks scaled already" in doubts(found, PIXELS / 255)[0]
    assert "larger than it is made for" in doubts(found, PIXELS * 255)[0]


def test_models_that_do_not_scale_their_input_down_are_not_doubted(tmp_path: Path) -> None:
    found = model(tmp_path / "m.onnx", mean=0.5, deviation=0.25)
    assert (
        measure_first_rescaling(
            found, found.get_inference_graph(), [{"x": np.ones((4, 3, 8, 8), np.float32)}]
        )
        == {}
    )
    assert (
        measure_first_rescaling(
            found,
            found.get_inference_graph(),
            [{"x": np.random.default_rng(0).random((4, 3, 8, 8), np.float32)}],
        )
        == {}
    )
