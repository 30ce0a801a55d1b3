"""Models that a chain fails on are cut down to the nodes that matter."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnpipe as nn
from nnpipe.core.progress import silent

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
onnx = pytest.importorskip("onnx", reason="onnx is not installed")

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    monkeypatch.delitem(sys.modules, "_planted_faults", raising=False)
    import _planted_faults

    return _planted_faults


def reduced(
    faults: Any, folder: Path, structure: str, nodes: int = 12, samples: int = 2, **fault: str
) -> Any:
    model = faults.write_graph(folder / "model.onnx", structure, nodes)
    way = nn.Recipe(
        "planted", (faults.PlantedFault(**fault),), nn.find("ONNXRuntime", nn.Runtime)()
    )
    return nn.reduce(
        model, way, to=folder / "reduced", samples=samples, hang_after=20.0, progress=silent
    )


@pytest.mark.slow  # the crash below is cut down in the same way
def test_a_wrong_rewrite_of_two_nodes_ends_with_these_two(faults: Any, tmp_path: Path) -> None:
    found = reduced(faults, tmp_path, "conv", fault="attribute", pattern="Conv>LeakyRelu")
    assert found.nodes == ("Conv", "LeakyRelu")
    assert found.symptom.kind == "difference"
    assert found.nodes_before > 12
    model = onnx.load(found.path / "model.onnx")
    onnx.checker.check_model(model, full_check=True)
    with (
        np.load(found.path / "inputs.npz") as inputs,
        np.load(found.path / "expected.npz") as expected,
    ):
        assert len(inputs.files) == len(model.graph.input)
        assert expected["0"].shape == (
            2,
            *(axis.dim_value for axis in model.graph.output[0].type.tensor_type.shape.dim),
        )
    done = subprocess.run(
        [sys.executable, "reproduce.py"],
        cwd=found.path,
        env={"PYTHONPATH": ":".join(sys.path)},
        timeout=120,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert "mean relative error" in done.stdout
    issue = (found.path / "issue.md").read_text("utf-8")
    assert "wrong result of Conv, LeakyRelu" in issue
    assert "did not show" not in issue


@pytest.mark.slow
def test_a_crash_ends_with_the_node_that_it_needs(faults: Any, tmp_path: Path) -> None:
    found = reduced(faults, tmp_path, "branches", fault="abort", pattern="Sub")
    assert found.nodes == ("Sub",)
    assert (found.symptom.kind, found.symptom.what) == ("crash", "SIGABRT")


@pytest.mark.slow
def test_nothing_wrong_is_told_and_nothing_written(faults: Any, tmp_path: Path) -> None:
    with pytest.raises(nn.ConfigError, match="nothing is wrong with it on 2 samples"):
        reduced(faults, tmp_path, "conv", fault="none")
    assert not (tmp_path / "reduced").exists()


def test_a_chain_that_takes_no_onnx_is_refused_before_anything_runs(
    faults: Any, tmp_path: Path
) -> None:
    model = faults.write_graph(tmp_path / "model.onnx", "attention", 12)
    with pytest.raises(nn.ConfigError, match="ONNX"):
        nn.reduce(model, "keras", to=tmp_path / "reduced", progress=silent)


def test_a_folder_that_is_there_is_not_overwritten(faults: Any, tmp_path: Path) -> None:
    model = faults.write_graph(tmp_path / "model.onnx", "conv", 12)
    with pytest.raises(nn.ConfigError, match="is there already"):
        nn.reduce(model, "onnx", to=tmp_path, progress=silent)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("structure", "fault", "pattern", "kind"),
    [
        ("attention", "hang", "Softmax", "hang"),
        ("attention", "nan", "Softmax>MatMul", "not finite"),
        ("attention", "raise", "Reshape>Transpose", "error"),
        ("branches", "scale", "AveragePool>Sub", "difference"),
    ],
)
def test_other_faults(
    faults: Any, tmp_path: Path, structure: str, fault: str, pattern: str, kind: str
) -> None:
    found = reduced(faults, tmp_path, structure, 40, fault=fault, pattern=pattern)
    assert found.symptom.kind == kind
    assert len(found.nodes) <= 3
    assert set(found.nodes) >= set(pattern.split(">"))
