"""A network that a few channels spoil in 8 bits is mended by a few tensors in floats."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from installed import needs

import nnpipe as nn
from nnpipe.core.errors import ConfigError
from nnpipe.core.progress import silent
from nnpipe.formats.onnx_network import read_nodes

onnx = pytest.importorskip("onnx", reason="onnx is not installed")
pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")


def write_spoilt(path: Path, images: Any, labels: Any) -> None:
    """Write a nearest-mean classifier behind two layers, between which one channel is a million
    times larger.
    """
    from onnx import TensorProto, helper, numpy_helper

    generator = np.random.default_rng(0)
    turn, _ = np.linalg.qr(generator.standard_normal((6, 6)))
    scale = np.array([1e6, 1, 1, 1, 1, 1])
    means = np.stack([images[labels == each].mean(0) for each in range(4)])
    weights = {
        "first": turn * scale,
        "bias": 5 * scale,
        "second": turn.T / scale[:, None],
        "back": -5 * turn.T.sum(axis=0),
        "third": 2 * means.T,
        "last": -(means**2).sum(1),
    }
    nodes = [
        helper.make_node("Gemm", ["x", "first", "bias"], ["wide"]),
        helper.make_node("Relu", ["wide"], ["positive"]),
        helper.make_node("Gemm", ["positive", "second", "back"], ["again"]),
        helper.make_node("Gemm", ["again", "third", "last"], ["scores"]),
    ]
    graph = helper.make_graph(
        nodes,
        "spoilt",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 6])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["n", 4])],
        [
            numpy_helper.from_array(array.astype(np.float32), name)
            for name, array in weights.items()
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save_model(model, str(path))


@pytest.fixture
def data() -> tuple[Any, Any]:
    labels = np.arange(800) % 4
    corners = np.random.default_rng(1).normal(0, 1, (4, 6))
    return np.random.default_rng(0).normal(corners[labels], 0.2).astype(np.float32), labels


@pytest.mark.slow
def test_the_spoilt_tensor_is_found_and_kept_in_floats(
    tmp_path: Path, data: tuple[Any, Any]
) -> None:
    write_spoilt(tmp_path / "model.onnx", *data)
    found = nn.mix(
        tmp_path / "model.onnx",
        tmp_path / "mixed.onnx",
        data=data,
        max_loss=0.02,
        calibration_samples=50,
        max_seconds=2,
        progress=silent,
    )
    assert found.steps[0].loss > 0.2
    assert found.chosen is not None
    assert found.chosen.kept == ("positive",)
    assert found.ranking[0][0] == "positive"
    assert found.verdict == "proven"
    assert found.difference.samples == 640
    assert len(found.steps) <= 26
    rounded = {
        node.get_input(0)
        for node in read_nodes(tmp_path / "mixed.onnx")
        if node.kind == "QuantizeLinear"
    }
    assert rounded
    assert rounded.isdisjoint(("wide", "positive"))
    assert nn.Artifact.read(tmp_path / "mixed.onnx").meaning is not None
    assert set(found.comparison.titles) == {"floats", "integers", "mixed"}
    assert "1 of" in str(found)
    found.save_report(tmp_path / "mix.html")
    found.save_json(tmp_path / "mix.json")
    assert "positive" in (tmp_path / "mix.html").read_text("utf-8")


@pytest.mark.slow
@pytest.mark.parametrize(
    "way", ["openvino-int8", "tflite-int8", "executorch-int8", "inductor-int8"]
)
def test_a_spoilt_network_of_pytorch_is_mended_on_every_way(
    way: str, tmp_path: Path, data: tuple[Any, Any]
) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    for runtime in {
        "openvino-int8": ("openvino", "nncf"),
        "tflite-int8": ("tensorflow",),
        "executorch-int8": ("executorch",),
        "inductor-int8": ("torchao",),
    }[way]:
        needs(runtime)
    write_spoilt(tmp_path / "model.onnx", *data)
    weights = {
        each.name: onnx.numpy_helper.to_array(each)
        for each in onnx.load(tmp_path / "model.onnx").graph.initializer
    }
    layers = [torch.nn.Linear(6, 6), torch.nn.ReLU(), torch.nn.Linear(6, 6), torch.nn.Linear(6, 4)]
    names = (("first", "bias"), ("second", "back"), ("third", "last"))
    for layer, (weight, bias) in zip((layers[0], *layers[2:]), names, strict=True):
        layer.weight.data = torch.tensor(weights[weight].T)
        layer.bias.data = torch.tensor(weights[bias])
    found = nn.mix(
        torch.nn.Sequential(*layers),
        tmp_path / "mixed",
        data=data,
        way=way,
        max_loss=0.03,
        calibration_samples=50,
        search_samples=100,
        max_seconds=1,
        progress=silent,
    )
    assert found.steps[0].loss > 0.2
    assert found.chosen is not None
    assert 1 <= len(found.chosen.kept) <= 2
    assert found.verdict == "proven"


def test_a_way_without_a_quantiser_that_keeps_tensors_is_refused(
    tmp_path: Path, data: tuple[Any, Any]
) -> None:
    write_spoilt(tmp_path / "model.onnx", *data)
    with pytest.raises(
        ConfigError, match=r"^onnx-dynamic: none of its compilers quantises and keeps"
    ):
        nn.mix(
            tmp_path / "model.onnx",
            tmp_path / "m.onnx",
            data=data,
            way="onnx-dynamic",
            progress=silent,
        )
    with pytest.raises(
        ConfigError, match="'map' is no metric of the task classification; there are accuracy"
    ):
        nn.mix(
            tmp_path / "model.onnx", tmp_path / "m.onnx", data=data, metric="map", progress=silent
        )
