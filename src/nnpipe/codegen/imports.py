"""The imports that a script's code needs, in the order of ruff and isort."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable
from typing import Any

KNOWN: dict[str, str] = {
    "F": "import torch.nn.functional as F",
    "nn": "from torch import nn",
    "torch": "import torch",
    "np": "import numpy as np",
    "keras": "import keras",
    "tf": "import tensorflow as tf",
    "layers": "from keras import layers",
    "Path": "from pathlib import Path",
    "importlib": "import importlib.util",
    "Image": "from PIL import Image",
    "partial": "from functools import partial",
    **{
        title: f"import {title}"
        for title in (
            "argparse",
            "ast",
            "csv",
            "ctypes",
            "inspect",
            "io",
            "json",
            "os",
            "shutil",
            "struct",
            "subprocess",
            "sys",
            "time",
            "zipfile",
        )
    },
}
"""The import statement of each name.  Nothing else in a script has one of these names."""


def section_of(node: ast.stmt) -> str:
    """Return the block that an import belongs to: ``standard`` for the standard library, otherwise ``installed``."""
    module = node.module if isinstance(node, ast.ImportFrom) else node.names[0].name  # type: ignore[attr-defined]
    return "standard" if (module or "").partition(".")[0] in sys.stdlib_module_names else "installed"


def hides(title: str) -> bool:
    """Return whether a script of this name would be imported instead of a module that scripts use."""
    modules = {line.replace(".", " ").split()[1] for line in KNOWN.values()} | {
        "nnpipe",
        "numpy",
        "sklearn",
        "tensorflow",
    }
    return title in modules or title in sys.stdlib_module_names


def used_names(body: Iterable[ast.stmt]) -> set[str]:
    """Return the names that occur in statements."""
    return {node.id for statement in body for node in ast.walk(statement) if isinstance(node, ast.Name)}


def imports_of(body: Iterable[ast.stmt]) -> list[ast.stmt]:
    """Return the imports that statements need, in order."""
    lines = [KNOWN[title] for title in sorted(used_names(body)) if title in KNOWN]
    return ordered([ast.parse(line).body[0] for line in lines])


def ordered(lines: Iterable[ast.stmt]) -> list[ast.stmt]:
    """Return imports in order, merged into one ``from`` line for each module.

    The standard library comes first, and plain imports come before ``from`` lines in each block.
    """
    unique = {ast.unparse(line): line for line in lines}
    found: list[ast.stmt] = []
    taken: dict[str, set[str]] = {}
    for line in unique.values():
        if isinstance(line, ast.ImportFrom) and not any(alias.asname for alias in line.names):
            taken.setdefault(line.module or "", set()).update(alias.name for alias in line.names)
        else:
            found.append(line)
    for module, titles in taken.items():
        found.append(ast.ImportFrom(module, [ast.alias(title) for title in sorted(titles, key=_title_key)], 0))
    return sorted(found, key=_line_key)


def _line_key(node: ast.stmt) -> tuple[Any, ...]:
    first = node.names[0]  # type: ignore[attr-defined]
    is_from = isinstance(node, ast.ImportFrom)
    module = (node.module or "") if isinstance(node, ast.ImportFrom) else first.name
    return section_of(node) != "standard", is_from, _natural(module), _title_key(first.name), first.asname or ""


def _title_key(title: str) -> tuple[Any, ...]:
    """Return the sort key of an imported name: constants come first, then classes, then other names."""
    kind = 0 if title.isupper() and len(title) > 1 else 1 if title[:1].isupper() else 2
    return kind, _natural(title), title


def _natural(text: str) -> list[tuple[bool, int, str]]:
    """Return the sort key of a string that ignores case and orders numbers in it by value."""
    parts = re.findall(r"\d+|\D", text.lower())
    return [(not part.isdigit(), int(part) if part.isdigit() else 0, part) for part in parts]
