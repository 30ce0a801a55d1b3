"""Values during partial evaluation: known values are themselves, others are expressions of the
script.
"""

from __future__ import annotations

import ast
import builtins
import math
from collections.abc import Iterator
from dataclasses import dataclass
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from nnpipe.codegen.syntax import build_name, call, literal


class Untranslatable(Exception):
    """An error about code that partial evaluation cannot handle; the caller may try a more
    general form.
    """


@dataclass(frozen=True, eq=False)
class Expression:
    """A value that is only known when the script runs.

    Attributes
    ----------
    node
        The expression that computes the value.
    shape
        Shape of a tensor, with ``None`` for each unknown extent; ``None`` if the number of axes is
        not known.
    live
        A ``torch.nn`` module or a parameter like the one that the script will have; ``None`` for
        other values.
    """

    node: ast.expr
    shape: tuple[int | None, ...] | None = None
    live: Any = None

    def __bool__(self) -> bool:
        raise Untranslatable("a branch depends on a tensor")

    def __iter__(self) -> Iterator[Any]:
        raise Untranslatable("a loop iterates over a tensor")

    def __eq__(self, other: object) -> bool:
        raise Untranslatable("a comparison depends on a tensor")

    def __hash__(self) -> int:
        raise Untranslatable("a tensor is used as a key")

    def __index__(self) -> int:
        raise Untranslatable("a number depends on a tensor")

    @property
    def is_atomic(self) -> bool:
        """Whether the expression is so cheap that it may be computed twice."""
        node = self.node
        while isinstance(node, ast.Attribute) or (
            isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant)
        ):
            node = node.value
        return isinstance(node, (ast.Name, ast.Constant))


@dataclass(frozen=True, eq=False)
class ModuleValue(Expression):
    """The module of a layer; ``core`` is the expression of its part with the weights."""

    core: ast.expr | None = None


@dataclass(frozen=True, eq=False)
class Method(Expression):
    """A method of a tensor, or another attribute that is only known when the script runs."""

    owner: Expression | None = None


def is_known(value: Any) -> bool:
    """Return whether a value, with everything in it, is known before the script runs."""
    if isinstance(value, (tuple, list)):
        return all(map(is_known, value))
    if isinstance(value, dict):
        return all(map(is_known, value.values()))
    return not isinstance(value, Expression)


def lift(value: Any) -> ast.expr:
    """Return the expression of a value.

    Raises
    ------
    Untranslatable
        If the value cannot be written as code.
    """
    if isinstance(value, Expression):
        return value.node
    if isinstance(value, float) and not math.isfinite(value):
        return call(build_name("float"), literal(str(value)))
    if value is None or isinstance(value, (bool, int, float, str)):
        return literal(value)
    if isinstance(value, tuple):
        return ast.Tuple([lift(item) for item in value], ast.Load())
    if isinstance(value, list):
        return ast.List([lift(item) for item in value], ast.Load())
    if isinstance(value, dict):
        return ast.Dict([lift(key) for key in value], [lift(item) for item in value.values()])
    title = str(getattr(value, "__name__", ""))
    if isinstance(value, (BuiltinFunctionType, type)) and getattr(builtins, title, None) is value:
        return build_name(title)
    raise Untranslatable(f"{type(value).__name__} cannot be written as code")


def is_torch_module(value: Any) -> bool:
    """Return whether a value is the module ``torch`` or a module below it."""
    return isinstance(value, ModuleType) and value.__name__.partition(".")[0] == "torch"


def is_python(value: Any) -> bool:
    """Return whether a value is a Python function or method that PyTorch does not define."""
    function = getattr(value, "__func__", value)
    return (
        isinstance(function, FunctionType) and str(function.__module__).partition(".")[0] != "torch"
    )
