"""Small faults that one can plant in a source file: a comparison flipped, a number changed, a
returned value dropped.

A mutation replaces one expression of a function's body, or one ``return``.
What stands in annotations, default values, decorators and formatted strings is
left alone, as is what is executed on import: no test can be named for it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
}


@dataclass(frozen=True)
class Mutation:
    """One replacement in a source file."""

    kind: str
    lines: range
    """The lines, from 1, one of which is executed when the mutated code is."""
    start: int
    """The first byte that is replaced."""
    end: int
    """The first byte that is kept again."""
    new: str

    def apply(self, source: bytes) -> bytes:
        """Return the source with this fault in it."""
        return source[: self.start] + self.new.encode() + source[self.end :]


def mutations_of(source: bytes) -> list[Mutation]:
    """Return every mutation of a source file, in the order of its text."""
    begins = [0]
    for line in source.splitlines(keepends=True):
        begins.append(begins[-1] + len(line))
    found = []
    for statement, node in _within_functions(ast.parse(source)):
        for kind, new in _changes(node):
            start = begins[node.lineno - 1] + node.col_offset
            assert node.end_lineno is not None
            assert node.end_col_offset is not None
            end = begins[node.end_lineno - 1] + node.end_col_offset
            found.append(
                Mutation(kind, range(statement.lineno, node.end_lineno + 1), start, end, new)
            )
    return sorted(found, key=lambda mutation: (mutation.start, mutation.end, mutation.kind))


def _within_functions(tree: ast.AST) -> Iterator[tuple[ast.stmt, ast.expr | ast.Return]]:
    """Yield the expressions and returns of all functions' bodies, each with the statement that
    it belongs to.
    """
    for function in ast.walk(tree):
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for statement in function.body:
                yield from _parts(statement, statement)


def _parts(statement: ast.stmt, node: ast.AST) -> Iterator[tuple[ast.stmt, ast.expr | ast.Return]]:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.JoinedStr)):
        return  # a function inside of another has its own turn
    if isinstance(node, (ast.expr, ast.Return)):
        yield statement, node
    for name, value in ast.iter_fields(node):
        if name == "annotation":
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _parts(child if isinstance(child, ast.stmt) else statement, child)


def _changes(node: ast.expr | ast.Return) -> Iterator[tuple[str, str]]:
    """Yield what a node can become: the kind of the fault and the new text."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        other = _COMPARISONS[type(node.ops[0])]()
        yield "comparison", f"({ast.unparse(ast.Compare(node.left, [other], node.comparators))})"
    elif isinstance(node, ast.BoolOp):
        yield "and, or", f"({ast.unparse(ast.BoolOp(_other(node.op), node.values))})"
    elif isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        yield (
            "arithmetic",
            f"({ast.unparse(ast.BinOp(node.left, _ARITHMETIC[type(node.op)](), node.right))})",
        )
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield "negation", f"({ast.unparse(node.operand)})"
    elif isinstance(node, ast.IfExp):
        yield "branch", f"({ast.unparse(ast.IfExp(node.test, node.orelse, node.body))})"
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield "constant", repr(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        yield "constant", repr(node.value + 1)
    elif (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("len", "range")
    ):
        if node.func.id == "len":
            yield "off by one", f"({ast.unparse(node)} - 1)"
        elif not isinstance(node.args[-1], ast.Starred):
            last = ast.BinOp(node.args[-1], ast.Add(), ast.Constant(1))
            yield "off by one", ast.unparse(ast.Call(node.func, [*node.args[:-1], last], []))
    elif isinstance(node, ast.Return) and node.value is not None and not _is_none(node.value):
        yield "return", "return None"


def _other(operator: ast.boolop) -> ast.boolop:
    return ast.Or() if isinstance(operator, ast.And) else ast.And()


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None
