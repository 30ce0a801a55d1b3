"""What loading a model needs is imported before it is timed."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from nnpipe.testing.model_files import write_tflite_difference

LOADED = """
import json, sys
import nnpipe as nn
from nnpipe.core.registry import find
from nnpipe.measuring.benchmark import import_frameworks

name, arguments, packages = sys.argv[1], json.loads(sys.argv[2]), tuple(sys.argv[3:])
wrapper = find(name, nn.ModelWrapper).from_json(arguments)
import_frameworks(wrapper)
before = set(sys.modules)
with wrapper.open(*([wrapper.model_path] if hasattr(wrapper, "model_path") else [])) as model:
    model.session()
print(sorted(each for each in set(sys.modules) - before if each.startswith(packages)))
"""


def imported_late(wrapper: str, arguments: dict[str, object], *packages: str) -> str:
    """Return which modules of the packages a new process imports only when it loads the model."""
    for package in packages:
        if importlib.util.find_spec(package.partition(".")[0]) is None:
            pytest.skip(f"{package} is not installed")
    command = [sys.executable, "-c", LOADED, wrapper, json.dumps(arguments), *packages]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_nothing_of_litert(tmp_path: Path) -> None:
    path = write_tflite_difference(tmp_path / "difference.tflite").path
    assert imported_late("TFLiteModel", {"model_path": str(path)}, "ai_edge_litert") == "[]"


@pytest.mark.slow
def test_nothing_of_scikit_learn() -> None:
    assert (
        imported_late("SklearnTabularModel", {"columns": 5, "num_classes": 3}, "sklearn", "skops")
        == "[]"
    )


@pytest.mark.slow
def test_neither_the_reader_of_exported_programs_nor_what_it_works_with(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    from nnpipe.testing.model_files import write_torch_network

    path = write_torch_network(tmp_path / "network.pt2").path
    assert (
        imported_late(
            "TorchExportModel",
            {"model_path": str(path)},
            "torch._export.serde",
            "torch._functorch.aot",
        )
        == "[]"
    )
