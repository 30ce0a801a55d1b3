"""A model that gives NaN is told to do so first, and no gate passes it."""
# ruff: noqa: E402  (what needs ONNX Runtime is imported where it is there)

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
onnx = pytest.importorskip("onnx", reason="onnx is not installed")

from nnpipe.scenarios.compare import main as compare
from nnpipe.scenarios.gate import main as gate
from nnpipe.scenarios.inference_performance import main as inference_performance
from nnpipe.scenarios.render_report import main as render_report


def measured(model: Path, data: Path, task: str, output: Path) -> None:
    """Measure a model on arrays, all of which are for testing."""
    given = ["--dataset-root", str(data), "--task", task, "--test-fraction", "1", "--scale", "1"]
    assert not inference_performance(
        ["ONNXModel", "ArraysDataset", str(output), "--model-path", str(model), *given]
    )


def test_a_regression_with_nan_for_most_samples(
    shared_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cases, result = shared_data / "cases" / "quality", tmp_path / "run.json"
    measured(
        cases / "sqrt_of_one_value.onnx",
        cases / "negative_inputs_regression.npz",
        "regression",
        result,
    )
    told = capsys.readouterr()
    assert "the outputs for 121 of 200 samples are NaN or infinite" in told.out
    for title in (
        "Mean absolute error",
        "Root of the mean squared error",
        "Coefficient of determination",
    ):
        (line,) = [line for line in told.out.splitlines() if line.startswith(title)]
        assert "–" in line
    summary = json.loads(result.read_text())["summary"]
    assert (summary["not_finite_samples"], summary["mae"]["value"]) == (121, None)
    for limits in (
        ["--max-loss", "mae=0.1"],
        ["--constraint", "mae <= 0.1"],
        ["--constraint", "loss(mae) <= 0.1"],
    ):
        for more in ([], ["--undecided", "pass"]):
            assert (
                gate(
                    [
                        str(result),
                        str(result),
                        *limits,
                        *more,
                        "--output",
                        str(tmp_path / "gate.json"),
                    ]
                )
                == 1
            )
            first = capsys.readouterr().out.splitlines()[0]
            assert first.startswith("undecided: ")
            assert "the outputs for 121 of 200 samples are NaN or infinite" in first
    assert not render_report([str(result), str(result), "Two", str(tmp_path / "two.md")])
    assert "121 of 200" in (tmp_path / "two.md").read_text().partition("![")[0]


def test_axes_of_length_1_and_a_result_against_itself(
    shared_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cases, result = shared_data / "cases" / "quality", tmp_path / "run.json"
    measured(cases / "regression_n_by_1.onnx", cases / "regression.csv", "regression", result)
    assert "Mean absolute error" in capsys.readouterr().out
    limits = ["--max-slowdown", "0%", "--max-loss", "mae=0", "--constraint", "loss(mae) <= 0"]
    assert gate([str(result), str(result), *limits]) == 0
    assert capsys.readouterr().out.count("pass: ") == 3


def test_scores_that_are_nan_for_half_of_the_samples(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    helper, tensor = onnx.helper, onnx.TensorProto.FLOAT
    nodes = [
        helper.make_node("Sqrt", ["x"], ["root"]),
        helper.make_node("Mul", ["root", "x"], ["scores"]),
    ]
    sides = [[helper.make_tensor_value_info(name, tensor, [None, 2])] for name in ("x", "scores")]
    model = helper.make_model(
        helper.make_graph(nodes, "g", *sides), opset_imports=[helper.make_opsetid("", 17)]
    )
    model.ir_version = 8
    onnx.save(model, tmp_path / "half.onnx")
    x = np.random.default_rng(0).random((100, 2)).astype(np.float32)
    label = x.argmax(axis=1)
    x[::2] *= -1
    np.savez(tmp_path / "data.npz", x=x, label=label)
    data = [
        "--dataset",
        "ArraysDataset",
        "--dataset-root",
        str(tmp_path / "data.npz"),
        "--task",
        "classification",
    ]
    given = [*data, "--test-fraction", "1", "--scale", "1", "--max-seconds", "3", "--block-ms", "1"]
    result = tmp_path / "compared.json"
    assert not compare(
        [str(tmp_path / "half.onnx"), str(tmp_path / "half.onnx"), *given, "--output", str(result)]
    )
    out = capsys.readouterr().out
    assert (
        "the outputs for 50 of 100 samples are NaN or infinite, and count as the worst answer"
        in out
    )
    assert "50.00" in out
    assert "100.00" not in out
    titles = [f"{result}#half.onnx", f"{result}#half.onnx (2)"]
    assert gate([*titles, "--max-accuracy-loss", "5%"]) == 1
