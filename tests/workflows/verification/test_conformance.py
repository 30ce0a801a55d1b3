"""Test vectors from Python: what comes of each case, as the command tells it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnpipe as nn
from nnpipe.core.progress import silent
from nnpipe.scenarios.conformance import main

onnx = pytest.importorskip("onnx", reason="onnx is not installed")
pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")


@pytest.fixture
def vectors(tmp_path: Path) -> Path:
    """Two cases of an addition: one right, and one that expects something else."""
    from onnx import TensorProto, helper, numpy_helper

    one, two = np.arange(6, dtype=np.float32), np.full(6, 2.5, np.float32)
    named = {name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [6]) for name in "abz"}
    graph = helper.make_graph(
        [helper.make_node("Add", ["a", "b"], ["z"])], "g", [named["a"], named["b"]], [named["z"]]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    for name, expected in (("test_right", one + two), ("test_wrong", one - two)):
        place = tmp_path / "vectors" / name / "test_data_set_0"
        place.mkdir(parents=True)
        onnx.save_model(model, str(place.parent / "model.onnx"))
        for side, array in (("input_0", one), ("input_1", two), ("output_0", expected)):
            (place / f"{side}.pb").write_bytes(numpy_helper.from_array(array).SerializeToString())
    return tmp_path / "vectors"


@pytest.mark.slow
def test_the_command_tells_the_same(
    vectors: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from nnpipe.runtimes.onnxruntime import ONNXRuntime

    found = nn.conformance(vectors, only=[ONNXRuntime], progress=silent)
    assert {result.case.name: result.status for result in found.found["onnx"]["ONNXRuntime"]} == {
        "test_right": "passed",
        "test_wrong": "wrong",
    }
    assert not found.passed
    written = tmp_path / "results.json"
    assert main([str(vectors), "--only", "ONNXRuntime", "--results", str(written)]) == 1
    assert capsys.readouterr().out == f"{found}\n"
    assert json.loads(written.read_text("utf-8")) == found.to_json()


@pytest.mark.slow
def test_several_places_and_a_report(vectors: Path, tmp_path: Path) -> None:
    found = nn.conformance(
        [vectors / "test_right", str(vectors / "test_right")], only=["ONNXRuntime"], progress=silent
    )
    assert found.passed
    assert len(found.found["onnx"]["ONNXRuntime"]) == 2
    page = found.save_report(tmp_path / "report.rst")
    assert "Everything passed." in page.read_text("utf-8")
    assert "ONNX operators" in (tmp_path / "report.rst").read_text("utf-8")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"vectors": "nowhere"}, "nowhere: no such folder or archive"),
        ({"only": ["NoSuchRuntime"]}, "--only NoSuchRuntime: no such way here"),
        ({"only": "ONNXRuntime"}, "conformance: only takes a sequence of"),
        ({"jobs": 0}, "conformance: jobs takes 1 or more, not 0"),
        ({"rtol": -0.1}, "conformance: rtol takes 0 or more, not -0.1"),
        ({"atol": float("nan")}, "conformance: atol takes 0 or more"),
        ({"time_limit": 0}, "conformance: time_limit takes 0.1 or more"),
    ],
)
def test_bad_values_are_refused_in_one_line(
    given: dict[str, Any], told: str, vectors: Path
) -> None:
    with pytest.raises(nn.ConfigError) as error:
        nn.conformance(**{"vectors": vectors, **given}, progress=silent)
    assert str(error.value).startswith(told)
    assert len(str(error.value).splitlines()) == 1
