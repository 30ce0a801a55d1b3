"""A layer of one's own in a generated script, and an operator of one's own in a file of ONNX."""

from __future__ import annotations

from pathlib import Path

import pytest
from bricks.swish import BricksSwish, SteepSwish

from nnpipe.codegen.description import check_script
from nnpipe.codegen.script import generate
from nnpipe.layers import Input
from nnpipe.layers.imports.step import find_plugin_operators

NETWORK = [
    {"class": "Input", "shape": [4]},
    {"class": "Dense", "units": 3},
    {"class": "SteepSwish", "beta": 2.0},
]


def script(framework: str) -> str:
    described = {
        "script": "tried",
        "framework": framework,
        "networks": {"small": NETWORK},
        "variables": {"net": "network"},
        "tasks": [{"task": "load_model", "network": "small", "model": "net"}],
    }
    checked = check_script(described)
    assert checked.problems == ()
    assert checked.graph is not None
    return generate(checked.graph).text


def test_a_generated_script_for_pytorch_has_it() -> None:
    text = script("pytorch")
    compile(text, "script.py", "exec")
    assert "sigmoid" in text


def test_a_script_for_keras_imports_it() -> None:
    text = script("keras")
    compile(text, "script.py", "exec")
    assert "from bricks.swish import SteepSwish" in text
    assert "It needs Keras, TensorFlow, bricks and nnpipe." in text


def test_an_operator_of_ones_own_is_read_from_onnx(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    from nnpipe.layers import from_onnx

    helper = onnx.helper
    node = helper.make_node("BricksSwish", ["x"], ["y"], steepness=2.5, domain="bricks")
    shapes = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", 4]) for name in ("x", "y")
    ]
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("bricks", 1)]
    model = helper.make_model(
        helper.make_graph([node], "g", shapes[:1], shapes[1:]), opset_imports=opsets
    )
    onnx.save(model, tmp_path / "own.onnx")
    reading = from_onnx(tmp_path / "own.onnx")
    assert reading.problems == ()
    (layer,) = [layer for layer in reading.graph.layers.values() if not isinstance(layer, Input)]
    assert (type(layer), layer.beta) == (SteepSwish, 2.5)
    assert type(find_plugin_operators()["bricks::BricksSwish"]) is BricksSwish
