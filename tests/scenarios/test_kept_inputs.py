"""No command writes over a file that it reads, whatever it is called."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from tests.tools.installed import needs

from nnpipe.__main__ import main
from nnpipe.core.artifact import get_sidecar_path
from nnpipe.core.errors import ConfigError
from nnpipe.core.files import check_apart
from nnpipe.datasets.arrays import write_arrays
from nnpipe.testing.model_files import write_onnx_classifier
from nnpipe.workflows.measurement.measure import measure
from nnpipe.workflows.mixing.mix import mix

MEASURED = ("ONNXModel", "ArraysDataset", "--model-path", "model.onnx", "--dataset-root", "data")
DATA = ("--dataset", "ArraysDataset", "--dataset-root", "data")
COMMANDS: Sequence[Sequence[str]] = (
    ("inference_performance", *MEASURED[:2], "OUT", *MEASURED[2:]),
    ("inference_tester", "ONNXModel", "none", "ONNXRuntime", "ArraysDataset", "OUT", *MEASURED[2:]),
    (
        "inference_tester",
        "ONNXModel",
        "none",
        "ONNXRuntime",
        "ArraysDataset",
        "r.json",
        *MEASURED[2:],
        "--compiled-model-path",
        "OUT",
    ),
    ("mix", "model.onnx", *DATA, "--to", "OUT"),
    ("mix", "model.onnx", *DATA, "--to", "other.onnx", "--json", "OUT"),
    ("compare", "model.onnx", "model.onnx", *DATA, "--output", "OUT"),
    ("verify", "model.onnx", "onnx", *DATA, "--output", "OUT"),
    ("explain", "model.onnx", "--mimic", "OUT"),
    ("explain", "model.onnx", "--csv", "OUT"),
    ("explain", "model.onnx", "--json", "OUT"),
    ("predict", "model.onnx", "--json", "OUT"),
    ("gate", "model.onnx", "model.onnx", "--output", "OUT"),
    ("render_report", "model.onnx", "title", "OUT"),
    ("build_server", "OUT", "model.onnx"),
    ("ethos_u", "model.onnx", "--output", "OUT"),
    ("generate", "model.onnx", "--output", "OUT"),
    ("search", "model.onnx", "--report", "OUT"),
)


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    needs("onnx")
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    images, labels = random.standard_normal((60, 6)).astype(np.float32), np.arange(60) % 3
    write_arrays(tmp_path / "data", {"image": images}, labels)
    return write_onnx_classifier(tmp_path / "model.onnx", images, labels)


@pytest.mark.parametrize(
    "name", ["model.onnx", "./model.onnx", "data/../model.onnx", "link.onnx", "hard.onnx"]
)
@pytest.mark.parametrize("argv", COMMANDS, ids=" ".join)
def test_a_command_refuses_to_write_over_what_it_reads(
    argv: Sequence[str], name: str, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = model.read_bytes()
    Path("link.onnx").symlink_to("model.onnx")
    os.link("model.onnx", "hard.onnx")
    there = sorted(model.parent.iterdir())
    assert main([name if word == "OUT" else word for word in argv]) == 2
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 1
    assert "would replace model.onnx" in told[0]
    assert sorted(model.parent.iterdir()) == there
    assert model.read_bytes() == before


def test_a_result_never_replaces_a_models_description(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    get_sidecar_path(model).write_text("{}")
    assert main(["explain", "model.onnx", "--json", "model.onnx.json"]) == 2
    assert "would replace model.onnx.json" in capsys.readouterr().err


def test_calls_refuse_it_before_work_begins(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    samples = np.zeros((60, 6), np.float32), np.arange(60) % 3
    needs("onnxruntime")
    with monkeypatch.context() as patched:
        patched.setattr("nnpipe.workflows.isolation.subprocess_worker.Worker.attempt", pytest.fail)
        Path("step.onnx").symlink_to("model.onnx")
        for to in ("model.onnx", "./model.onnx", "model", "step.onnx"):
            with pytest.raises(ConfigError, match="would replace"):
                mix("model.onnx", to, data=samples)
        with pytest.raises(ConfigError, match="would replace"):
            measure("model.onnx", data=samples, output="model.onnx")
        with pytest.raises(ConfigError, match="would replace"):
            measure("model.onnx", data=samples, way="onnx", output="model.json")


def test_paths_that_are_not_there_are_apart(tmp_path: Path) -> None:
    check_apart(tmp_path / "a", [tmp_path / "a", tmp_path / "b", "a\0b"])
