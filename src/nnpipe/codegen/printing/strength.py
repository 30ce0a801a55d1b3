"""How strongly expressions bind, which says where parentheses stand."""

from __future__ import annotations

import ast

# What binds weaker comes first, as in Python's own grammar.
TEST, LAMBDA, OR, AND, NOT, COMPARE, BITOR, XOR, BITAND, SHIFT, SUM, TERM, FACTOR, POWER, ATOM = range(15)

BINARY: dict[type[ast.operator], tuple[str, int]] = {
    ast.BitOr: ("|", BITOR), ast.BitXor: ("^", XOR), ast.BitAnd: ("&", BITAND), ast.LShift: ("<<", SHIFT),
    ast.RShift: (">>", SHIFT), ast.Add: ("+", SUM), ast.Sub: ("-", SUM), ast.Mult: ("*", TERM),
    ast.Div: ("/", TERM), ast.FloorDiv: ("//", TERM), ast.Mod: ("%", TERM), ast.MatMult: ("@", TERM),
    ast.Pow: ("**", POWER),
}  # fmt: skip
UNARY: dict[type[ast.unaryop], tuple[str, int]] = {
    ast.Not: ("not ", NOT), ast.USub: ("-", FACTOR), ast.UAdd: ("+", FACTOR), ast.Invert: ("~", FACTOR),
}  # fmt: skip
"""Operators as they are written, with how strongly they bind."""
COMPARED: dict[type[ast.cmpop], str] = {
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Is: "is",
    ast.IsNot: "is not", ast.In: "in", ast.NotIn: "not in",
}  # fmt: skip


def strength_of(node: ast.expr) -> int:
    """Return how strongly an expression binds its parts."""
    if isinstance(node, ast.BinOp):
        return BINARY[type(node.op)][1]
    if isinstance(node, ast.UnaryOp):
        return UNARY[type(node.op)][1]
    if isinstance(node, ast.BoolOp):
        return OR if isinstance(node.op, ast.Or) else AND
    return _OTHERS.get(type(node), ATOM)


_OTHERS: dict[type[ast.expr], int] = {ast.IfExp: TEST, ast.Yield: TEST, ast.Lambda: LAMBDA, ast.Compare: COMPARE}
