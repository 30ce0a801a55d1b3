"""What ``import nnpipe`` gives."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import nnpipe
from nnpipe.testing.component import HEAVY

STUB = Path(nnpipe.__file__).with_suffix(".pyi")


def test_every_public_name_is_there() -> None:
    for name in nnpipe.__all__:
        assert getattr(nnpipe, name) is not None
    assert set(nnpipe.__all__) <= set(dir(nnpipe))


def test_type_checkers_are_told_the_same() -> None:
    told = {
        alias.asname: node.module
        for node in ast.parse(STUB.read_text("utf-8")).body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    homes = {name: f"nnpipe.{module}" for module, names in nnpipe._HOMES.items() for name in names}
    assert told == homes
    assert set(nnpipe.__all__) == {"__version__", *told}


def test_what_is_not_there_is_said_as_python_says_it() -> None:
    with pytest.raises(AttributeError, match="module 'nnpipe' has no attribute 'comparre'"):
        _ = nnpipe.comparre


def test_importing_it_imports_nothing_else() -> None:
    probe = (
        "import sys, json; before = set(sys.modules); import nnpipe; dir(nnpipe); "
        "print(json.dumps(sorted(name for name in set(sys.modules) - before if sys.modules[name] "
        "is not None)))"
    )
    found = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, text=True, timeout=60, check=True
    )
    assert json.loads(found.stdout) == ["nnpipe", "nnpipe.core", "nnpipe.core.telemetry"]


def test_its_names_need_no_framework() -> None:
    probe = (
        "import sys, json, nnpipe; [getattr(nnpipe, name) for name in nnpipe.__all__]; "
        "print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
    )
    found = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, text=True, timeout=60, check=True
    )
    assert not set(HEAVY) & set(json.loads(found.stdout))
