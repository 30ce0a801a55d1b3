"""What editors are told of sweep files: the same as what the command takes and refuses."""

from __future__ import annotations

import json
from typing import Any

import pytest
from installed import ImportedWhenUsed

from nnpipe.core.errors import NNPipeError
from nnpipe.scenarios import sweep
from nnpipe.workflows.sweep.file import _KEYS, Sweep
from nnpipe.workflows.sweep.schema import build_sweep_schema

jsonschema = ImportedWhenUsed("jsonschema")


def settings(**changes: Any) -> dict[str, Any]:
    return {
        "dataset": "DigitsDataset",
        "models": [{"class": "ONNXModel", "path": "model.onnx"}],
        "compilers": [[], "ONNXFloat16", ["ONNXRuntimeOptimizer", "ONNXFloat16"]],
        "runtimes": [{"class": "ONNXRuntime", "vary": {"num_threads": [1, 2]}}],
    } | changes


@pytest.fixture(scope="module")
def checker() -> Any:
    jsonschema.Draft202012Validator.check_schema(build_sweep_schema())
    return jsonschema.Draft202012Validator(build_sweep_schema())


def test_it_names_every_key() -> None:
    assert set(build_sweep_schema()["properties"]) == set(_KEYS)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"compilers": [{"class": "ONNXStaticQuantizer", "vary": {"per_channel": [True, False]}}]},
        {
            "threads": [1, 2],
            "batch_sizes": [1, 8],
            "constraints": ["size <= 4 MB"],
            "objectives": ["size"],
            "seed": 1,
        },
        {
            "as_trained": False,
            "confidence": 0.9,
            "measure": {"measure_seconds": 1.0},
            "time_limit": 60,
        },
    ],
)
def test_it_accepts_what_the_command_takes(checker: Any, changes: dict[str, Any]) -> None:
    assert list(checker.iter_errors(settings(**changes))) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"batch_size": [1]},
        {"runtimes": []},
        {"runtimes": [{"class": "ONNXRuntime", "vary": {"num_threads": []}}]},
        {"runtimes": [{"class": "ONNXRuntime", "vary": {"threads": [1]}}]},
        {"threads": [0]},
        {"confidence": 1.0},
        {"seed": -1},
        {"models": []},
        {"compilers": ["ONNXFloat"]},
        {"measure": {"measure_second": 1.0}},
    ],
)
def test_both_refuse_a_slip(checker: Any, changes: dict[str, Any]) -> None:
    assert list(checker.iter_errors(settings(**changes)))
    pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    with pytest.raises(NNPipeError):
        Sweep.from_settings(settings(**changes))


def test_the_command_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert sweep.main(["--schema"]) == 0
    assert json.loads(capsys.readouterr().out) == build_sweep_schema()


def test_a_sweep_without_a_file_is_one_clear_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert sweep.main([]) == 2
    assert "name a sweep file" in capsys.readouterr().err
