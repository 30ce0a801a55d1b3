"""The list of scenarios and their summaries, read without importing the scenarios."""

from __future__ import annotations

import ast
from pathlib import Path

from nnpipe.core.messages import docstring_summary

PURPOSES = {
    "choose what to ship": ("run", "compare", "sweep", "search", "mix", "gate"),
    "measure": ("inference_tester", "inference_performance", "judge", "testrun", "render_report"),
    "check": ("verify", "conformance", "onnx_conversion", "reduce"),
    "explain and predict": ("explain", "roofline", "predict", "ethos_u"),
    "train": ("model_training", "experiment", "generate", "jobs", "runs"),
    "deploy": ("devices", "target", "inference_server", "build_server", "storage"),
    "look up": ("list", "info"),
}
"""The scenarios by purpose, in the order in which the help shows them."""

_FOLDER = Path(__file__).parents[1]


def list_scenarios() -> list[str]:
    """Return the names of the scenario modules, in alphabetical order."""
    return sorted(path.stem for path in _FOLDER.glob("[a-z]*.py"))


def read_scenario_summary(name: str) -> str:
    """Return the summary of a scenario's docstring, without its full stop."""
    tree = ast.parse((_FOLDER / f"{name}.py").read_text("utf-8"))
    return docstring_summary(ast.get_docstring(tree)).rstrip(".")
