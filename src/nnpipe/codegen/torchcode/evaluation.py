"""Partial evaluation of expressions."""

from __future__ import annotations

import ast
import builtins
import importlib
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

from nnpipe.codegen.syntax import literal
from nnpipe.codegen.torchcode import shapes
from nnpipe.codegen.torchcode.sources import Closure
from nnpipe.codegen.torchcode.values import (
    Expression,
    Method,
    Standing,
    Unforeseen,
    is_known,
    lift,
    of_torch,
)
from nnpipe.codegen.torchcode.writing import Block, Script

BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow, ast.MatMult: operator.matmul,
}  # fmt: skip
UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Not: operator.not_,
}  # fmt: skip
COMPARED: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.Is: operator.is_, ast.IsNot: operator.is_not, ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}  # fmt: skip
_TORCH = {"torch": "torch", "torch.nn": "nn", "torch.nn.functional": "F"}


@dataclass(frozen=True)
class Scope:
    """What an expression is evaluated in.

    ``block`` takes statements that must come before it; where there may be none
    (a branch of an expression, a comprehension) it is ``None``.
    """

    local: Mapping[str, Any]
    closure: Closure
    script: Script
    block: Block | None

    def value(self, name: str) -> Any:
        """Find the value of a name."""
        for values in (self.local, self.closure.around, self.closure.globals, vars(builtins)):
            if name in values:
                return values[name]
        raise Unforeseen(f"{name} is not known")

    def inner(self, local: Mapping[str, Any]) -> Scope:
        """Give the scope of a branch or a comprehension."""
        return replace(self, local={**self.local, **local}, block=None)


def evaluate(node: ast.expr, scope: Scope) -> Any:
    """Give the value of an expression, or the expression that is left of it.

    Raises
    ------
    Unforeseen
        If neither can be told.
    """
    method = _CASES.get(type(node))
    if method is None:
        raise Unforeseen(f"{type(node).__name__} is not provided for")
    return method(node, scope)


def residue(node: ast.expr, **kept: Any) -> Expression:
    """Give an expression as a value."""
    return Expression(node, **kept)


def _constant(node: Any, scope: Scope) -> Any:
    return node.value


def _name(node: Any, scope: Scope) -> Any:
    return scope.value(node.id)


def _attribute(node: Any, scope: Scope) -> Any:
    return attribute_of(evaluate(node.value, scope), node.attr, scope)


def attribute_of(value: Any, attr: str, scope: Scope) -> Any:
    """Give an attribute of a value."""
    if of_torch(value):
        found = getattr(value, attr)
        if of_torch(found):
            return found
        return residue(ast.Attribute(ast.Name(_TORCH[value.__name__], ast.Load()), attr, ast.Load()), live=found)
    if isinstance(value, Standing) and attr == "core":
        assert value.core is not None
        return residue(value.core, live=value.live.core)
    if isinstance(value, Expression):
        if attr == "ndim" and value.shape is not None:
            return len(value.shape)
        if attr == "shape" and value.shape is not None:
            whole = ast.Attribute(value.node, "shape", ast.Load())
            return tuple(
                residue(ast.Subscript(whole, literal(axis), ast.Load())) if extent is None else extent
                for axis, extent in enumerate(value.shape)
            )
        live = getattr(value.live, attr, None)
        if isinstance(live, (int, tuple)) and attr in ("ndim", "shape"):
            return live
        node = ast.Attribute(value.node, attr, ast.Load())
        return residue(node, live=live) if _lives(live) else Method(node, owner=value)
    return getattr(value, attr)


def _lives(value: Any) -> bool:
    import torch

    return isinstance(value, (torch.nn.Module, torch.Tensor))


def _subscript(node: Any, scope: Scope) -> Any:
    value, index = evaluate(node.value, scope), evaluate(node.slice, scope)
    if isinstance(value, Expression):
        live = None
        if isinstance(index, str):
            live = value.live[index] if value.live is not None else None
        elif value.live is not None and is_known(index):
            live = value.live[index]
        return residue(ast.Subscript(value.node, _index(index), ast.Load()), live=live)
    if not is_known(index):
        raise Unforeseen("an index depends on a tensor")
    return value[index]


def _index(value: Any) -> ast.expr:
    if isinstance(value, slice):
        parts = (None if part is None else lift(part) for part in (value.start, value.stop, value.step))
        return ast.Slice(*parts)
    if isinstance(value, tuple):
        return ast.Tuple([_index(item) for item in value], ast.Load())
    return lift(value)


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
                yield residue(ast.Starred(value.node, ast.Load()))
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
            raise Unforeseen("a text depends on a tensor")
        found.append(str(value))
    return "".join(found)


