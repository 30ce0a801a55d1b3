"""The syntax trees of Python functions, read from their source files."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import CodeType, FunctionType, MethodType
from typing import Any


class NoSource(Exception):
    """An error about a function whose source code is missing or ambiguous."""


@dataclass(frozen=True, eq=False)
class Closure:
    """A function as a syntax tree, with the values of the names that it uses from its surroundings."""

    node: ast.FunctionDef | ast.Lambda
    around: Mapping[str, Any]
    globals: Mapping[str, Any]
    name: str
    first: tuple[Any, ...] = ()
    """First arguments that are bound already, such as ``self``."""


def closure_of(function: FunctionType | MethodType) -> Closure:
    """Return a Python function as a syntax tree with its surroundings.

    Raises
    ------
    NoSource
        If the source code of the function is missing or ambiguous.
    """
    first: tuple[Any, ...] = ()
    if isinstance(function, MethodType):
        first, function = (function.__self__,), function.__func__  # type: ignore[assignment]
    assert isinstance(function, FunctionType)
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    around = {name: cell.cell_contents for name, cell in cells}
    return Closure(_node(function.__code__), around, function.__globals__, function.__name__, first)


@cache
def _node(code: CodeType) -> ast.FunctionDef | ast.Lambda:
    found = [node for node in _functions(code.co_filename).get(code.co_firstlineno, ()) if _is_of(node, code)]
    if len({ast.dump(node) for node in found}) != 1:
        raise NoSource(f"{code.co_name} in {code.co_filename}, line {code.co_firstlineno}")
    return found[0]


@cache
def _functions(path: str) -> dict[int, list[ast.FunctionDef | ast.Lambda]]:
    try:
        with open(path, encoding="utf-8") as file:
            tree = ast.parse(file.read())
    except (OSError, SyntaxError) as error:
        raise NoSource(f"{path}: {error}") from None
    found: dict[int, list[ast.FunctionDef | ast.Lambda]] = {}
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.Lambda)):
            line = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])
            found.setdefault(line, []).append(node)
    return found


def _is_of(node: ast.FunctionDef | ast.Lambda, code: CodeType) -> bool:
    """Return whether a tree belongs to a code object at the same line; a line may hold several lambdas."""
    if (getattr(node, "name", None) or "<lambda>") != code.co_name:
        return False
    count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & inspect.CO_VARARGS)
    if [argument.arg for argument in arguments(node)] != list(code.co_varnames[:count]):
        return False
    names = {item.id for item in ast.walk(node) if isinstance(item, ast.Name)}
    outer = {*code.co_names, *code.co_freevars}
    return isinstance(node, ast.FunctionDef) or outer - _attributes(node) <= names


def arguments(node: ast.FunctionDef | ast.Lambda) -> list[ast.arg]:
    """Return the parameters of a function, in the order of code objects."""
    given = node.args
    return [*given.posonlyargs, *given.args, *given.kwonlyargs, *([given.vararg] if given.vararg else [])]


def _attributes(node: ast.AST) -> set[str]:
    return {item.attr for item in ast.walk(node) if isinstance(item, ast.Attribute)}
