"""Explaining a network: exact counts from files of every framework."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from installed import needs

import nnpipe as nn

MOBILENET = 300_774_272


def write_onnx(
    path: Path, nodes: Any, inputs: dict[str, Any], outputs: dict[str, Any], **weights: Any
) -> Path:
    """Write a model of float32 inputs and outputs, given as shapes by name."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    sides = [
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
            for name, shape in side.items()
        ]
        for side in (inputs, outputs)
    ]
    held = [numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()]
    graph = helper.make_graph(nodes(helper), "g", *sides, initializer=held)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("odd", 1)]
    onnx.save_model(helper.make_model(graph, opset_imports=opsets, ir_version=9), str(path))
    return path


def test_the_mnist_network_has_its_known_count(shared_data: Path) -> None:
    needs("onnx_ir", "onnxruntime")
    found = nn.explain(shared_data / "models" / "mnist-8.onnx")
    assert found.macs == 786_560
    assert found.cost.parameters == 5_994
    assert not found.cost.unknown


def test_a_quantised_file_of_another_framework_has_its_known_count(shared_data: Path) -> None:
    needs("ai_edge_litert")
    folder = shared_data / "models" / "mlperf_tiny_ic"
    assert {
        nn.explain(folder / f"pretrainedResnet{end}.tflite").macs for end in ("", "_quant")
    } == {12_501_632}


def test_a_free_axis_takes_the_length_that_is_given(tmp_path: Path) -> None:
    needs("onnx_ir", "onnxruntime")

    def nodes(helper: Any) -> list[Any]:
        return [
            helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1], strides=[2, 2], group=2),
            helper.make_node("Reshape", ["y", "s"], ["flat"]),
            helper.make_node("MatMul", ["flat", "m"], ["z"]),
        ]

    weights = {
        "w": np.zeros((4, 2, 3, 3), np.float32),
        "s": np.array([-1, 4]),
        "m": np.zeros((4, 5), np.float32),
    }
    path = write_onnx(
        tmp_path / "m.onnx", nodes, {"x": ["n", 4, "h", "w"]}, {"z": [None, 5]}, **weights
    )
    found = nn.explain(path, shapes={"x": (3, 4, 8, 6)})
    positions = 3 * 4 * 3
    assert [each.arithmetic and each.arithmetic.macs for each in found.cost.operations] == [
        positions * 9 * 2 * 4,
        0,
        positions * 4 * 5,
    ]
    assert nn.explain(path).macs == 9 * 2 * 4 + 4 * 5


@pytest.mark.parametrize("shapes", [{"y": (1, 6)}, {"x": (1, 7)}, {"x": (1, 6, 1)}, {"x": (0, 6)}])
def test_a_shape_that_does_not_fit_is_refused(
    tmp_path: Path, shapes: dict[str, tuple[int, ...]]
) -> None:
    needs("onnx_ir", "onnxruntime")
    path = write_onnx(
        tmp_path / "m.onnx",
        lambda helper: [helper.make_node("Relu", ["x"], ["z"])],
        {"x": [None, 6]},
        {"z": [None, 6]},
    )
    with pytest.raises(nn.ConfigError, match="input"):
        nn.explain(path, shapes=shapes)


def test_an_unknown_operation_is_named_with_its_number(tmp_path: Path) -> None:
    needs("onnx_ir", "onnxruntime")

    def nodes(helper: Any) -> list[Any]:
        odd = [helper.make_node("Odd", ["x"], [name], domain="odd", name=name) for name in "ab"]
        return [*odd, helper.make_node("Add", ["x", "x"], ["z"], name="sum")]

    path = write_onnx(tmp_path / "m.onnx", nodes, {"x": [1, 6]}, {"z": [1, 6]})
    found = nn.explain(path)
    assert "not counted: 2 operations without a rule or of unknown size: 2 odd.Odd" in str(found)
    assert "at least 0 MACs" in str(found)
    found.save_json(tmp_path / "m.json")
    told = json.loads((tmp_path / "m.json").read_text("utf-8"))
    assert told["totals"]["without_rule"] == 2
    assert told["operations"][0]["macs"] is None
    found.save_csv(tmp_path / "m.csv")
    rows = list(csv.DictReader((tmp_path / "m.csv").read_text("utf-8").splitlines()))
    assert [(row["name"], row["macs"]) for row in rows] == [("a", ""), ("b", ""), ("sum", "0")]
    assert rows[2]["outputs"] == "1x6:float32"
    assert rows[2]["details"] == "add"