def _unary(node: Any, scope: Scope) -> Any:
    value = evaluate(node.operand, scope)
    if isinstance(value, Expression):
        return residue(ast.UnaryOp(node.op, value.node), shape=value.shape)
    return UNARY[type(node.op)](value)


def _binary(node: Any, scope: Scope) -> Any:
    return combine(node.op, evaluate(node.left, scope), evaluate(node.right, scope))


def combine(op: ast.operator, left: Any, right: Any) -> Any:
    """Give the result of an operator."""
    if isinstance(left, Expression) or isinstance(right, Expression):
        return residue(ast.BinOp(lift(left), op, lift(right)), shape=shapes.merged(op, left, right))
    return BINARY[type(op)](left, right)


def _compare(node: Any, scope: Scope) -> Any:
    operands = [evaluate(item, scope) for item in (node.left, *node.comparators)]
    live = operands[-1].live if isinstance(operands[-1], Expression) else None
    if len(node.ops) == 1 and isinstance(node.ops[0], (ast.In, ast.NotIn)) and live is not None:
        return COMPARED[type(node.ops[0])](operands[0], live)
    identity = all(isinstance(op, (ast.Is, ast.IsNot)) for op in node.ops)
    if not identity and any(isinstance(item, Expression) for item in operands):
        return residue(ast.Compare(lift(operands[0]), node.ops, [lift(item) for item in operands[1:]]))
    found = zip(node.ops, operands, operands[1:], strict=False)
    return all(COMPARED[type(op)](a, b) for op, a, b in found)


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
                raise Unforeseen("a condition depends on a tensor")
            return value
        last = value
    if not left:
        return last
    return residue(left[0] if len(left) == 1 else ast.BoolOp(node.op, left))


def _choice(node: Any, scope: Scope) -> Any:
    test = evaluate(node.test, scope)
    if not isinstance(test, Expression):
        return evaluate(node.body if test else node.orelse, scope)
    inner = scope.inner({})
    one, other = evaluate(node.body, inner), evaluate(node.orelse, inner)
    if is_known(one) and is_known(other) and one == other:
        return one
    return residue(ast.IfExp(test.node, lift(one), lift(other)))


def _lambda(node: Any, scope: Scope) -> Any:
    return Closure(node, {**scope.closure.around, **scope.local}, scope.closure.globals, "function")


def _comprehension(node: Any, scope: Scope) -> Any:
    return list(_turns(node.elt, list(node.generators), scope))


def _turns(element: ast.expr, parts: list[ast.comprehension], scope: Scope) -> Iterator[Any]:
    if not parts:
        yield evaluate(element, scope)
        return
    for item in known_items(evaluate(parts[0].iter, scope)):
        # Turns follow one another, so statements may stand before them as before any other expression.
        inner = replace(scope, local={**scope.local, **unpacked(parts[0].target, item)})
        if all(evaluate(test, inner) for test in parts[0].ifs):
            yield from _turns(element, parts[1:], inner)


def known_items(value: Any) -> list[Any]:
    """Give what a loop goes over, if that is known."""
    if isinstance(value, Expression):
        raise Unforeseen("a loop goes over a tensor")
    return list(value)


def unpacked(target: ast.expr, value: Any) -> dict[str, Any]:
    """Give the names that a value is assigned to."""
    if isinstance(target, ast.Name):
        return {target.id: value}
    if not isinstance(target, ast.Tuple) or isinstance(value, Expression):
        raise Unforeseen("a tensor is taken apart")
    found: dict[str, Any] = {}
    items = list(value)
    for place, part in enumerate(target.elts):
        if isinstance(part, ast.Starred):
            after = len(target.elts) - place - 1
            found |= unpacked(part.value, items[place : len(items) - after])
            items[place : len(items) - after] = [None]
        else:
            found |= unpacked(part, items[place])
    return found


def _call(node: Any, scope: Scope) -> Any:
    function = evaluate(node.func, scope)
    given = list(_spread(node.args, scope))
    named: dict[str, Any] = {}
    for item in node.keywords:
        value = evaluate(item.value, scope)
        named |= value if item.arg is None else {item.arg: value}
    from nnpipe.codegen.torchcode.calls import called

    return called(function, given, named, scope)


def imported(node: ast.Import | ast.ImportFrom) -> dict[str, Any]:
    """Give what an import inside a function binds."""
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
