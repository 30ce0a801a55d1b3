"""Partial evaluation of expressions."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import ModuleType
from typing import Any

from nnpipe.codegen.torch_code.call_evaluation import called
from nnpipe.codegen.torch_code.operator_evaluation import (
    attribute_of,
    changed,
    combine,
    compared,
    item_of,
    known_items,
    unpacked,
)
from nnpipe.codegen.torch_code.scope import Scope
from nnpipe.codegen.torch_code.sources import Closure
from nnpipe.codegen.torch_code.values import Expression, Untranslatable, is_known, lift


def evaluate(node: ast.expr, scope: Scope) -> Any:
    """Return the value of an expression, or the remaining expression if the value is not known.

    Raises
    ------
    Untranslatable
        If the expression can neither be evaluated nor be written as code.
    """
    method = _CASES.get(type(node))
    if method is None:
        raise Untranslatable(f"{type(node).__name__} is not supported")
    return method(node, scope)


def _constant(node: Any, scope: Scope) -> Any:
    return node.value


def _name(node: Any, scope: Scope) -> Any:
    return scope.value(node.id)


def _attribute(node: Any, scope: Scope) -> Any:
    return attribute_of(evaluate(node.value, scope), node.attr)


def _subscript(node: Any, scope: Scope) -> Any:
    return item_of(evaluate(node.value, scope), evaluate(node.slice, scope))


def _slice(node: Any, scope: Scope) -> Any:
    parts = [None if part is None else evaluate(part, scope) for part in (node.lower, node.upper, node.step)]
    return slice(*parts)


def _sequence(node: Any, scope: Scope) -> Any:
    found = list(_spread(node.elts, scope))
    return tuple(found) if isinstance(node, ast.Tuple) else found


def _spread(nodes: list[ast.expr], scope: Scope) -> Iterator[Any]:
    for node in nodes:
        if isinstance(node, ast.Starred):
            value = evaluate(node.value, scope)
            if isinstance(value, Expression):
                yield Expression(ast.Starred(value.node, ast.Load()))
            else:
                yield from value
        else:
            yield evaluate(node, scope)


def _dict(node: Any, scope: Scope) -> Any:
    found: dict[Any, Any] = {}
    for key, value in zip(node.keys, node.values, strict=True):
        item = evaluate(value, scope)
        found |= item if key is None else {evaluate(key, scope): item}
    return found


def _text(node: Any, scope: Scope) -> Any:
    found = []
    for part in node.values:
        value = evaluate(part.value if isinstance(part, ast.FormattedValue) else part, scope)
        if not isinstance(value, (str, int)):
            raise Untranslatable("a string depends on a tensor")
        found.append(str(value))
    return "".join(found)


def _unary(node: Any, scope: Scope) -> Any:
    return changed(node.op, evaluate(node.operand, scope))


def _binary(node: Any, scope: Scope) -> Any:
    return combine(node.op, evaluate(node.left, scope), evaluate(node.right, scope))


def _compare(node: Any, scope: Scope) -> Any:
    return compared(node.ops, [evaluate(item, scope) for item in (node.left, *node.comparators)])


def _boolean(node: Any, scope: Scope) -> Any:
    stops = isinstance(node.op, ast.Or)
    left: list[ast.expr] = []
    for item in node.values:
        value = evaluate(item, scope if not left else scope.inner({}))
        if isinstance(value, Expression):
            left.append(value.node)
            continue
        if bool(value) is stops:
            if left:
                raise Untranslatable("a condition depends on a tensor")
            return value
        last = value
    if not left:
        return last
    return Expression(left[0] if len(left) == 1 else ast.BoolOp(node.op, left))


def _choice(node: Any, scope: Scope) -> Any:
    test = evaluate(node.test, scope)
    if not isinstance(test, Expression):
        return evaluate(node.body if test else node.orelse, scope)
    inner = scope.inner({})
    one, other = evaluate(node.body, inner), evaluate(node.orelse, inner)
    if is_known(one) and is_known(other) and one == other:
        return one
    return Expression(ast.IfExp(test.node, lift(one), lift(other)))


def _lambda(node: Any, scope: Scope) -> Any:
    return Closure(node, {**scope.closure.around, **scope.local}, scope.closure.globals, "function")


def _comprehension(node: Any, scope: Scope) -> Any:
    return list(_turns(node.elt, list(node.generators), scope))


def _turns(element: ast.expr, parts: list[ast.comprehension], scope: Scope) -> Iterator[Any]:
    if not parts:
        yield evaluate(element, scope)
        return
    for item in known_items(evaluate(parts[0].iter, scope)):
        # Iterations run in order, so statements may come before them as before any other expression.
        inner = replace(scope, local={**scope.local, **unpacked(parts[0].target, item)})
        if all(evaluate(test, inner) for test in parts[0].ifs):
            yield from _turns(element, parts[1:], inner)


def _call(node: Any, scope: Scope) -> Any:
    function = evaluate(node.func, scope)
    given = list(_spread(node.args, scope))
    named: dict[str, Any] = {}
    for item in node.keywords:
        value = evaluate(item.value, scope)
        named |= value if item.arg is None else {item.arg: value}
    return called(function, given, named, scope)


def imported(node: ast.Import | ast.ImportFrom) -> dict[str, Any]:
    """Return the values that an import inside a function binds, by name."""
    found: dict[str, Any] = {}
    for alias in node.names:
        if isinstance(node, ast.ImportFrom):
            module = importlib.import_module(node.module or "")
            found[alias.asname or alias.name] = getattr(module, alias.name)
        else:
            module = importlib.import_module(alias.name)
            root: ModuleType = module if alias.asname else importlib.import_module(alias.name.partition(".")[0])
            found[alias.asname or alias.name.partition(".")[0]] = root
    return found


_CASES: dict[type[ast.expr], Callable[[Any, Scope], Any]] = {
    ast.Constant: _constant, ast.Name: _name, ast.Attribute: _attribute, ast.Subscript: _subscript, ast.Slice: _slice,
    ast.Tuple: _sequence, ast.List: _sequence, ast.Dict: _dict, ast.UnaryOp: _unary, ast.BinOp: _binary,
    ast.Compare: _compare, ast.BoolOp: _boolean, ast.IfExp: _choice, ast.Lambda: _lambda, ast.Call: _call,
    ast.JoinedStr: _text, ast.GeneratorExp: _comprehension, ast.ListComp: _comprehension,
}  # fmt: skip
