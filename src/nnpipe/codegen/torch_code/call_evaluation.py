"""Partial evaluation of calls."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import reduce
from types import MethodType
from typing import Any

from nnpipe.codegen.torch_code import shapes
from nnpipe.codegen.torch_code.operator_evaluation import BINARY, attribute_of, combine
from nnpipe.codegen.torch_code.scope import Scope
from nnpipe.codegen.torch_code.sources import Closure, closure_of
from nnpipe.codegen.torch_code.values import Expression, Method, Untranslatable, is_known, is_python, lift

_OPERATORS = {function: kind for kind, function in BINARY.items()}
# Functions that accept containers with values that are not known yet.
_STRUCTURAL = (
    zip, reversed, enumerate, tuple, list, range, len, dict, any, all, max, min, sum, sorted, isinstance, next,
)  # fmt: skip


def called(function: Any, given: list[Any], named: dict[str, Any], scope: Scope) -> Any:
    """Return the result of a call, or the expression of the call if the result is not known.

    Raises
    ------
    Untranslatable
        If the call depends on a tensor in a way that cannot be written as code.
    """
    if isinstance(function, Expression):
        if _drops_nothing(function, given):
            return given[0]
        if isinstance(function, Method) and _moves_nothing(function, given):
            return function.owner
        keywords = [ast.keyword(key, lift(value)) for key, value in named.items()]
        args = [lift(value) for value in given]
        return Expression(ast.Call(function.node, args, keywords), shape=shapes.of_call(function, given, named))
    if function in _OPERATORS and not named:
        return combine(_OPERATORS[function](), *given)
    if function is getattr and len(given) == 2 and isinstance(given[1], str):
        return attribute_of(given[0], given[1])
    if function is reduce:
        return reduce(lambda a, b: called(given[0], [a, b], {}, scope), *given[1:])
    if isinstance(function, Closure):
        return scope.inline(function, given, named, scope)
    if is_python(function):
        known = is_known(given) and is_known(named) and not any(isinstance(v, Closure) for v in given)
        return function(*given, **named) if known else scope.inline(closure_of(function), given, named, scope)
    if is_known(given) and is_known(named):
        return function(*given, **named)
    if function in _STRUCTURAL or isinstance(function, MethodType):
        return _structural(function, given, named)
    method = getattr(function, "__self__", None)
    if isinstance(method, (list, dict, tuple)):
        return function(*given, **named)
    return Expression(
        ast.Call(lift(function), [lift(v) for v in given], [ast.keyword(k, lift(v)) for k, v in named.items()])
    )


def _drops_nothing(function: Expression, given: list[Any]) -> bool:
    """Return whether a call is ``F.dropout`` with a rate of 0."""
    return ast.unparse(function.node) == "F.dropout" and len(given) > 1 and is_known(given[1]) and given[1] == 0


def _moves_nothing(function: Method, given: list[Any]) -> bool:
    """Return whether a call is ``movedim`` from an axis to itself."""
    moves = isinstance(function.node, ast.Attribute) and function.node.attr == "movedim"
    return moves and len(given) == 2 and is_known(given) and given[0] == given[1]


def _structural(function: Any, given: list[Any], named: dict[str, Any]) -> Any:
    try:
        found = function(*given, **named)
        return list(found) if isinstance(found, Iterator) else found
    except (TypeError, Untranslatable):
        if function in (max, min, len, range, list, tuple, sum):
            return Expression(ast.Call(lift(function), [lift(v) for v in given], []))
        raise Untranslatable(f"{function} of a tensor") from None
