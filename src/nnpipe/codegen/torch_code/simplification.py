"""Simplification of statements: a name that is used only once, in the next statement, is replaced by its value."""

from __future__ import annotations

import ast
import copy
import re
from collections import Counter
from collections.abc import Collection

_WIDTH = 72
_NUMBERED = re.compile(r"([a-z]+)_\d+")


def tidied(statements: list[ast.stmt], kept: Collection[str] = ()) -> list[ast.stmt]:
    """Return statements without unnecessary intermediate names.

    Parameters
    ----------
    statements
        The body of a function, in which each name except those in ``kept`` is assigned once.
    kept
        Names that stay, because they are informative or are assigned again.
    """
    found: list[ast.stmt] = []
    uses = Counter(n.id for s in statements for n in ast.walk(s) if isinstance(n, ast.Name))
    for statement in statements:
        while found and (shorter := _joined(found[-1], statement, kept, uses)) is not None:
            found.pop()
            statement = shorter
        found.append(statement)
    return _renumbered(found, kept)


def _renumbered(statements: list[ast.stmt], kept: Collection[str]) -> list[ast.stmt]:
    """Return statements in which numbered names that remain have the lowest free numbers."""
    names = {n.id for s in statements for n in ast.walk(s) if isinstance(n, ast.Name)}
    passing: list[str] = []
    for statement in statements:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            name = statement.targets[0].id
            if name not in kept and name not in passing and _NUMBERED.fullmatch(name):
                passing.append(name)
    taken, renamed = names.difference(passing), {}
    for name in passing:
        match = _NUMBERED.fullmatch(name)
        assert match is not None
        stem, number = match[1], 1
        title = stem
        while title in taken:
            number += 1
            title = f"{stem}_{number}"
        taken.add(title)
        renamed[name] = title
    return [_Named(renamed).visit(statement) for statement in statements]


class _Named(ast.NodeTransformer):
    def __init__(self, renamed: dict[str, str]) -> None:
        self.renamed = renamed

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(self.renamed.get(node.id, node.id), node.ctx)


def _joined(first: ast.stmt, second: ast.stmt, kept: Collection[str], uses: Counter[str]) -> ast.stmt | None:
    """Return the second statement with the value of the first one in it; ``None`` if they cannot be joined."""
    if not (isinstance(first, ast.Assign) and len(first.targets) == 1 and isinstance(first.targets[0], ast.Name)):
        return None
    name = first.targets[0].id
    if name in kept or uses[name] != 2 or not isinstance(second, (ast.Assign, ast.Return)) or second.value is None:
        return None
    if not any(isinstance(node, ast.Name) and node.id == name for node in ast.walk(second.value)):
        return None
    value = _Put(name, first.value).visit(copy.deepcopy(second.value))
    if len(ast.unparse(value)) > _WIDTH:
        return None
    return ast.Return(value) if isinstance(second, ast.Return) else ast.Assign(second.targets, value)


class _Put(ast.NodeTransformer):
    def __init__(self, name: str, value: ast.expr) -> None:
        self.name, self.value = name, value

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self.value if node.id == self.name else node

    def visit_Lambda(self, node: ast.Lambda) -> ast.expr:
        return node
