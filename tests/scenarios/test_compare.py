"""``nnpipe compare``: real models side by side in processes of their own, and what is told about
them.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import numpy as np
import psutil
import pytest

from nnpipe.core.errors import NNPipeError
from nnpipe.measuring.comparison import Comparison
from nnpipe.measuring.run import Run
from nnpipe.scenarios.compare import main
from nnpipe.workflows.candidates.spec import CandidateSpec
from nnpipe.workflows.candidates.worker_pool import CandidatePool

onnx = pytest.importorskip("onnx", reason="onnx is not installed")
pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
DIGITS = (
    "--dataset",
    "DigitsDataset",
    "--scale",
    "16",
    "--measure-samples",
    "50",
    "--max-seconds",
    "0.1",
)


def write_network(path: Path, swap: bool = False) -> str:
    """A convolution and a dense layer for digits of 8 x 8; ``swap`` turns the classes around."""
    from onnx import TensorProto, helper, numpy_helper

    random = np.random.default_rng(0)
    dense = random.standard_normal((6 * 36, 10)) * 0.2
    constants = {
        "kernel": random.standard_normal((6, 1, 3, 3)),
        "dense": dense[:, ::-1] if swap else dense,
    }
    nodes = [
        helper.make_node("Conv", ["image", "kernel"], ["conv"]),
        helper.make_node("Flatten", ["conv"], ["flat"]),
        helper.make_node("Gemm", ["flat", "dense"], ["scores"]),
    ]
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["n", 1, 8, 8])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["n", 10])],
        [
            numpy_helper.from_array(np.ascontiguousarray(a, np.float32), name)
            for name, a in constants.items()
        ],
    )
    onnx.save_model(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9),
        str(path),
    )
    return str(path)


@pytest.fixture
def models(tmp_path: Path) -> tuple[str, str]:
    return write_network(tmp_path / "a.onnx"), write_network(tmp_path / "b.onnx", swap=True)


def test_two_models_are_compared_in_time_and_accuracy(
    models: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "c.json"
    assert main([*models, *DIGITS, "--output", str(out), "--block-ms", "2"]) == 0
    told = capsys.readouterr().out
    assert "cannot be told apart: 1 starts support no interval; 7 more starts" in told
    assert f"result: {out}" in told
    found = Comparison.read(out)
    assert [run.title for run in found.runs] == ["a.onnx", "b.onnx"]
    for run in found.runs:
        assert run.evaluation is not None
        assert len(run.evaluation) == 50
        series = run.series["inference"]
        assert int(series["round"].max()) >= 7
        assert (series["latency_ns"] > 0).all()
        assert (np.diff(series["start_ns"]) > 0).all()
        assert run.timing["idle_cpu_percent"] < 50
    # Never two at a time.
    one, two = (run.series["inference"] for run in found.runs)
    begins = np.concatenate([one["start_ns"], two["start_ns"]])
    ends = np.concatenate(
        [one["start_ns"] + one["latency_ns"], two["start_ns"] + two["latency_ns"]]
    )
    order = np.argsort(begins)
    # the two clocks agree to a millisecond
    assert (begins[order][1:] >= ends[order][:-1] - 1_000_000).all()
    assert json.loads(out.read_text())["verdicts"][0]["kind"] == "undecided"


@pytest.mark.slow
def test_the_same_file_twice_gets_two_names(models: tuple[str, str], tmp_path: Path) -> None:
    out = tmp_path / "c.json"
    assert main([models[0], models[0], *DIGITS, "--output", str(out)]) == 0
    assert [run.title for run in Comparison.read(out).runs] == ["a.onnx", "a.onnx (2)"]


PIPELINE = """
title: Digits
output: {folder}/build
dataset: DigitsDataset
model: {{class: ONNXModel, path: {model}, arguments: {{scale: 16}}}}
measure: {{measure_samples: 20}}
verify: {{verify_samples: 0}}
candidates:
  - {{title: As it is}}
  - {{title: On its runtime, runtime: ONNXRuntime}}
  - {{title: Broken, compilers: [{{class: planted.PlantedCompiler, arguments: {{deed: abort}}}}], runtime: ONNXRuntime}}
