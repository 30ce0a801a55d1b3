"""Two models held against each other from Python: what they give on arrays, and what the command
tells of the same.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from installed import needs

import nnpipe as nn
from nnpipe.core.progress import silent
from nnpipe.datasets.arrays import write_arrays
from nnpipe.scenarios.verify import main
from nnpipe.testing.model_files import write_onnx_classifier

pytest.importorskip("onnx", reason="onnx is not installed")
needs("onnx_ir")
pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")

LABELS = np.arange(60) % 4
INPUTS = np.random.default_rng(0).normal(LABELS[:, None], 0.1, (60, 6)).astype(np.float32)


@pytest.fixture
def models(tmp_path: Path) -> tuple[Path, Path]:
    """A classifier, and one that was fitted to other samples."""
    source = write_onnx_classifier(tmp_path / "source.onnx", INPUTS, LABELS)
    return source, write_onnx_classifier(tmp_path / "other.onnx", INPUTS[::-1] * 1.2, LABELS)


@pytest.mark.slow  # of the command is tests/scenarios/test_verify.py
def test_the_command_tells_the_same(
    models: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = nn.verify(*models, data=INPUTS, progress=silent)
    assert found.verdict == "different"
    assert found.agreement.samples == 60
    assert not found.agrees()
    write_arrays(tmp_path / "data", {"image": INPUTS}, LABELS, split=np.full(60, 2, np.int8))
    written = tmp_path / "figures.json"
    argv = [
        "--dataset",
        "ArraysDataset",
        "--dataset-root",
        str(tmp_path / "data"),
        "--output",
        str(written),
    ]
    assert main([*map(str, models), *argv]) == 1
    assert json.loads(written.read_text("utf-8")) == json.loads(json.dumps(found.to_json()))
    assert capsys.readouterr().out == f"{found}\nfigures: {written}\n"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_module_is_held_against_the_file_that_it_was_exported_to(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    torch.manual_seed(0)
    network = torch.nn.Sequential(
        torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4)
    ).eval()
    program = torch.export.export(network, (torch.from_numpy(INPUTS),))
    torch.export.save(program, tmp_path / "network.pt2")
    found = nn.verify(
        network,
        tmp_path / "network.pt2",
        data=(INPUTS, LABELS),
        samples=60,
        claims=["float"],
        progress=silent,
    )
    assert (found.verdict, found.claims, found.claims_by) == ("same", ("float",), "as told")
    with torch.no_grad():
        network[2].bias += 1.0
    changed = nn.verify(
        tmp_path / "network.pt2", network, data={"x": torch.from_numpy(INPUTS)}, progress=silent
    )
    assert changed.verdict == "different"
    assert changed.agreement.tensors[0].mean_absolute == pytest.approx(1.0, rel=1e-5)


@pytest.mark.slow
def test_a_data_set_and_tolerances_are_taken(models: tuple[Path, Path], tmp_path: Path) -> None:
    data = write_arrays(tmp_path / "data", {"image": INPUTS}, LABELS, split=np.full(60, 2, np.int8))
    wide = nn.Tolerances(close_tolerance=1.0)
    found = nn.verify(
        *models, data=data, samples=20, runtime="ONNXRuntime", tolerances=wide, progress=silent
    )
    assert (found.agreement.samples, found.run_by) == (20, "ONNXRuntime")
    assert found.to_json()["tolerances"]["close_tolerance"] == 1.0
    with pytest.raises(nn.ConfigError, match="at_least takes 'same' or 'close', not 'equal'"):
        found.agrees("equal")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"source": "nowhere.onnx"}, "nowhere.onnx: no such model file"),
        ({"artifact": "nowhere.onnx"}, "nowhere.onnx: no such model file"),
        ({"source": 5}, "a model is a file"),
        ({"artifact": 5}, "a model is a file"),
        ({"data": 5}, "data should be"),
        ({"data": np.zeros((0, 6), np.float32)}, "data should hold samples"),
        ({"data": {"a": INPUTS, "b": INPUTS[:3]}}, "inputs differ in their number of samples"),
        ({"samples": 0}, "verify: samples takes 1 or more, not 0"),
        ({"time_limit": -1}, "verify: time_limit takes 0 or more"),
        ({"claims": ["int9"]}, "verify: claims takes a sequence of"),
        ({"artifact_axes": [-1, 0]}, "verify: artifact_axes takes 0 or more"),
        ({"runtime": "NoSuchRuntime"}, "no Runtime is called 'NoSuchRuntime'"),
        ({"tolerances": 0.1}, "verify: tolerances takes Tolerances or None"),
    ],
)
def test_bad_values_are_refused_in_one_line(
    given: dict[str, Any], told: str, models: tuple[Path, Path]
) -> None:
    with pytest.raises(nn.NNPipeError) as error:
        nn.verify(
            **{"source": models[0], "artifact": models[1], "data": INPUTS, **given}, progress=silent
        )
    assert str(error.value).startswith(told)
    assert len(str(error.value).splitlines()) == 1


@pytest.mark.slow
def test_axes_that_are_none_are_refused(models: tuple[Path, Path]) -> None:
    with pytest.raises(nn.ConfigError, match="is no order of axes"):
        nn.verify(*models, data=INPUTS, artifact_axes=[0, 0], progress=silent)
