"""Partial evaluation of operators, attributes and indices."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Sequence
from typing import Any

from nnpipe.codegen.syntax import literal
from nnpipe.codegen.torch_code import shapes
from nnpipe.codegen.torch_code.values import Expression, Method, ModuleValue, Untranslatable, is_known, lift, of_torch

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


def changed(op: ast.unaryop, value: Any) -> Any:
    """Return the result of a unary operator."""
    if isinstance(value, Expression):
        return Expression(ast.UnaryOp(op, value.node), shape=value.shape)
    return UNARY[type(op)](value)


def combine(op: ast.operator, left: Any, right: Any) -> Any:
    """Return the result of a binary operator."""
    if isinstance(left, Expression) or isinstance(right, Expression):
        return Expression(ast.BinOp(lift(left), op, lift(right)), shape=shapes.merged(op, left, right))
    return BINARY[type(op)](left, right)


def compared(ops: Sequence[ast.cmpop], operands: Sequence[Any]) -> Any:
    """Return the result of a chain of comparisons, which has one operand more than operators."""
    live = operands[-1].live if isinstance(operands[-1], Expression) else None
    if len(ops) == 1 and isinstance(ops[0], (ast.In, ast.NotIn)) and live is not None:
        return COMPARED[type(ops[0])](operands[0], live)
    identity = all(isinstance(op, (ast.Is, ast.IsNot)) for op in ops)
    if not identity and any(isinstance(item, Expression) for item in operands):
        return Expression(ast.Compare(lift(operands[0]), list(ops), [lift(item) for item in operands[1:]]))
    return all(COMPARED[type(op)](a, b) for op, a, b in zip(ops, operands, operands[1:], strict=False))


def attribute_of(value: Any, attr: str) -> Any:
    """Return an attribute of a value, or the expression of the attribute if it is not known."""
    if of_torch(value):
        found = getattr(value, attr)
        if of_torch(found):
            return found
        return Expression(ast.Attribute(ast.Name(_TORCH[value.__name__], ast.Load()), attr, ast.Load()), live=found)
    if isinstance(value, ModuleValue) and attr == "core":
        assert value.core is not None
        return Expression(value.core, live=value.live.core)
    if isinstance(value, Expression):
        if attr == "ndim" and value.shape is not None:
            return len(value.shape)
        if attr == "shape" and value.shape is not None:
            whole = ast.Attribute(value.node, "shape", ast.Load())
            return tuple(
                Expression(ast.Subscript(whole, literal(axis), ast.Load())) if extent is None else extent
                for axis, extent in enumerate(value.shape)
            )
        live = getattr(value.live, attr, None)
        if isinstance(live, (int, tuple)) and attr in ("ndim", "shape"):
            return live
        node = ast.Attribute(value.node, attr, ast.Load())
        return Expression(node, live=live) if _lives(live) else Method(node, owner=value)
    return getattr(value, attr)


def _lives(value: Any) -> bool:
    import torch

    return isinstance(value, (torch.nn.Module, torch.Tensor))


def item_of(value: Any, index: Any) -> Any:
    """Return an item of a value, or the expression of the item if it is not known."""
    if isinstance(value, Expression):
        live = value.live[index] if value.live is not None and is_known(index) else None
        return Expression(ast.Subscript(value.node, _index(index), ast.Load()), live=live)
    if not is_known(index):
        raise Untranslatable("an index depends on a tensor")
    return value[index]


def _index(value: Any) -> ast.expr:
    if isinstance(value, slice):
        parts = (None if part is None else lift(part) for part in (value.start, value.stop, value.step))
        return ast.Slice(*parts)
    if isinstance(value, tuple):
        return ast.Tuple([_index(item) for item in value], ast.Load())
    return lift(value)


def known_items(value: Any) -> list[Any]:
    """Return the items that a loop iterates over; raise :class:`Untranslatable` if they are not known."""
    if isinstance(value, Expression):
        raise Untranslatable("a loop iterates over a tensor")
    return list(value)


def unpacked(target: ast.expr, value: Any) -> dict[str, Any]:
    """Return the values that an assignment gives to each name of its target."""
    if isinstance(target, ast.Name):
        return {target.id: value}
    if not isinstance(target, ast.Tuple) or isinstance(value, Expression):
        raise Untranslatable("a tensor is unpacked")
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
