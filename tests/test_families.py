"""Each family's package gives its classes, imported when they are first used, and type checkers
are told of them.
"""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from nnpipe.core.registry import FAMILIES, components


def told_to_type_checkers(package: str) -> dict[str, str]:
    """Return the module of each name that a package imports for type checkers."""
    source = Path(importlib.import_module(package).__file__ or "").read_text("utf-8")
    return {
        alias.asname or "": node.module or ""
        for statement in ast.parse(source).body
        if isinstance(statement, ast.If)
        for node in statement.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_a_family_gives_each_of_its_classes(family: str) -> None:
    package = importlib.import_module(f"nnpipe.{family}")
    ours = [
        cls
        for cls in components(FAMILIES[family])
        if cls.__module__.startswith(f"{package.__name__}.")
    ]
    assert ours
    assert [cls.__name__ for cls in ours if getattr(package, cls.__name__, None) is not cls] == []
    told = told_to_type_checkers(package.__name__)
    assert [cls.__name__ for cls in ours if told.get(cls.__name__) != cls.__module__] == []
    for name, module in told.items():
        assert getattr(package, name) is getattr(importlib.import_module(module), name)


def test_what_is_not_there_is_said_as_python_says_it() -> None:
    with pytest.raises(
        ImportError, match=r"cannot import name 'DigitDataset' from 'nnpipe\.datasets'"
    ):
        from nnpipe.datasets import DigitDataset  # type: ignore[attr-defined]  # noqa: F401


def test_importing_a_family_imports_none_of_its_modules() -> None:
    probe = (
        "import sys, nnpipe.datasets, nnpipe.runtimes, nnpipe.compilers; "
        "print(*sorted(sys.modules))"
    )
    found = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, text=True, timeout=60, check=True
    )
    loaded = found.stdout.split()
    assert "nnpipe.datasets" in loaded
    assert not [
        name
        for name in loaded
        if name.startswith(("nnpipe.datasets.", "nnpipe.runtimes.", "numpy"))
    ]
