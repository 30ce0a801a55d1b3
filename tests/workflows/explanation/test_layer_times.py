"""Layers' times add up to the run, and fused steps have the costs of all their operations."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from installed import needs

from nnpipe.core.errors import ConfigError
from nnpipe.core.operation_times import KernelTime, OperationTimes
from nnpipe.measuring.quantile_intervals import compute_usual_times
from nnpipe.scenarios.explain import main
from nnpipe.workflows.explanation.explain import explain


def test_the_usual_times_add_up_and_a_slow_run_does_not_matter() -> None:
    wall = np.array([100.0, 101, 102, 103, 104, 105, 106, 9000])
    found = OperationTimes(
        (KernelTime("a", "Conv", 0.5 * wall), KernelTime("b", "Relu", 0.25 * wall)), wall
    )
    usual, low, high = compute_usual_times(found)
    np.testing.assert_allclose(usual, np.array([0.5, 0.25, 0.25]) * 103.5)
    assert ((low <= usual) & (usual <= high)).all()
    assert high[0] < 60


def test_the_rows_of_a_timed_network_add_up_and_count_all_its_operations(
    shared_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    needs("onnx_ir", "onnxruntime")
    model = str(shared_data / "models" / "mnist-8.onnx")
    written = [str(tmp_path / "times.json"), str(tmp_path / "times.csv")]
    arguments = [
        model,
        "--runtime",
        "ONNXRuntime",
        "--runs",
        "8",
        "--json",
        written[0],
        "--csv",
        written[1],
    ]
    assert main(arguments) == 0
    told = capsys.readouterr().out
    assert "do not rely on times of single layers: a run takes only" in told
    found = json.loads(Path(written[0]).read_text("utf-8"))["times"]
    rows = list(csv.DictReader(Path(written[1]).read_text("utf-8").splitlines()))
    assert rows[-1]["step"] == "not attributed"
    assert sum(float(row["time_ns"]) for row in rows) == pytest.approx(found["run_ns"])
    assert sum(int(row["macs"] or 0) for row in rows) == 786_560
    covered = [name for layer in found["layers"] for name in layer["operations"]]
    assert len(covered) == len(set(covered))
    assert found["mapped"] > 0.5, "the rest converts layouts"


def test_a_runtime_needs_a_file() -> None:
    needs("onnx_ir", "onnxruntime")
    with pytest.raises(ConfigError, match="give the path"):
        explain(object(), runtime="ONNXRuntime")


def test_a_second_runtime_is_shown_layer_by_layer_with_its_own_doubts(
    shared_data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    needs("onnx_ir", "onnxruntime")
    model = str(shared_data / "models" / "mnist-8.onnx")
    assert main([model, "--runtime", "ONNXRuntime", "--beside", "ONNXRuntime", "--runs", "4"]) == 0
    told = capsys.readouterr().out
    beside = told[told.index("second/first") :]
    assert "Convolution28" in beside
    assert "do not rely on times of single layers: a run takes only" in beside
