"""Constructors of syntax trees.

No external text ever becomes code: strings are constants, and names are checked.
"""

from __future__ import annotations

import ast
import keyword
from collections.abc import Mapping, Sequence
from typing import Any

from nnpipe.core.errors import ConfigError


def is_name(text: str) -> bool:
    """Return whether a string can be the name of a variable: an ASCII identifier that is not a
    keyword.
    """
    return text.isidentifier() and text.isascii() and not keyword.iskeyword(text)


def build_name(text: str) -> ast.Name:
    """Return the expression of a name; raise :class:`ConfigError` if it cannot be a name in
    Python.
    """
    if not is_name(text):
        raise ConfigError(f"{text!r} cannot be a name in Python")
    return ast.Name(text, ast.Load())


def build_target_name(text: str) -> ast.Name:
    """Return a name as the target of an assignment."""
    return ast.Name(build_name(text).id, ast.Store())


def literal(value: Any) -> ast.expr:
    """Return the expression of a value that consists of constants, tuples, lists and dicts."""
    if isinstance(value, (tuple, list)):
        kind = ast.Tuple if isinstance(value, tuple) else ast.List
        return kind([literal(item) for item in value], ast.Load())
    if isinstance(value, Mapping):
        return ast.Dict([literal(key) for key in value], [literal(item) for item in value.values()])
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value < 0:
        return ast.UnaryOp(ast.USub(), ast.Constant(-value))
    if value is None or isinstance(value, (bool, int, float, str)):
        return ast.Constant(value)
    raise TypeError(f"{type(value).__name__} is not a constant")


def build_dotted_name(path: str) -> ast.expr:
    """Return the expression of a dotted name, such as ``a.b.c``."""
    first, *rest = path.split(".")
    found: ast.expr = build_name(first)
    for part in rest:
        found = attribute(found, part)
    return found


def attribute(value: ast.expr, attr: str) -> ast.Attribute:
    """Return the expression ``value.attr``."""
    return ast.Attribute(value, build_name(attr).id, ast.Load())


def call(function: ast.expr | str, *args: ast.expr, **named: ast.expr) -> ast.Call:
    """Return a call of an expression or of a function with a dotted name."""
    keywords = [ast.keyword(build_name(key).id, value) for key, value in named.items()]
    return ast.Call(
        build_dotted_name(function) if isinstance(function, str) else function, list(args), keywords
    )


def assign(target: str | ast.expr, value: ast.expr) -> ast.Assign:
    """Return an assignment to a name or another target."""
    return ast.Assign(
        [build_target_name(target) if isinstance(target, str) else as_target(target)], value
    )


def as_target(node: ast.expr) -> ast.expr:
    """Return an expression as the target of an assignment."""
    if isinstance(node, (ast.Tuple, ast.List)):
        return type(node)([as_target(item) for item in node.elts], ast.Store())
    if isinstance(node, ast.Name):
        return ast.Name(node.id, ast.Store())
    if isinstance(node, ast.Attribute):
        return ast.Attribute(node.value, node.attr, ast.Store())
    raise TypeError(f"{type(node).__name__} cannot be the target of an assignment")


def build_function(
    title: str,
    parameters: Sequence[str],
    body: Sequence[ast.stmt],
    doc: str = "",
    rest: str | None = None,
) -> ast.FunctionDef:
    """Return the definition of a function; ``rest`` is the name of a parameter for further
    arguments.
    """
    given = ast.arguments(
        posonlyargs=[],
        args=[ast.arg(build_name(p).id) for p in parameters],
        vararg=ast.arg(rest) if rest else None,
        kwonlyargs=[],
        kw_defaults=[],
        kwarg=None,
        defaults=[],
    )
    return ast.FunctionDef(
        build_name(title).id, given, [*build_docstring(doc), *body] or [ast.Pass()], [], None
    )


def build_class(title: str, base: ast.expr, body: Sequence[ast.stmt]) -> ast.ClassDef:
    """Return the definition of a class."""
    return ast.ClassDef(build_name(title).id, [base], [], list(body) or [ast.Pass()], [])


def build_docstring(text: str) -> list[ast.stmt]:
    """Return a list with the statement of a docstring; an empty list if the text is empty."""
    return [ast.Expr(ast.Constant(text))] if text else []


class _TemplateFiller(ast.NodeTransformer):
    def __init__(self, parts: Mapping[str, ast.AST]) -> None:
        self.parts = parts

    def visit_Name(self, node: ast.Name) -> ast.AST:
        part = self.parts.get(node.id)
        if part is None:
            return node
        return (
            as_target(part)
            if isinstance(node.ctx, ast.Store) and isinstance(part, ast.expr)
            else part
        )


def fill_template(template: str, **parts: ast.AST) -> list[ast.stmt]:
    """Return the statements of a template in which the names in ``parts`` are replaced by their
    trees.

    The template is a constant in nnpipe's source code.  External text may only
    be part of the trees in ``parts``.
    """
    return [_TemplateFiller(parts).visit(statement) for statement in ast.parse(template).body]
