"""Syntax trees of the functions and classes that can be copied into a script."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from functools import cache
from importlib import resources

from nnpipe.codegen.graph import find_reachable
from nnpipe.codegen.unparse import find_used_names

_MODULES = {
    "pytorch": ("common", "pytorch_files", "pytorch_data", "pytorch_losses", "pytorch_training"),
    "keras": ("common", "keras", "keras_losses"),
}


@cache
def load_definitions(framework: str) -> dict[str, ast.stmt]:
    """Return the syntax trees of the functions and classes for a framework by name, in source
    order.
    """
    found: dict[str, ast.stmt] = {}
    for module in _MODULES[framework]:
        source = (resources.files("nnpipe.codegen.runtime") / f"{module}.py").read_text("utf-8")
        for node in ast.parse(source).body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                found[node.name] = node
    return found


def with_needed(framework: str, wanted: Iterable[str]) -> dict[str, ast.stmt]:
    """Return the wanted functions and classes and everything that they use, in source order."""
    needed = find_reachable(wanted, _map_uses(framework))
    return {name: node for name, node in load_definitions(framework).items() if name in needed}


@cache
def _map_uses(framework: str) -> dict[str, set[str]]:
    known = load_definitions(framework)
    return {name: find_used_names([node]) & known.keys() for name, node in known.items()}
