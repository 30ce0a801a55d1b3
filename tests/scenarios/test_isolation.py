"""Whatever a framework does to its process costs one row of a run, and the row says what
happened.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnpipe.core.errors import NNPipeError
from nnpipe.measuring.run import Run
from nnpipe.scenarios.inference_performance import main as inference_performance
from nnpipe.scenarios.inference_tester import main as inference_tester
from nnpipe.scenarios.run import main as run_pipeline
from nnpipe.workflows.isolation.subprocess_worker import Worker, WorkerDied

linux = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def gone(pid: int) -> bool:
    """Wait until a process is no more."""
    deadline = time.monotonic() + 20
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not alive(pid)


# -- a worker
# -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("deed", "told"),
    [
        ("abort", r"^the task crashed its process \(SIGABRT\): last words$"),
        (
            "die",
            r"^the task had its process killed \(SIGKILL\), as the system does when memory runs "
            r"out$",
        ),
        ("leave", r"^the task ended its process with status 3$"),
        ("hang", r"^the task did not end within 2 s; allow more"),
        ("exit", r"^the task raised SystemExit: 4; the traceback is above$"),
        ("raise", r"^the task raised KeyError: 'nobody foresaw this'; the traceback is above$"),
    ],
)
def test_what_ended_a_task_is_one_line_and_the_next_task_is_carried_out(
    deed: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with Worker("planted:chore") as worker:
        with pytest.raises(NNPipeError, match=told):
            worker.attempt("the task", {"deed": deed}, 2)
        assert worker.attempt("the task", {"deed": "print"}, 30) == "done"
    if deed == "raise":
        assert "in misbehave" in capsys.readouterr().err


@linux
@pytest.mark.parametrize("deed", ["spawn and leave", "fork and leave"])
def test_what_a_task_leaves_behind_is_ended_and_hides_nothing(deed: str, tmp_path: Path) -> None:
    note = tmp_path / "pid"
    with Worker("planted:chore") as worker, pytest.raises(WorkerDied, match="status 3"):
        worker.call({"deed": deed, "note": str(note)}, 30)
    assert gone(int(note.read_text()))


_BOSS = """
import signal
from nnpipe.workflows.isolation.subprocess_worker import Worker

signal.signal(signal.SIGINT, signal.default_int_handler)  # a test run in the background ignores it, and so would this

with Worker("planted_boss:work") as worker:
    worker.call({}, 0)
"""
_WORK = """
import ctypes, os, subprocess, sys, time


def work(request):
    child = subprocess.Popen(["sleep", "600"])
    with open("pids.tmp", "w") as handle:
        handle.write(f"{os.getpid()} {child.pid}")
    os.rename("pids.tmp", "pids")
    time.sleep(600)