"""


@pytest.mark.slow
def test_candidates_of_a_pipeline_file_are_compared_and_one_that_fails_costs_itself(
    models: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "p.yaml"
    text = PIPELINE.format(folder=tmp_path, model=models[0])
    path.write_text(text)
    assert main([str(path), "--max-seconds", "0.1", "candidates.0.title=As it was"]) == 2
    found = Comparison.read(tmp_path / "build" / "comparison.json")
    assert [run.title for run in found.runs] == ["As it was", "On its runtime"]
    assert found.runs[1].artifact["format"] == "onnx"
    told = capsys.readouterr()
    assert "As it was and On its runtime" in told.out or "On its runtime and As it was" in told.out
    assert "Broken fell out: compiling with" in told.out
    assert "nnpipe compare: 1 candidates failed: Broken" in told.err


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["a.onnx", "--dataset", "DigitsDataset"], "a comparison needs two model files or more"),
        (["a.onnx", "b.onnx"], "--dataset is missing"),
        (["a.onnx", "gone.onnx", "--dataset", "DigitsDataset"], "gone.onnx: no such model file"),
        (
            ["a.onnx", "folder/notes.txt", "--dataset", "DigitsDataset"],
            "notes.txt: nothing tells what it is",
        ),
        (
            ["a.onnx", "DigitsDataset", "--dataset", "DigitsDataset"],
            "DigitsDataset: no pipeline file and no model",
        ),
        (["a.onnx", "b.onnx", "--dataset", "Nothing"], "Nothing"),
        (
            ["a.onnx", "b.onnx", "--dataset", "DigitsDataset", "--margin", "0.5"],
            "expected a percentage such as 2%",
        ),
        (
            ["a.onnx", "b.onnx", "--dataset", "DigitsDataset", "--confidence", "100%"],
            "100% is out of range",
        ),
        (
            ["a.onnx", "b.onnx", "--dataset", "DigitsDataset", "--block-ms", "0"],
            "--block-ms: 0.0 is below the minimum",
        ),
        (
            ["a.onnx", "b.onnx", "--model-path", "c.onnx", "--dataset", "DigitsDataset"],
            "--model-path is not for",
        ),
        (["--margin", "1%", "a.onnx", "b.onnx"], "a.onnx: name model files before all options"),
        (["p.yaml"], "p.yaml"),
        (["one.yaml"], "a comparison needs two candidates"),
        (["one.yaml", "--dataset", "DigitsDataset"], "--dataset is for model files"),
        (["--margin", "1%"], "WHAT"),
    ],
)
def test_bad_input_is_one_line_and_status_2(
    argv: list[str],
    told: str,
    models: tuple[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    text = PIPELINE.format(folder=tmp_path, model=models[0])
    lines = [line for line in text.splitlines() if "Broken" not in line and "runtime" not in line]
    (tmp_path / "one.yaml").write_text("\n".join(lines))
    assert main(argv) == 2
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1
    assert not (tmp_path / "comparison.json").exists()


# -- workers
# ------------------------------------------------------------------------------------------


def stage(*paths: str) -> CandidatePool:
    from nnpipe.datasets.digits import DigitsDataset
    from nnpipe.modelwrappers.files.onnx import ONNXModel

    candidates = [
        CandidateSpec(path, ONNXModel(model_path=Path(path), scale=16.0), Path(path))
        for path in paths
    ]
    return CandidatePool(candidates, DigitsDataset(), limit=60.0)


def test_a_worker_that_cannot_start_costs_its_candidate_only(
    models: tuple[str, str], tmp_path: Path
) -> None:
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"no model")
    with stage(models[0], str(broken)).open((1, 0)) as opened:
        assert isinstance(opened[1], NNPipeError)
        assert "broken.onnx" in str(opened[1])
        run = opened[0]
        assert not isinstance(run, NNPipeError)
        assert len(run(7).latency_ns) == 7
        left = _workers()
    assert left
    assert not _workers() & left


def test_a_worker_that_dies_costs_its_candidate_only(models: tuple[str, str]) -> None:
    both = stage(*models)
    with both.open((0,)) as first:
        doomed = _workers()
        with both.open((1,)) as second:
            for process in doomed:
                process.kill()
            with pytest.raises(NNPipeError, match=r"running .*a\.onnx had its process killed"):
                first[0](5)  # type: ignore[operator]
            assert len(second[1](5).latency_ns) == 5  # type: ignore[operator]


def test_waiting_takes_next_to_no_processor_time(models: tuple[str, str]) -> None:
    import time

    with stage(models[0]).open((0,)) as opened:
        run = opened[0]
        assert not isinstance(run, NNPipeError)
        run(5)
        time.sleep(0.3)
        block = run(5)
    assert block.idle_ns > 290_000_000
    assert block.idle_cpu_ns < 0.2 * block.idle_ns


def test_samples_differ_from_call_to_call_and_blocks_go_on_where_the_last_one_ended() -> None:
    from nnpipe.workflows.candidates.worker_pool import OpenCandidate

    candidate = OpenCandidate()
    candidate._batches = [0, 1, 2]
    assert candidate._next_batches(4) == [0, 1, 2, 0]
    assert candidate._next_batches(3) == [1, 2, 0]


def _workers() -> set[psutil.Process]:
    """Return the workers below this process; each has a guard above it, and other tests may have
    left processes.
    """
    found = set()
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if (
                not process.children()
                and "nnpipe.workflows.isolation.subprocess_guard" in process.cmdline()
            ):
                found.add(process)
    return found


def test_results_are_pointed_to_what_shows_them(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a.json", "b.json"):
        Run(
            title=name, command=(), components={}, frameworks={}, host={}, timing={}, series={}
        ).write(name)
    assert main(["a.json", "b.json"]) == 2
    told = capsys.readouterr().err
    assert "nnpipe render_report a.json b.json TITLE OUT.html" in told
    assert "nnpipe gate" in told
    assert told.count("\n") == 1
