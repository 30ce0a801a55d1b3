"""Statements, and whole modules, as text."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Sequence
from typing import Any

from nnpipe.codegen.imports import section_of
from nnpipe.codegen.printing.documents import Document, laid_out
from nnpipe.codegen.printing.expressions import bracketed, expression, parameters, top

_STEP = 4
_DEFINITIONS = (ast.FunctionDef, ast.ClassDef)
_IMPORTS = (ast.Import, ast.ImportFrom)


class Remark(ast.stmt):
    """A comment in a line of its own, which trees as Python parses them do not have."""

    _fields = ("text",)
    text: str


def remark(text: str) -> Remark:
    """Return a comment."""
    found = Remark()
    found.text = text
    return found


def source_of(module: ast.Module) -> str:
    """Return a module as text, which parses to the very same tree.

    Raises
    ------
    TypeError
        If something in it is not provided for.
    """
    found = "\n".join(_suite(module.body, 0, top_level=True)) + "\n"
    if ast.dump(ast.parse(found)) != ast.dump(_Plain().visit(copy.deepcopy(module))):
        raise TypeError("the text does not give the tree it was made of")
    return found


class _Plain(ast.NodeTransformer):
    """Makes of a tree what parsing would give: without comments, and with fields that only some versions know."""

    def visit_Remark(self, node: Remark) -> None:
        return None

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._with_parameters(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return self._with_parameters(node)

    def _with_parameters(self, node: ast.AST) -> ast.AST:
        node.type_params = getattr(node, "type_params", [])  # type: ignore[attr-defined]
        return self.generic_visit(node)


def _remark(node: Any, indent: int) -> list[str]:
    if not node.text.isascii() or not node.text.isprintable():
        raise TypeError("a comment that cannot be printed")
    return [" " * indent + "# " + node.text]


def _suite(body: Sequence[ast.stmt], indent: int, *, top_level: bool = False) -> list[str]:
    """Return the lines of some statements, with the blank lines between them."""
    lines: list[str] = []
    for place, statement in enumerate(body):
        if place:
            lines += [""] * _gap(body[place - 1], statement, top_level, is_first=place == 1)
        if _is_text(statement) and place == 0:
            lines += _docstring(statement.value.value, indent)  # type: ignore[attr-defined]
        else:
            if type(statement) not in _CASES:
                raise TypeError(f"{type(statement).__name__} is not provided for")
            lines += _CASES[type(statement)](statement, indent)
    return lines


def _gap(before: ast.stmt, after: ast.stmt, top_level: bool, is_first: bool) -> int:
    wide = 2 if top_level else 1
    if isinstance(after, Remark):
        return 1
    if isinstance(before, _DEFINITIONS) or isinstance(after, _DEFINITIONS):
        return wide
    if is_first and _is_text(before):
        return 1 if top_level else 0
    if isinstance(before, _IMPORTS):
        return 0 if isinstance(after, _IMPORTS) and section_of(before) == section_of(after) else 1
    return 1 if top_level and not isinstance(after, _IMPORTS) and isinstance(before, ast.If) else 0


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _docstring(value: str, indent: int) -> list[str]:
    safe = value.replace("\\", "\\\\").replace('"', '\\"')
    if not all(c.isprintable() or c == "\n" for c in safe):
        raise TypeError("a docstring that cannot be printed")
    return (" " * indent + f'"""{safe}"""').split("\n")  # further lines bring their indentation along


def _line(indent: int, *parts: Document) -> list[str]:
    return (" " * indent + laid_out(list(parts), indent)).split("\n")


def _import(node: Any, indent: int) -> list[str]:
    return _line(indent, "import ", ", ".join(_alias(alias) for alias in node.names))


def _import_from(node: Any, indent: int) -> list[str]:
    names = [_alias(alias) for alias in node.names]
    short = f"from {node.module} import {', '.join(names)}"
    if indent + len(short) <= 88:
        return [" " * indent + short]
    return [
        f"{' ' * indent}from {node.module} import (",
        *(f"{' ' * indent}    {n}," for n in names),
        " " * indent + ")",
    ]


def _alias(alias: ast.alias) -> str:
    return f"{alias.name} as {alias.asname}" if alias.asname else alias.name


def _function(node: Any, indent: int) -> list[str]:
    marks = [line for mark in node.decorator_list for line in _line(indent, "@", expression(mark))]
    given = bracketed("(", parameters(node.args), ")", one_by_one=False)
    gives: list[Document] = [" -> ", expression(node.returns)] if node.returns else []
    return [*marks, *_line(indent, "def ", node.name, given, *gives, ":"), *_suite(node.body, indent + _STEP)]


def _class(node: Any, indent: int) -> list[str]:
    bases = [expression(base) for base in node.bases]
    head = bracketed("(", bases, ")", one_by_one=False) if bases else ""
    lines = [line for mark in node.decorator_list for line in _line(indent, "@", expression(mark))]
    lines += _line(indent, "class ", node.name, head, ":")
    body = _suite(node.body, indent + _STEP)
    if len(node.body) > 1 and _is_text(node.body[0]) and not isinstance(node.body[1], _DEFINITIONS):
        count = len(_suite(node.body[:1], indent + _STEP))
        body.insert(count, "")
    return lines + body


def _assign(node: Any, indent: int) -> list[str]:
    targets: list[Document] = []
    for target in node.targets:
        targets += [_target(target), " = "]
    return _line(indent, *targets, top(node.value))


def _annotated(node: Any, indent: int) -> list[str]:
    value: list[Document] = [" = ", top(node.value)] if node.value is not None else []
    return _line(indent, expression(node.target), ": ", expression(node.annotation), *value)


def _target(node: ast.expr) -> Document:
    if isinstance(node, ast.Tuple) and len(node.elts) > 1:
        return ", ".join(laid_out(expression(item)) for item in node.elts)
    return expression(node)


def _augmented(node: Any, indent: int) -> list[str]:
    sign = ast.unparse(ast.BinOp(ast.Name("a"), node.op, ast.Name("b"))).split(" ")[1]
    return _line(indent, expression(node.target), f" {sign}= ", top(node.value))


def _return(node: Any, indent: int) -> list[str]:
    return _line(indent, "return", *([" ", top(node.value)] if node.value is not None else []))


def _expression(node: Any, indent: int) -> list[str]:
    return _line(indent, top(node.value))


def _raise(node: Any, indent: int) -> list[str]:
    cause: list[Document] = [" from ", expression(node.cause)] if node.cause else []
    return _line(indent, "raise", *([" ", expression(node.exc)] if node.exc else []), *cause)


def _delete(node: Any, indent: int) -> list[str]:
    return _line(indent, "del ", ", ".join(laid_out(expression(target)) for target in node.targets))


def _if(node: Any, indent: int, word: str = "if") -> list[str]:
    lines = _line(indent, f"{word} ", top(node.test), ":") + _suite(node.body, indent + _STEP)
    if len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If):
        return lines + _if(node.orelse[0], indent, "elif")
    return lines + _tail("else", node.orelse, indent)


def _tail(word: str, body: Sequence[ast.stmt], indent: int) -> list[str]:
    return [" " * indent + word + ":", *_suite(body, indent + _STEP)] if body else []


def _for(node: Any, indent: int) -> list[str]:
    lines = _line(indent, "for ", _target(node.target), " in ", top(node.iter), ":")
    return lines + _suite(node.body, indent + _STEP) + _tail("else", node.orelse, indent)


def _while(node: Any, indent: int) -> list[str]:
    return _line(indent, "while ", top(node.test), ":") + _suite(node.body, indent + _STEP)


def _with(node: Any, indent: int) -> list[str]:
    items: list[Document] = []
    for item in node.items:
        named: list[Document] = [" as ", expression(item.optional_vars)] if item.optional_vars else []
        items += [*([", "] if items else []), expression(item.context_expr), *named]
    return _line(indent, "with ", *items, ":") + _suite(node.body, indent + _STEP)


def _try(node: Any, indent: int) -> list[str]:
    lines = [" " * indent + "try:", *_suite(node.body, indent + _STEP)]
    for handler in node.handlers:
        kind: list[Document] = [" ", expression(handler.type)] if handler.type else []
        named: list[Document] = [" as ", handler.name] if handler.name else []
        lines += _line(indent, "except", *kind, *named, ":") + _suite(handler.body, indent + _STEP)
    return lines + _tail("else", node.orelse, indent) + _tail("finally", node.finalbody, indent)


def _word(word: str) -> Callable[[Any, int], list[str]]:
    return lambda node, indent: [" " * indent + word]


_CASES: dict[type[ast.stmt], Callable[..., list[str]]] = {
    Remark: _remark, ast.Import: _import, ast.ImportFrom: _import_from, ast.FunctionDef: _function,
    ast.ClassDef: _class, ast.Assign: _assign, ast.AnnAssign: _annotated, ast.AugAssign: _augmented,
    ast.Return: _return, ast.Expr: _expression, ast.Raise: _raise, ast.Delete: _delete, ast.If: _if, ast.For: _for,
    ast.While: _while, ast.With: _with, ast.Try: _try, ast.Pass: _word("pass"), ast.Break: _word("break"),
    ast.Continue: _word("continue"),
}  # fmt: skip