"""


@linux
@pytest.mark.parametrize(
    "end", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda end: end.name
)
def test_nothing_outlives_the_command(tmp_path: Path, end: signal.Signals) -> None:
    (tmp_path / "planted_boss.py").write_text(_WORK)
    (tmp_path / "boss.py").write_text(_BOSS)
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, [str(tmp_path), *sys.path]))
    }
    with subprocess.Popen(
        [sys.executable, "boss.py"],
        cwd=tmp_path,
        env=environment,
        stderr=subprocess.DEVNULL,
    ) as boss:
        deadline = time.monotonic() + 30
        while not (tmp_path / "pids").is_file():
            assert boss.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
        pids = [int(word) for word in (tmp_path / "pids").read_text().split()]
        assert all(map(alive, pids))
        boss.send_signal(end)
        boss.wait(30)
    assert all(map(gone, pids))


# -- a run
# --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    from onnx import TensorProto, helper, numpy_helper

    weights = np.random.default_rng(0).standard_normal((64, 10)).astype(np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("Flatten", ["image"], ["flat"]),
            helper.make_node("MatMul", ["flat", "weights"], ["scores"]),
        ],
        "network",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["n", 1, 8, 8])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["n", 10])],
        [numpy_helper.from_array(weights, "weights")],
    )
    path = tmp_path_factory.mktemp("model") / "model.onnx"
    onnx.save_model(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9),
        str(path),
    )
    return path


def planted(cls: str, **arguments: str) -> dict[str, Any]:
    return {"class": f"planted.{cls}", "arguments": arguments}


def pipeline(
    tmp_path: Path, model: Path, candidates: list[dict[str, Any]], **model_arguments: str
) -> Path:
    import yaml

    settings = {
        "output": str(tmp_path / "out"),
        "dataset": "DigitsDataset",
        "model": {
            "class": "planted.PlantedModel",
            "path": str(model),
            "arguments": {"scale": 16, **model_arguments},
        },
        "measure": {"measure_seconds": 0, "measure_samples": 5, "warmup_runs": 0},
        "verify": {"verify_samples": 4},
        "candidates": candidates,
    }
    path = tmp_path / "pipeline.yaml"
    path.write_text(yaml.safe_dump(settings, sort_keys=False))
    return path


def result(tmp_path: Path, title: str) -> Run:
    (path,) = (path for path in (tmp_path / "out").glob(f"??-{title}.json"))
    return Run.read(path)


@pytest.mark.slow
def test_a_crash_or_a_hang_costs_one_row_of_a_run(
    model: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    onnx = "ONNXRuntime"
    file = pipeline(
        tmp_path,
        model,
        [
            {
                "title": "aborts compiled",
                "compilers": [planted("PlantedCompiler", deed="abort")],
                "runtime": onnx,
            },
            {
                "title": "raises loaded",
                "runtime": planted("PlantedRuntime", deed="raise", place="load"),
            },
            {
                "title": "aborts running",
                "runtime": planted("PlantedRuntime", deed="abort", place="run"),
            },
            {
                "title": "aborts verified",
                "runtime": planted("PlantedRuntime", deed="abort", place="verify"),
            },
            {
                "title": "prints",
                "compilers": [planted("PlantedCompiler", deed="print")],
                "runtime": planted("PlantedRuntime", deed="print", place="run"),
            },
            {
                "title": "hangs loaded",
                "runtime": planted("PlantedRuntime", deed="hang"),
                "time_limit": 1,
            },
        ],
    )
    assert run_pipeline([str(file)]) == 2
    failed = {r.message for r in caplog.records if "failed" in r.message}
    compiling = "compiling with PlantedCompiler: onnx crashed its process (SIGABRT): last words"
    assert failed == {
        f"aborts compiled failed: {compiling}",
        "raises loaded failed: measuring raises loaded raised KeyError: 'nobody foresaw this'; the "
        "traceback is above",
        "aborts running failed: measuring aborts running crashed its process (SIGABRT): last words",
        "hangs loaded failed: measuring hangs loaded did not end within 1 s; allow more with "
        "--time-limit (time_limit in a pipeline file)",
    }
    assert (
        "4 of 6 candidates failed: aborts compiled, raises loaded, aborts running, hangs loaded"
        in (capsys.readouterr().err)
    )
    assert result(tmp_path, "prints").verification["verdict"] == "same"
    verification = result(tmp_path, "aborts-verified").verification
    assert verification == {
        "verdict": "unknown",
        "reason": "verifying it crashed its process (SIGABRT): last words",
    }
    assert len(result(tmp_path, "aborts-verified").series["inference"]) == 5
    assert (tmp_path / "out" / "report.html").is_file()


@pytest.mark.slow
def test_a_source_that_does_not_run_costs_the_verdicts(model: Path, tmp_path: Path) -> None:
    file = pipeline(
        tmp_path,
        model,
        [{"title": "compiled", "runtime": "ONNXRuntime"}],
        deed="abort",
        place="run",
    )
    assert run_pipeline([str(file)]) == 0
    verification = result(tmp_path, "compiled").verification
    assert verification["verdict"] == "unknown"
    assert verification["reason"].startswith("running PlantedModel (")
    assert verification["reason"].endswith("crashed its process (SIGABRT): last words")


def test_a_source_that_does_not_load_costs_the_run_in_one_line(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = pipeline(
        tmp_path,
        model,
        [{"title": "compiled", "runtime": "ONNXRuntime"}],
        deed="leave",
        place="load",
    )
    assert run_pipeline([str(file)]) == 2
    said = capsys.readouterr().err
    assert f"nnpipe run: loading PlantedModel ({model}) ended its process with status 3\n" == said


# -- a single candidate
# -------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_measurement_is_on_the_disk_before_anything_is_verified(
    model: Path, tmp_path: Path
) -> None:
    """The command itself is killed while it verifies, and what it measured is there."""
    out = tmp_path / "run.json"
    argv = [
        "inference_tester",
        "ONNXModel",
        "none",
        "planted.PlantedRuntime",
        "DigitsDataset",
        str(out),
        "--model-path",
        str(model),
        "--scale",
        "16",
        "--measure-seconds",
        "0",
        "--measure-samples",
        "5",
        "--verify-samples",
        "4",
        "--deed",
        "hang",
        "--place",
        "verify",
    ]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(
        [sys.executable, "-m", "nnpipe", *argv], env=environment, stderr=subprocess.DEVNULL
    ) as command:
        deadline = time.monotonic() + 60
        while not out.is_file():
            assert command.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
        command.kill()
    run = Run.read(out)
    assert len(run.series["inference"]) == 5
    assert run.verification == {}


@pytest.mark.slow
def test_a_compiler_that_hangs_is_one_line(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run.json"
    argv = [
        "ONNXModel",
        "planted.PlantedCompiler",
        "ONNXRuntime",
        "DigitsDataset",
        str(out),
        "--model-path",
    ]
    assert (
        inference_tester(
            [*argv, str(model), "--scale", "16", "--deed", "hang", "--time-limit", "3"]
        )
        == 2
    )
    said = capsys.readouterr().err
    assert said.endswith(
        "did not end within 3 s; allow more with --time-limit (time_limit in a pipeline file)\n"
    )
    assert not out.exists()


def test_a_framework_that_crashes_with_its_own_model_is_one_line(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run.json"
    argv = [
        "planted.PlantedModel",
        "DigitsDataset",
        str(out),
        "--model-path",
        str(model),
        "--scale",
        "16",
    ]
    assert inference_performance([*argv, "--deed", "abort"]) == 2
    assert (
        "nnpipe inference_performance: measuring model.onnx crashed its process (SIGABRT): last "
        "words" in (capsys.readouterr().err)
    )
    assert not out.exists()
