"""ONNX support from Python: one row for each model in each operator set, as the command tells
it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import nnpipe as nn
from nnpipe.core.progress import silent
from nnpipe.scenarios.onnx_conversion import main

pytest.importorskip("onnx", reason="onnx is not installed")
pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")

CONVERSION = '''
from pathlib import Path
import numpy as np
import onnx
from onnx import TensorProto, helper
import nnpipe as nn
from nnpipe.core.onnx_conversion import ConversionCase

class Doubling(nn.ONNXConversion):
    """Doubles, or squares instead."""

    framework = "Doubling"

    def models(self):
        for name in ("right", "wrong"):
            yield ConversionCase(name, lambda x: x + x, {"x": np.full((2, 3), 5, np.float32)})

    def run_model(self, model, inputs):
        return [model(inputs["x"])]

    def export_model(self, case, path, opset):
        x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 3]) for name in "xy")
        kind = "Add" if case.name == "right" else "Mul"
        graph = helper.make_graph([helper.make_node(kind, ["x", "x"], ["y"])], "g", [x], [y])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
        onnx.save_model(model, str(path))

    def import_model(self, path):
        raise nn.NotSupported("nothing reads it back")
'''


@pytest.fixture
def doubling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "doubling_conversion.py").write_text(CONVERSION, "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    return "doubling_conversion.Doubling"


def test_the_command_tells_the_same(
    doubling: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cls = nn.find(doubling, nn.ONNXConversion)
    found = nn.onnx_support([cls], opsets=[17, 18, 17], folder=tmp_path / "kept", progress=silent)
    assert [(row.model, row.opset, row.verdict) for row in found.rows[cls]] == [
        ("right", 17, "same"),
        ("right", 18, "same"),
        ("wrong", 17, "different"),
        ("wrong", 18, "different"),
    ]
    assert not found.passed
    assert len(list((tmp_path / "kept").glob("*.onnx"))) == 4
    written = tmp_path / "rows.json"
    argv = [
        str(tmp_path / "o"),
        str(tmp_path / "t.rst"),
        "--converters-list",
        doubling,
        "--opsets",
        "17",
        "18",
    ]
    assert main([*argv, "--results", str(written)]) == 1
    assert json.loads(written.read_text("utf-8")) == found.to_json()
    assert capsys.readouterr().out.startswith(f"{found}\n\ntable: ")
    assert found.save_report(tmp_path / "mine.rst").read_text("utf-8") == (
        tmp_path / "t.html"
    ).read_text("utf-8")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"conversions": ["NoSuch"]}, "no ONNXConversion is called 'NoSuch'"),
        ({"conversions": "NoSuch"}, "onnx_support: conversions takes a sequence of"),
        ({"opsets": []}, "onnx_support: opsets takes at least one operator set"),
        ({"opsets": [17, 0]}, "onnx_support: opsets takes 1 or more, not 0"),
        ({"opsets": 17}, "onnx_support: opsets takes a sequence of a whole number, not 17"),
        ({"time_limit": 0.0}, "onnx_support: time_limit takes 0.1 or more"),
    ],
)
def test_bad_values_are_refused_in_one_line(given: dict[str, Any], told: str) -> None:
    with pytest.raises(nn.NNPipeError) as error:
        nn.onnx_support(**given, progress=silent)
    assert str(error.value).startswith(told)
    assert len(str(error.value).splitlines()) == 1