def test_a_notebook_shows_names_without_their_markup(tmp_path: Path) -> None:
    needs("onnx_ir", "onnxruntime")
    path = write_onnx(
        tmp_path / "m.onnx",
        lambda helper: [helper.make_node("Relu", ["x"], ["z"], name="<b>")],
        {"x": [1]},
        {"z": [1]},
    )
    page = nn.explain(path)._repr_html_()
    assert "&lt;b&gt;" in page
    assert "<b>" not in page


def test_a_network_of_pytorch_agrees_with_its_own_counter() -> None:
    needs("torch")
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    class Network(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = torch.nn.Conv2d(4, 8, 3, stride=2, dilation=2, groups=2)
            self.up = torch.nn.ConvTranspose2d(8, 6, 2, stride=2, groups=2)
            self.linear = torch.nn.Linear(6, 12)

        def forward(self, x: Any) -> Any:
            tokens = self.linear(self.up(self.conv(x)).flatten(2).transpose(1, 2))
            q, k, v = (part.unflatten(-1, (2, 2)).transpose(1, 2) for part in tokens.chunk(3, -1))
            return torch.nn.functional.scaled_dot_product_attention(q, k, v) @ torch.ones(2, 5)

    module, x = Network().eval(), torch.zeros(3, 4, 14, 14)
    # PyTorch does not count its own kernel of attention on processors, but the two products of the
    # plain one.
    plain = torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH)
    with FlopCounterMode(display=False) as counter, torch.no_grad(), plain:
        module(x)
    found = nn.explain(
        module, data=np.zeros((3, 4, 14, 14), np.float32), shapes={"x": (3, 4, 14, 14)}
    )
    assert 2 * found.macs == counter.get_total_flops()
    assert not found.cost.unknown


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_one_network_has_the_same_count_in_every_framework(tmp_path: Path) -> None:
    needs("keras", "tensorflow", "torch", "onnx_ir", "onnxruntime", "ai_edge_litert", "tf2onnx")
    import keras
    import torch

    from nnpipe.layers.imports.network_files import read_network
    from nnpipe.layers.torch.to_torch import to_torch

    keras.utils.set_random_seed(0)
    source = tmp_path / "m.keras"
    keras.applications.MobileNetV2(weights=None).save(source)
    images = np.random.default_rng(0).standard_normal((8, 224, 224, 3)).astype(np.float32)
    wrapper = nn.find("KerasModel", nn.ModelWrapper).from_json({"model_path": str(source)})
    with wrapper.open(source) as live:
        wrapper.export(live, tmp_path / "m.onnx", "onnx")
    nn.compile(source, "tflite", tmp_path / "m.tflite")
    nn.compile(source, "tflite-int8", tmp_path / "m8.tflite", calibration=(images, np.arange(8)))
    nn.compile(
        tmp_path / "m.onnx", "onnx-int8", tmp_path / "m8.onnx", calibration=(images, np.arange(8))
    )
    graph = read_network(source).graph
    assert graph is not None
    program = torch.export.export(to_torch(graph).eval(), (torch.zeros(1, 224, 224, 3),))
    torch.export.save(program, tmp_path / "m.pt2")
    found = {
        path.name: nn.explain(path)
        for path in sorted(tmp_path.glob("m*.*"))
        if path.suffix != ".json"
    }
    assert {name: each.macs for name, each in found.items() if each.macs != MOBILENET} == {}
    assert {"m.keras", "m.onnx", "m.pt2", "m.tflite", "m8.onnx", "m8.tflite"} <= found.keys()
    assert [each for each in found.values() if each.cost.unknown] == []
    # Keras's network pads in an operation of its own, between the two largest values.
    peaks = {name: each.cost.peak and each.cost.peak.live_bytes for name, each in found.items()}
    assert peaks["m.keras"] == peaks["m.onnx"] == peaks["m.pt2"] == 9_720_192
    assert found["m.keras"].cost.parameters == 3_538_984
