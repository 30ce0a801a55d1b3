"""Source code from syntax trees, unparsed by Python and formatted by ruff if it is installed."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
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


def get_import_section(node: ast.stmt) -> str:
    """Return the block that an import belongs to: ``standard`` for the standard library,
    otherwise ``installed``.
    """
    module = node.module if isinstance(node, ast.ImportFrom) else node.names[0].name  # type: ignore[attr-defined]
    return (
        "standard" if (module or "").partition(".")[0] in sys.stdlib_module_names else "installed"
    )


def is_shadowing_module(title: str) -> bool:
    """Return whether a script of this name would be imported instead of a module that scripts
    use.
    """
    modules = {line.replace(".", " ").split()[1] for line in KNOWN.values()} | {
        "nnpipe",
        "numpy",
        "sklearn",
        "tensorflow",
    }
    return title in modules or title in sys.stdlib_module_names


def find_used_names(body: Iterable[ast.stmt]) -> set[str]:
    """Return the names that occur in statements."""
    return {
        node.id for statement in body for node in ast.walk(statement) if isinstance(node, ast.Name)
    }


def find_imports(body: Iterable[ast.stmt]) -> list[ast.stmt]:
    """Return the imports that statements need, in order."""
    lines = [KNOWN[title] for title in sorted(find_used_names(body)) if title in KNOWN]
    return sort_imports([ast.parse(line).body[0] for line in lines])


def sort_imports(lines: Iterable[ast.stmt]) -> list[ast.stmt]:
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
        found.append(
            ast.ImportFrom(
                module, [ast.alias(title) for title in sorted(titles, key=_get_name_sort_key)], 0
            )
        )
    return sorted(found, key=_get_import_sort_key)


def _get_import_sort_key(node: ast.stmt) -> tuple[Any, ...]:
    first = node.names[0]  # type: ignore[attr-defined]
    is_from = isinstance(node, ast.ImportFrom)
    module = (node.module or "") if isinstance(node, ast.ImportFrom) else first.name
    return (
        get_import_section(node) != "standard",
        is_from,
        _get_natural_sort_key(module),
        _get_name_sort_key(first.name),
        first.asname or "",
    )


def _get_name_sort_key(title: str) -> tuple[Any, ...]:
    """Return the sort key of an imported name: constants come first, then classes, then other
    names.
    """
    kind = 0 if title.isupper() and len(title) > 1 else 1 if title[:1].isupper() else 2
    return kind, _get_natural_sort_key(title), title


def _get_natural_sort_key(text: str) -> list[tuple[bool, int, str]]:
    """Return the sort key of a string that ignores case and orders numbers in it by value."""
    parts = re.findall(r"\d+|\D", text.lower())
    return [(not part.isdigit(), int(part) if part.isdigit() else 0, part) for part in parts]


LAYOUT_HINT = (
    "the code is not formatted, because ruff is not installed; pip install 'nnpipe[codegen]'"
)

_IMPORTS = (ast.Import, ast.ImportFrom)
_MARK = re.compile(r"_line_of_nnpipe_(\d+)$", re.MULTILINE)
_OPENING = re.compile(r"(?<!\w)\(")


class Remark(ast.stmt):
    """A statement that stands for a comment on a line of its own, which Python's syntax trees do
    not have.
    """

    _fields = ("text",)
    text: str


def create_remark(text: str) -> Remark:
    """Return the statement of a comment."""
    found = Remark()
    found.text = text
    return found


def can_lay_out() -> bool:
    """Return whether ruff is installed, which formats the code."""
    return _find_ruff() is not None


def generate_source(module: ast.Module) -> str:
    """Return the source code of a module, which parses to an equal tree.

    Raises
    ------
    TypeError
        If the source code does not parse to the tree, or a comment cannot be printed.
    """
    marked = _PlaceholderCopier()
    found = ast.unparse(marked.copy_of(module)) + "\n"
    found = _MARK.sub(lambda match: marked.lines[int(match[1])], _remove_parentheses(found))
    found = _format_with_ruff(found)
    if not _is_same_tree(ast.parse(found), module):
        raise TypeError("the source code does not parse to the tree that it was made from")
    return found


def _find_ruff() -> str | None:
    """Return the path of ruff; ``None`` if it is not installed."""
    try:
        from ruff.__main__ import find_ruff_bin  # all versions have it here

        return str(find_ruff_bin())
    except (ImportError, FileNotFoundError):
        return None


def _format_with_ruff(text: str) -> str:
    """Return code as ruff formats it, or as it is if ruff is not installed."""
    ruff = _find_ruff()
    if ruff is None:
        return text
    words = [
        ruff,
        "format",
        "--isolated",
        "--no-cache",
        "--target-version=py310",
        "--line-length=88",
        "-",
    ]
    ran = subprocess.run(words, input=text.encode(), capture_output=True, check=False)
    if ran.returncode:
        raise TypeError(
            f"ruff cannot format the code: {ran.stderr.decode(errors='replace').strip()}"
        )
    return ran.stdout.decode()


def _remove_parentheses(text: str) -> str:
    """Return code without the unnecessary parentheses that ``ast.unparse`` writes."""
    lines = text.split("\n")
    texts = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant)]
    within = {
        n
        for node in texts
        for n in range(node.lineno, node.end_lineno or 0)
        if isinstance(node.value, str)
    }
    return "\n".join(
        line if n + 1 in within or n in within else _remove_line_parentheses(line)
        for n, line in enumerate(lines)
    )


def _remove_line_parentheses(line: str) -> str:
    place = 0
    while match := _OPENING.search(line, place):
        place = match.end()
        depth, end = 1, place
        while depth and end < len(line):
            depth += {"(": 1, ")": -1}.get(line[end], 0)
            end += 1
        shorter = line[: place - 1] + line[place : end - 1] + line[end:]
        if line[end - 2] != "," and _dump_line_tree(shorter) == _dump_line_tree(line):
            line, place = shorter, place - 1
    return line


def _dump_line_tree(line: str) -> str | None:
    """Return the dumped tree of a line, which may start a block; ``None`` if it does not parse."""
    code = line.strip()
    if code.startswith(("elif ", "except ")):
        code = ("if x: pass\n" if code.startswith("elif") else "try: pass\n") + code
    try:
        return ast.dump(ast.parse(code + " pass" if code.endswith(":") else code))
    except SyntaxError:
        return None


class _PlaceholderCopier:
    """A copier of trees that replaces comments and blank lines by placeholder names; ``lines``
    holds their texts.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []

    def copy_of(self, node: ast.AST) -> ast.AST:
        fields: dict[str, Any] = {}
        for field, value in ast.iter_fields(node):
            if isinstance(value, list):
                nodes = (
                    self._insert_separators(value)
                    if field in ("body", "orelse", "finalbody")
                    else value
                )
                fields[field] = [
                    self.copy_of(item) if isinstance(item, ast.AST) else item for item in nodes
                ]
            else:
                fields[field] = self.copy_of(value) if isinstance(value, ast.AST) else value
        copied = type(node)(**fields)
        if isinstance(copied, ast.stmt):
            copied.lineno = 0  # ast.unparse reads the line number of every statement
        return copied

    def _insert_separators(self, body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
        for place, statement in enumerate(body):
            comment = _format_comment(statement) if isinstance(statement, Remark) else ""
            if place and (comment or _is_end_of_imports(body[place - 1], statement)):
                yield self._add_placeholder("")
            yield self._add_placeholder(comment) if comment else statement

    def _add_placeholder(self, line: str) -> ast.stmt:
        self.lines.append(line)
        return ast.Expr(ast.Name(f"_line_of_nnpipe_{len(self.lines) - 1}", ast.Load()))


def _format_comment(node: Remark) -> str:
    if not node.text.isascii() or not node.text.isprintable():
        raise TypeError("a comment that cannot be printed")
    return f"# {node.text}"


def _is_end_of_imports(before: ast.stmt, after: ast.stmt) -> bool:
    """Return whether a block of imports ends between two statements."""
    if not isinstance(before, _IMPORTS):
        return False
    return not isinstance(after, _IMPORTS) or get_import_section(before) != get_import_section(
        after
    )


def _is_same_tree(parsed: object, made: object) -> bool:
    """Return whether a parsed tree equals a generated one; comments are ignored."""
    if isinstance(parsed, list):  # a generated node may lack a list that is empty
        nodes = [node for node in made or () if not isinstance(node, Remark)]  # type: ignore[attr-defined]
        return len(parsed) == len(nodes) and all(map(_is_same_tree, parsed, nodes))
    if isinstance(parsed, ast.AST):
        fields = type(parsed)._fields
        return type(parsed) is type(made) and all(
            _is_same_tree(getattr(parsed, field, None), getattr(made, field, None))
            for field in fields
        )
    return type(parsed) is type(made) and repr(parsed) == repr(made)  # repr tells 0.0 from -0.0
