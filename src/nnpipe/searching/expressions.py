"""Expressions over the parameters of a configuration, such as ``optimiser == "sgd"`` or ``units * layers <= 4096``.

They are written as in Python: numbers, texts, ``true``, ``false``, ``null`` and lists; names of parameters, which may
have dots; arithmetic, comparisons, ``in``, ``and``, ``or``, ``not``, and the functions ``min``, ``max``, ``abs``,
``len``.  Nothing else is accepted, and nothing is executed as code.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError

_LONGEST, _DEEPEST = 1000, 50
_GREATEST_POWER = 64.0  # beyond it, whole numbers take more and more memory

_BINARY: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow,
}  # fmt: skip
_UNARY: dict[type, Callable[[Any], Any]] = {ast.UAdd: operator.pos, ast.USub: operator.neg, ast.Not: operator.not_}
_COMPARISONS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.In: lambda a, b: a in b, ast.NotIn: lambda a, b: a not in b,
}  # fmt: skip
_FUNCTIONS: dict[str, Callable[..., Any]] = {"min": min, "max": max, "abs": abs, "len": len}
_WORDS: dict[str, Any] = {"true": True, "false": False, "null": None}


@dataclass(frozen=True)
class SpaceExpression:
    """A checked expression.

    Parameters
    ----------
    text
        As it was written.
    names
        The names of the parameters in it.

    Raises
    ------
    ConfigError
        If the text is no expression, or has parts that are not accepted.
    """

    text: str
    names: frozenset[str] = field(init=False, compare=False)
    _tree: ast.expr = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_call(SpaceExpression, vars(self))
        if len(self.text) > _LONGEST:
            raise ConfigError(f"an expression of {len(self.text):,} characters is too long")
        try:
            tree = ast.parse(self.text.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise ConfigError(f"{self.text!r} is no expression; write for example 'units * layers <= 4096'") from None
        names: set[str] = set()
        self._check(tree, names, 0)
        object.__setattr__(self, "names", frozenset(names))
        object.__setattr__(self, "_tree", tree)

    def value(self, configuration: Mapping[str, Any]) -> Any:
        """Return the value for a configuration that has all the names.

        Raises
        ------
        ConfigError
            If it cannot be computed, for example because a text is divided.
        """
        try:
            return _evaluate(self._tree, configuration)
        except (TypeError, ValueError, ArithmeticError) as error:
            raise ConfigError(f"{self.text!r} cannot be computed: {error}") from None

    def holds(self, configuration: Mapping[str, Any]) -> bool:
        """Return whether the value for a configuration is true; as for :meth:`value`."""
        return bool(self.value(configuration))

    def _check(self, node: ast.expr, names: set[str], depth: int) -> None:
        if depth > _DEEPEST:
            raise ConfigError(f"{self.text!r}: nested more than {_DEEPEST} deep")
        for part in _parts(node, names, self.text):
            self._check(part, names, depth + 1)


def _parts(node: ast.expr, names: set[str], text: str) -> list[ast.expr]:
    """Return the expressions within an accepted one, and add its own name; raise for any other."""
    if isinstance(node, ast.Constant) and (node.value is None or isinstance(node.value, (bool, int, float, str))):
        return []
    if isinstance(node, (ast.Name, ast.Attribute)) and (name := _dotted(node)):
        if name not in _WORDS:
            names.add(name)
        return []
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        return [node.left, node.right]
    if isinstance(node, ast.UnaryOp) and type(node.op) in _UNARY:
        return [node.operand]
    if isinstance(node, ast.BoolOp):
        return node.values
    if isinstance(node, ast.Compare) and all(type(each) in _COMPARISONS for each in node.ops):
        return [node.left, *node.comparators]
    if isinstance(node, (ast.List, ast.Tuple)):
        return node.elts
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
        if node.func.id in _FUNCTIONS:
            return node.args
        raise ConfigError(f"{text!r}: there is no function {node.func.id!r}; there are: {', '.join(_FUNCTIONS)}")
    raise ConfigError(f"{text!r}: {ast.unparse(node)[:60]!r} is not accepted in expressions")


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        before = _dotted(node.value)
        return f"{before}.{node.attr}" if before else ""
    return ""


def _evaluate(node: ast.expr, given: Mapping[str, Any]) -> Any:
    match node:
        case ast.Constant():
            return node.value
        case ast.Name() | ast.Attribute():
            name = _dotted(node)
            return given[name] if name in given else _WORDS[name]
        case ast.BinOp():
            return _computed(type(node.op), _evaluate(node.left, given), _evaluate(node.right, given))
        case ast.UnaryOp():
            return _UNARY[type(node.op)](_evaluate(node.operand, given))
        case ast.BoolOp():
            every = isinstance(node.op, ast.And)
            found: Any = every
            for part in node.values:
                found = _evaluate(part, given)
                if bool(found) != every:
                    break
            return found
        case ast.Compare():
            left = _evaluate(node.left, given)
            for sign, other in zip(node.ops, node.comparators, strict=True):
                right = _evaluate(other, given)
                if not _COMPARISONS[type(sign)](left, right):
                    return False
                left = right
            return True
        case ast.Call(func=ast.Name(id=name)):
            return _FUNCTIONS[name](*(_evaluate(part, given) for part in node.args))
        case ast.List() | ast.Tuple():
            return [_evaluate(part, given) for part in node.elts]
    raise ValueError(ast.unparse(node))


def _computed(sign: type, left: Any, right: Any) -> Any:
    for number in (left, right):
        if not isinstance(number, (int, float)):
            raise ValueError(f"{number!r} is no number")
    if sign is ast.Pow and abs(right) > _GREATEST_POWER:
        raise ValueError(f"a power of {right} is above {_GREATEST_POWER:g}")
    found = _BINARY[sign](left, right)
    # Whole numbers grow without bounds where powers are nested.
    if isinstance(found, complex) or not math.isfinite(found) or abs(found) > 1e300:
        raise ValueError(f"{found} is no finite number")
    return found
