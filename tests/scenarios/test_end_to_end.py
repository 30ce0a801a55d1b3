"""The main job, done by real frameworks on real data, as a user would do it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from nnpipe.__main__ import main
from nnpipe.core.artifact import Artifact
from nnpipe.measuring.run import Run

TORCH = "nnpipe.modelwrappers.classification.small_cnn.PyTorchDigitsCNN"
DIGITS = "nnpipe.datasets.digits.DigitsDataset"
ONNX = "nnpipe.runtimes.onnxruntime.ONNXRuntime"
BRIEFLY = ("--measure-seconds", "0.2")
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "digits.yaml"


def accuracy(run: Run) -> float:
    assert run.evaluation is not None
    return float(np.mean(run.evaluation.arrays["truth"] == run.evaluation.arrays["predicted"]))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch", reason="PyTorch trains the model")
    path = tmp_path_factory.mktemp("trained") / "model.safetensors"
    argv = [
        "model_training",
        TORCH,
        DIGITS,
        "--model-path",
        str(path),
        "--num-epochs",
        "12",
        "--logdir",
    ]
    assert main([*argv, str(path.parent / "logs")]) == 0
    return path


@pytest.fixture(scope="module")
def native(trained: Path) -> Path:
    """The result of measuring the model in its own framework."""
    out = trained.parent / "native.json"
    assert (
        main(
            [
                "inference_performance",
                TORCH,
                DIGITS,
                str(out),
                "--model-path",
                str(trained),
                *BRIEFLY,
            ]
        )
        == 0
    )
    return out


@pytest.fixture(scope="module")
def exported(trained: Path) -> Path:
    """The result of measuring the exported model, here."""
    pytest.importorskip("onnxruntime", reason="runs the model")
    out = trained.parent / "exported.json"
    argv = ["inference_tester", TORCH, "none", ONNX, DIGITS, str(out), "--model-path", str(trained)]
    assert main([*argv, "--measure-seconds", "0.5"]) == 0
    return out


def test_training_leaves_weights_and_curves(trained: Path) -> None:
    assert Artifact.read(trained).format == "safetensors"
    events = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason="reads the curves"
    )
    tags = set()
    for folder in {path.parent for path in (trained.parent / "logs").rglob("*tfevents*")}:
        accumulator = events.EventAccumulator(str(folder))
        accumulator.Reload()
        for tag in accumulator.Tags()["scalars"]:
            assert len(accumulator.Scalars(tag)) == 12
            tags.add(tag)
    assert any("loss" in tag for tag in tags)
    assert any("accuracy" in tag for tag in tags)


def test_the_trained_model_is_measured_in_its_own_framework(trained: Path, native: Path) -> None:
    run = Run.read(native)
    assert accuracy(run) >= 0.97
    assert run.components["wrapper"]["class"] == TORCH
    assert run.command[:2] == ("nnpipe", "inference_performance")
    assert run.artifact["sha256"] == Artifact.read(trained).sha256


@pytest.mark.slow  # tests/workflows/pipeline and tests/report do each of its steps
def test_a_chain_is_compiled_measured_and_reported(
    trained: Path, exported: Path, tmp_path: Path
) -> None:
    int8 = tmp_path / "int8.json"
    common = ["--model-path", str(trained), "--inference-batch-size", "2", *BRIEFLY]
    chain = "nnpipe.compilers.onnx_quantizer.ONNXStaticQuantizer"
    compiled = tmp_path / "deep" / "model.int8.onnx"
    argv = [
        "inference_tester",
        TORCH,
        chain,
        ONNX,
        DIGITS,
        str(int8),
        *common,
        "--compiled-model-path",
        str(compiled),
    ]
    assert main([*argv, "--inference-input-type", "int8", "--title", "<int8> & *more*"]) == 0
    for path in (exported, int8):
        assert accuracy(Run.read(path)) >= 0.96
    artifact = Artifact.read(compiled)
    assert artifact.io.inputs[0].dtype == "int8"
    assert artifact.io.inputs[0].scale is not None
    assert artifact.parent is not None
    assert (
        main(
            [
                "render_report",
                str(exported),
                str(int8),
                "Two ways",
                str(tmp_path / "r" / "report.rst"),
            ]
        )
        == 0
    )
    page = (tmp_path / "r" / "report.html").read_text("utf-8")
    assert "&lt;int8&gt; &amp; *more*" in page
    assert (tmp_path / "r" / "report.rst").is_file()


@pytest.mark.slow  # tests/protocols is of targets
def test_a_model_is_measured_on_a_target(exported: Path, tmp_path: Path) -> None:
    there = tmp_path / "there.json"
    (tmp_path / "kept").mkdir()
    serving = ["nnpipe.protocols.network.NetworkProtocol", ONNX, "--port", "0"]
    with subprocess.Popen(
        [
            sys.executable,
            "-m",
            "nnpipe",
            "inference_server",
            *serving,
            "--save-model-path",
            str(tmp_path / "kept"),
        ],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    ) as server:
        try:
            assert server.stdout is not None
            port = server.stdout.readline().strip().rpartition(":")[2]
            model = str(exported.with_suffix(".onnx"))
            common = [
                "inference_tester",
                "ONNXModel",
                "none",
                ONNX,
                DIGITS,
                str(there),
                "--model-path",
                model,
            ]
            target = [
                "--protocol-cls",
                "NetworkProtocol",
                "--port",
                port,
                "--save-model-path",
                "digits.onnx",
            ]
            assert main([*common, *target, *BRIEFLY]) == 0
        finally:
            server.terminate()
    local, remote = Run.read(exported), Run.read(there)
    # What ran is the same model, and it said the same of every sample.
    for name, array in local.evaluation.arrays.items():
        np.testing.assert_array_equal(remote.evaluation.arrays[name], array)
    assert (tmp_path / "kept" / "digits.onnx").is_file()
    inference = remote.series["inference"]
    total = inference["host_ns"] + inference["wire_ns"] + inference["target_ns"]
    np.testing.assert_array_equal(total, inference["latency_ns"])
    assert remote.components["protocol"]["class"] == "nnpipe.protocols.network.NetworkProtocol"
    told = remote.timing["session"]
    assert told["counter"] == "wall"
    assert told["clock"]["error_ns"] > 0
    assert told["target"]["frameworks"]["onnxruntime"]
    assert len(remote.series["target"])
    assert "target_ns" not in local.series["inference"]


@pytest.mark.slow
def test_the_measured_process_holds_no_training_framework(exported: Path) -> None:
    memory = Run.read(exported).series["resources"]["process_bytes"]
    # ONNX Runtime, numpy and the digits; importing PyTorch alone takes more than this.
    assert memory.max() < 180 << 20


@pytest.mark.slow  # TensorFlow in six processes; tests of single steps are quick
def test_the_example_runs_as_a_whole(tmp_path: Path) -> None:
    for package in ("tensorflow", "onnxruntime", "ai_edge_litert", "matplotlib"):
        pytest.importorskip(package, reason="the example uses it")
    changes = [
        f"output={tmp_path}",
        f"model.path={tmp_path / 'model.keras'}",
        f"model.training.logdir={tmp_path / 'logs'}",
    ]
    assert main(["run", str(EXAMPLE), *changes]) == 0
    # Descriptions of model files (model.onnx.json) lie beside the result files.
    runs = [
        Run.read(path) for path in sorted(tmp_path.glob("0?-*.json")) if len(path.suffixes) == 1
    ]
    assert len(runs) == 7
    assert [run.title for run in runs if "target_ns" in run.series["inference"]] == [
        "TFLite int8, deployed"
    ]
    right = {run.title: accuracy(run) for run in runs}
    pruned = right.pop("ONNX, a fifth pruned")
    assert min(right.values()) > 0.8
    assert pruned < min(right.values()) - 0.02  # the example shows that not everything is free
    assert (tmp_path / "report.html").is_file()
    # The same training is not done twice, and what was there stays.
    before = (tmp_path / "model.keras").stat().st_mtime_ns
    keep = [*changes, "candidates=[{title: again}]"]
    assert main(["run", str(EXAMPLE), *keep]) == 0
    assert (tmp_path / "model.keras").stat().st_mtime_ns == before


def test_the_schema_accepts_the_example_and_refuses_a_slip() -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="checks the schema")
    from nnpipe.experiment.settings import read_settings
    from nnpipe.workflows.pipeline.schema import build_pipeline_schema

    checker = jsonschema.Draft202012Validator(build_pipeline_schema())
    checker.check_schema(build_pipeline_schema())
    settings = read_settings(EXAMPLE)
    assert list(checker.iter_errors(settings)) == []
    settings["model"]["training"]["num_epoch"] = 3
    assert list(checker.iter_errors(settings))


@pytest.mark.slow
def test_ctrl_c_leaves_the_old_weights_and_nothing_half_written(
    trained: Path, tmp_path: Path
) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"what was there")
    argv = ["model_training", TORCH, DIGITS, "--model-path", str(path), "--num-epochs", "5000"]
    # A test run in the background ignores SIGINT, and its children would too.
    command = (
        "import runpy, signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "runpy.run_module('nnpipe', run_name='__main__', alter_sys=True)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", command, *argv], stderr=subprocess.PIPE
    ) as process:
        assert process.stderr is not None
        seen = b""
        while b"poch" not in seen:
            piece = process.stderr.read(1)
            assert piece, seen
            seen += piece
        process.send_signal(signal.SIGINT)
        rest = process.communicate(timeout=60)[1]
        assert process.returncode == 130
    assert rest.decode().rstrip().endswith("nnpipe model_training: stopped")
    assert "Traceback" not in rest.decode()
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]
    assert path.read_bytes() == b"what was there"


def test_the_result_file_says_how_it_came_about(native: Path) -> None:
    data = json.loads(native.read_text("utf-8"))
    assert {"command", "components", "frameworks", "host", "timing", "series", "evaluation"} <= set(
        data
    )
    assert {"torch", "numpy"} <= set(data["frameworks"])
    assert {"load_ns", "first_ns", "warmup"} <= set(data["timing"])
    assert {"before", "after"} <= set(data["host"])
