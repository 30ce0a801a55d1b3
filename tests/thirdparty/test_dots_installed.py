"""A task that an installed package brings is known to every command: measured, recorded, gated,
swept and compared.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from installed import needs
from pip_package import installed

pytestmark = pytest.mark.slow
needs("onnx", "onnxruntime", "jinja2", "sqlalchemy")

HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "src"
MEASURE = ("--scale", 1, "--measure-seconds", 0.05, "--verbosity", "error")
Command = Callable[..., str]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with two models, which sum up the pixels, one of them with a gain that is
    too small.
    """
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    folder = tmp_path_factory.mktemp("counted")
    for name, gain in (("sum", 1.0), ("low", 0.8)):
        graph = helper.make_graph(
            [
                helper.make_node("Flatten", ["image"], ["row"]),
                helper.make_node("MatMul", ["row", "w"], ["count"]),
            ],
            name,
            [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["n", 8, 8, 1])],
            [helper.make_tensor_value_info("count", TensorProto.FLOAT, ["n", 1])],
            [numpy_helper.from_array(np.full((64, 1), gain, np.float32), "w")],
        )
        opset = [helper.make_opsetid("", 17)]
        onnx.save(
            helper.make_model(graph, opset_imports=opset, ir_version=9), folder / f"{name}.onnx"
        )
    return folder


@pytest.fixture(scope="module")
def nnpipe(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Command:
    """Run an ``nnpipe`` command where the package is installed, and return what it prints."""
    site = installed(HERE / "dots", tmp_path_factory.mktemp("installed"))

    def run(*words: object, status: int = 0) -> str:
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(map(str, (site, SOURCE))),
            "OMP_NUM_THREADS": "1",
        }
        command = [sys.executable, "-m", "nnpipe", *map(str, words)]
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=280
        )
        assert done.returncode == status, done.stderr
        assert "Traceback" not in done.stderr
        return done.stdout if status == 0 else done.stdout + done.stderr

    return run


@pytest.fixture(scope="module")
def results(nnpipe: Command, folder: Path) -> list[str]:
    """Measure and record both models as they are, and one in 8 bits."""
    recorded = (*MEASURE, "--database", "runs.sqlite")
    for name in ("sum", "low"):
        told = nnpipe(
            "inference_performance", f"{name}.onnx", "DotsDataset", f"{name}.json", *recorded
        )
        assert "Error of the count" in told
    words = (
        "inference_tester",
        "sum.onnx",
        "ONNXStaticQuantizer",
        "ONNXRuntime",
        "DotsDataset",
        "int8.json",
    )
    assert "Error of the count" in nnpipe(*words, *recorded)
    return ["sum.json", "low.json", "int8.json"]


def test_it_is_listed_and_explained(nnpipe: Command) -> None:
    assert "dots.counting.Counting  (counting)" in nnpipe("list", "tasks")
    told = nnpipe("info", "Counting")
    assert "count_error" in told
    assert "share of the pictures whose count is off by at most one" in told


def test_stored_predictions_are_judged(nnpipe: Command, folder: Path) -> None:
    (folder / "counts.json").write_text("[[1, 1.2], [3, 5], [4, 3], [7, 7]]", "utf-8")
    told = nnpipe(
        "judge", "CountsDataset", "--dataset-root", "counts.json", "--output", "judged.json"
    )
    assert "4 samples" in told
    assert (
        json.loads((folder / "judged.json").read_text("utf-8"))["metrics"]["count_error"]["value"]
        == 0.75
    )
    (folder / "damaged.json").write_text("{", "utf-8")
    refused = nnpipe("judge", "CountsDataset", "--dataset-root", "damaged.json", status=2)
    assert "damaged.json: no list of pairs" in refused


def test_the_gate_compares_counts_sample_by_sample(nnpipe: Command, results: list[str]) -> None:
    told = nnpipe("gate", "sum.json", "low.json", "--max-loss", "count_error=0.1", status=1)
    assert told.startswith("fail: error of the count loss ")
    assert "of 120 samples)" in told
    nnpipe(
        "gate",
        "sum.json",
        "int8.json",
        "--max-loss",
        "count_error=0.3",
        "--max-loss",
        "within_one=10%",
    )
    assert "there are: count_error, within_one" in nnpipe(
        "gate", *results[:2], "--max-loss", "mae=1", status=2
    )


def test_a_report_has_its_metrics_and_its_section(
    nnpipe: Command, folder: Path, results: list[str]
) -> None:
    told = nnpipe("render_report", *results, "Counted", "counted.md")
    assert "Count error" in told.splitlines()[1]
    assert "Accuracy" not in told
    page = (folder / "counted.md").read_text("utf-8")
    for part in (
        "Counted dots",
        "Right counts of int8",
        "Δ count error",
        "Within one",
        "same as first",
    ):
        assert part in page
    summary = json.loads((folder / "counted.summary.json").read_text("utf-8"))
    assert {"count_error", "within_one"} <= set(summary["candidates"][0]["figures"])
    assert "count_error_difference" in summary["candidates"][1]["against_first"]


def test_runs_are_found_by_its_metrics(nnpipe: Command, results: list[str]) -> None:
    database = (
        "--database",
        "runs.sqlite",
        "--columns",
        "configuration.title,statistics.count_error",
    )
    found = nnpipe(
        "runs", "query", "statistics.count_error < 0.6 and statistics.within_one > 0.8", *database
    )
    assert [line.split("  ")[0] != "" for line in found.splitlines()[1:]] == [True, True]
    assert "int8" in found
    assert "low.onnx" in nnpipe("runs", "query", "statistics.count_error > 0.6", *database)


def test_a_sweep_is_bound_and_ranked_by_it(nnpipe: Command, folder: Path) -> None:
    settings = {
        "output": "swept",
        "dataset": "DotsDataset",
        "models": [
            {"title": name, "class": "ONNXModel", "path": f"{name}.onnx", "arguments": {"scale": 1}}
            for name in ("sum", "low")
        ],
        "runtimes": ["ONNXRuntime"],
        "measure": {"measure_seconds": 0.05},
        "constraints": ["count_error <= 0.5", "loss(count_error) <= 0.1", "within_one >= 90 %"],
    }
    (folder / "sweep.json").write_text(json.dumps(settings), "utf-8")
    told = nnpipe("sweep", "sweep.json")
    assert "fails Count error" in next(
        line for line in told.splitlines() if line.startswith("low · ONNXRuntime")
    )
    assert "within_one >= 90 %: holds" in told
    found = json.loads((folder / "swept" / "sweep.json").read_text("utf-8"))
    assert found["objectives"] == ["latency_median", "count_error", "size"]
    assert found["chosen"].startswith("sum")
    told = nnpipe("sweep", "sweep.json", "constraints=[accuracy >= 50 %]", status=2)
    assert "counting, has no metric 'accuracy'; there are: count_error, within_one" in told


def test_models_are_compared_by_it(nnpipe: Command) -> None:
    words = (
        "compare",
        "sum.onnx",
        "low.onnx",
        "--dataset",
        "DotsDataset",
        "--scale",
        1,
        "--max-seconds",
        5,
    )
    told = nnpipe(*words)
    assert "Δ count error" in told
    assert "sum.onnx has a better error of the count than low.onnx" in told
