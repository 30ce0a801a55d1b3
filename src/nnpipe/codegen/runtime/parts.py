"""The functions that can be copied into a script, as syntax trees with what they call."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from functools import cache
from importlib import resources

_MODULES = {
    "pytorch": ("common", "pytorch_files", "pytorch_data", "pytorch_training"),
    "keras": ("common", "keras"),
}


@cache
def parts(framework: str) -> dict[str, ast.stmt]:
    """Give the functions and classes for a framework by their names, in the order in which they stand."""
    found: dict[str, ast.stmt] = {}
    for module in _MODULES[framework]:
        source = (resources.files("nnpipe.codegen.runtime") / f"{module}.py").read_text("utf-8")
        for node in ast.parse(source).body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                found[node.name] = node
    return found


def with_needed(framework: str, wanted: Iterable[str]) -> dict[str, ast.stmt]:
    """Give the parts that are wanted and all that they call, in order."""
    known = parts(framework)
    needed: set[str] = set()
    waiting = list(wanted)
    while waiting:
        name = waiting.pop()
        if name not in needed:
            needed.add(name)
            used = {node.id for node in ast.walk(known[name]) if isinstance(node, ast.Name)}
            waiting += sorted(used & set(known))
    return {name: node for name, node in known.items() if name in needed}
