"""A user's project that uses every public name: mypy checks it as strictly as it can, with the
types of nnpipe.
"""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import nnpipe

PROJECT = Path(__file__).parent / "user_project"
CACHE = Path(__file__).parents[2] / ".mypy_cache" / "user_project"

WRONG = """
import nnpipe as nn

result = nn.compare("model.onnx", data=None, way=["onnx"])
accuracy: str = nn.measure("model.onnx", data=None).figure("accuracy").value
nn.MeasureOptions(measure_samples="all")
nn.comparre
"""


def mypy(folder: Path) -> subprocess.CompletedProcess[str]:
    # An interface is a fine value for "any class of this kind" (python/mypy#4717).
    options = [
        "--strict",
        "--config-file=",
        "--disable-error-code=type-abstract",
        "--cache-dir",
        str(CACHE),
    ]
    environment = {name: value for name, value in os.environ.items() if name != "MYPYPATH"}
    return subprocess.run(
        [sys.executable, "-m", "mypy", *options, "-p", folder.name],
        cwd=folder.parent,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )


def test_it_uses_every_public_name() -> None:
    used = {
        node.attr
        for path in PROJECT.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "nn"
    }
    assert set(nnpipe.__all__) - used == set()


@pytest.mark.slow
@pytest.mark.timeout(700)
def test_mypy_finds_nothing_wrong_in_it_and_finds_what_is_wrong(tmp_path: Path) -> None:
    pytest.importorskip("mypy", reason="mypy is not installed")
    found = mypy(PROJECT)
    assert found.returncode == 0, found.stdout + found.stderr
    assert "no issues found in 3 source files" in found.stdout
    wrong = tmp_path / "wrong_project"
    shutil.copytree(PROJECT, wrong, ignore=shutil.ignore_patterns("__pycache__"))
    (wrong / "wrong.py").write_text(WRONG, "utf-8")
    told = mypy(wrong).stdout
    for line, code in ((4, "call-arg"), (5, "assignment"), (6, "arg-type"), (7, "attr-defined")):
        assert f"wrong.py:{line}: error:" in told, told
        assert f"[{code}]" in told, told
