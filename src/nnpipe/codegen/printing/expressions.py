"""Expressions as documents."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

from nnpipe.codegen.printing.documents import Choice, Document, Group, IfBroken, Indented, Line, joined, laid_out
from nnpipe.codegen.printing.literals import escaped, text
from nnpipe.codegen.printing.strength import (
    AND,
    ATOM,
    BINARY,
    BITOR,
    COMPARED,
    FACTOR,
    OR,
    TEST,
    UNARY,
    strength_of,
)

_SPLIT = (ast.BinOp, ast.BoolOp, ast.Compare, ast.IfExp)


def expression(node: ast.expr, least: int = TEST) -> Document:
    """Return an expression; in parentheses if it binds weaker than ``least``."""
    if type(node) not in _CASES:
        raise TypeError(f"{type(node).__name__} is not provided for")
    found = _CASES[type(node)](node)
    if isinstance(node, _SPLIT):
        found = Group(found)
    return bracketed("(", [found], ")") if strength_of(node) < least else found


def top(node: ast.expr) -> Document:
    """Return an expression that stands at the end of a statement: in parentheses where it does not fit in a line."""
    if isinstance(node, ast.Tuple) and len(node.elts) > 1:
        items: Document = [*joined([expression(item) for item in node.elts], [",", Line(" ")]), IfBroken(",")]
        return _optional(items)
    if isinstance(node, _SPLIT):
        wide = _optional(expression(node))
        return Choice(_unsplit(node), wide) if isinstance(node, ast.BinOp) and _can_stay(node) else wide
    return expression(node)


def _can_stay(node: ast.BinOp) -> bool:
    """Return whether one operator is left in its line, for an operand beside it has brackets that can be broken."""
    strength = BINARY[type(node.op)][1]
    left, right = node.left, node.right
    chained = isinstance(left, ast.BinOp) and BINARY[type(left.op)][1] == strength
    inner = [part for part in (left, right) if isinstance(part, ast.BinOp) and BINARY[type(part.op)][1] > strength]
    bracketed = isinstance(right, (ast.Call, ast.List, ast.Tuple, ast.Dict)) or isinstance(left, _SPLIT)
    return bracketed and not chained and not inner


def _unsplit(node: ast.BinOp) -> Document:
    sign, strength = BINARY[type(node.op)]
    return [expression(node.left, strength), f" {sign} ", expression(node.right, strength + 1)]


def _optional(content: Document) -> Document:
    return Group([IfBroken("("), Indented([Line(), content]), Line(), IfBroken(")")])


def bracketed(start: str, items: Sequence[Document], end: str, *, one_by_one: bool = True) -> Document:
    """Return items in brackets: one line, or one line for all of them, or one for each."""
    if not items:
        return start + end
    comma = [IfBroken(",")] if len(items) > 1 or start != "(" or not one_by_one else []
    inner: Document = [*joined(items, [",", Line(" ")]), *comma]
    return Group([start, Indented([Line(), inner if one_by_one else Group(inner)]), Line(), end])


def _constant(node: Any) -> Document:
    if node.value is Ellipsis:
        return "..."
    if isinstance(node.value, bytes):
        return repr(node.value).replace("'", '"')  # which parsing again would show to be wrong
    return text(node.value) if isinstance(node.value, str) else repr(node.value)


def _attribute(node: Any) -> Document:
    owner = expression(node.value, ATOM)
    if isinstance(node.value, ast.Constant) and isinstance(node.value.value, int):
        owner = bracketed("(", [owner], ")")
    return [owner, ".", node.attr]


def _subscript(node: Any) -> Document:
    inner = node.slice
    if isinstance(inner, ast.Tuple) and inner.elts:
        parts = [_index(item) for item in inner.elts]
        end = "," if len(parts) == 1 else ""
        return [expression(node.value, ATOM), "[", joined(parts, ", "), end, "]"]
    return [expression(node.value, ATOM), "[", _index(inner), "]"]


def _index(node: ast.expr) -> Document:
    if not isinstance(node, ast.Slice):
        return expression(node)
    parts = (node.lower, node.upper, node.step)
    simple = all(part is None or _is_simple(part) for part in parts)
    before, after = ("", "") if simple else (" ", " ")
    lower = [] if node.lower is None else [expression(node.lower, OR), before]
    upper = [] if node.upper is None else [after, expression(node.upper, OR)]
    step = [] if node.step is None else [before if node.upper else "", ":", after, expression(node.step, OR)]
    return [*lower, ":", *upper, *step]


def _is_simple(node: ast.expr) -> bool:
    if isinstance(node, ast.UnaryOp) and not isinstance(node.op, ast.Not):
        return isinstance(node.operand, (ast.Constant, ast.Name))
    return isinstance(node, (ast.Constant, ast.Name))


def _call(node: Any) -> Document:
    items = [expression(item) for item in node.args]
    items += [[k.arg, "=", expression(k.value)] if k.arg else ["**", expression(k.value, OR)] for k in node.keywords]
    function = expression(node.func, ATOM)
    if len(node.args) == 1 and not node.keywords and isinstance(node.args[0], ast.GeneratorExp):
        return [function, _comprehension(node.args[0], "(", ")")]
    return [function, bracketed("(", items, ")", one_by_one=False)]


def _starred(node: Any) -> Document:
    return ["*", expression(node.value, BITOR)]


def _sequence(node: Any) -> Document:
    start, end = {ast.Tuple: ("(", ")"), ast.List: ("[", "]"), ast.Set: ("{", "}")}[type(node)]
    if isinstance(node, ast.Tuple) and len(node.elts) == 1:
        return Group(["(", Indented([Line(), expression(node.elts[0]), ","]), Line(), ")"])
    items: Document = [*joined([expression(item) for item in node.elts], [",", Line(" ")]), IfBroken(",")]
    return Group([start, Indented([Line(), items]), Line(), end]) if node.elts else start + end


def _dict(node: Any) -> Document:
    items: list[Document] = []
    for key, value in zip(node.keys, node.values, strict=True):
        items.append(["**", expression(value, OR)] if key is None else [expression(key), ": ", expression(value)])
    return bracketed("{", items, "}")


def _comprehension(node: Any, start: str, end: str) -> Document:
    head = (
        [expression(node.key), ": ", expression(node.value)]
        if isinstance(node, ast.DictComp)
        else [expression(node.elt)]
    )
    parts: list[Document] = [head]
    for part in node.generators:
        target = part.target
        named: Document = (
            joined([expression(t) for t in target.elts], ", ") if isinstance(target, ast.Tuple) else expression(target)
        )
        parts.append(["for ", named, " in ", expression(part.iter, OR)])
        parts += [["if ", expression(test, OR)] for test in part.ifs]
    return Group([start, Indented([Line(), Group(joined(parts, Line(" ")))]), Line(), end])


def _lambda(node: Any) -> Document:
    given = parameters(node.args)
    return ["lambda", *([" ", joined(given, ", ")] if given else []), ": ", expression(node.body)]


def parameters(given: ast.arguments) -> list[Document]:
    """Return the parameters of a function."""
    plain = [*given.posonlyargs, *given.args]
    defaults = [None] * (len(plain) - len(given.defaults)) + list(given.defaults)
    found: list[Document] = [_parameter(p, d) for p, d in zip(plain, defaults, strict=True)]
    if given.posonlyargs:
        found.insert(len(given.posonlyargs), "/")
    if given.vararg:
        found.append(["*", _parameter(given.vararg, None)])
    elif given.kwonlyargs:
        found.append("*")
    found += [_parameter(p, d) for p, d in zip(given.kwonlyargs, given.kw_defaults, strict=True)]
    return [*found, *([["**", _parameter(given.kwarg, None)]] if given.kwarg else [])]


def _parameter(node: ast.arg, default: ast.expr | None) -> Document:
    kind: list[Document] = [": ", expression(node.annotation)] if node.annotation else []
    equals = " = " if kind else "="
    return [node.arg, *kind, *([equals, expression(default)] if default is not None else [])]


def _unary(node: Any) -> Document:
    sign, strength = UNARY[type(node.op)]
    return [sign, expression(node.operand, strength)]


def _binary(node: Any) -> Document:
    sign, strength = BINARY[type(node.op)]
    if isinstance(node.op, ast.Pow):
        tight = _is_operand(node.left) and _is_operand(node.right)
        between: Document = sign if tight else f" {sign} "
        return [expression(node.left, ATOM), between, expression(node.right, FACTOR)]
    left = node.left
    chained = isinstance(left, ast.BinOp) and BINARY[type(left.op)][1] == strength
    first = _binary(left) if chained else expression(left, strength)  # a chain breaks as one
    return [first, Line(" "), f"{sign} ", expression(node.right, strength + 1)]


def _is_operand(node: ast.expr) -> bool:
    if isinstance(node, ast.UnaryOp):
        node = node.operand
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name) or (isinstance(node, ast.Constant) and isinstance(node.value, (int, float)))


def _boolean(node: Any) -> Document:
    sign, strength = ("or", OR) if isinstance(node.op, ast.Or) else ("and", AND)
    values = [
        # What is joined by "and" within "or" breaks with it, as a chain.
        _boolean(v) if isinstance(v, ast.BoolOp) and strength_of(v) > strength else expression(v, strength + 1)
        for v in node.values
    ]
    return joined(values, [Line(" "), f"{sign} "])


def _compare(node: Any) -> Document:
    found: list[Document] = [expression(node.left, BITOR)]
    for op, value in zip(node.ops, node.comparators, strict=True):
        found += [Line(" "), f"{COMPARED[type(op)]} ", expression(value, BITOR)]
    return found


def _choice(node: Any) -> Document:
    return [
        expression(node.body, OR), Line(" "), "if ", expression(node.test, OR), Line(" "), "else ",
        expression(node.orelse),
    ]  # fmt: skip


def _formatted(node: Any) -> Document:
    found = []
    for part in node.values:
        if isinstance(part, ast.Constant):
            found.append(escaped(str(part.value), '"').replace("{", "{{").replace("}", "}}"))
            continue
        if part.conversion not in (-1, ord("r")):
            raise TypeError("a conversion that is not provided for")
        inner = laid_out(expression(part.value), -10_000)  # never broken
        if "'" in inner or "\\" in inner:
            raise TypeError("a string within a formatted string")
        spec = "" if part.format_spec is None else ":" + part.format_spec.values[0].value
        inner = inner.replace('"', "'")
        found.append("{" + inner + ("!r" if part.conversion == ord("r") else "") + spec + "}")
    return 'f"' + "".join(found) + '"'


def _yield(node: Any) -> Document:
    return "yield" if node.value is None else ["yield ", top(node.value)]


_CASES: dict[type[ast.expr], Callable[[Any], Document]] = {
    ast.Constant: _constant, ast.Name: lambda node: node.id, ast.Attribute: _attribute, ast.Subscript: _subscript,
    ast.Call: _call, ast.Starred: _starred, ast.Tuple: _sequence, ast.List: _sequence, ast.Set: _sequence,
    ast.Dict: _dict, ast.GeneratorExp: lambda node: _comprehension(node, "(", ")"),
    ast.ListComp: lambda node: _comprehension(node, "[", "]"),
    ast.SetComp: lambda node: _comprehension(node, "{", "}"),
    ast.DictComp: lambda node: _comprehension(node, "{", "}"), ast.Lambda: _lambda, ast.UnaryOp: _unary,
    ast.BinOp: _binary, ast.BoolOp: _boolean, ast.Compare: _compare, ast.IfExp: _choice, ast.JoinedStr: _formatted,
    ast.Yield: _yield,
}  # fmt: skip
