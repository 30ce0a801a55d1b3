"""The list of scenarios and their summaries, read without importing the scenarios."""

from __future__ import annotations

import ast
from pathlib import Path

_FOLDER = Path(__file__).parents[1]


def scenarios() -> list[str]:
    """Return the names of the scenario modules, in alphabetical order."""
    return sorted(path.stem for path in _FOLDER.glob("[a-z]*.py"))


def summary_of(name: str) -> str:
    """Return the first line of a scenario's docstring, without its full stop."""
    tree = ast.parse((_FOLDER / f"{name}.py").read_text("utf-8"))
    return (ast.get_docstring(tree) or "").partition("\n")[0].rstrip(".")
