"""Values while a script is written: known ones are themselves, the others are the expressions that will give them."""

from __future__ import annotations

import ast
import builtins
import math
from collections.abc import Iterator
from dataclasses import dataclass
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from nnpipe.codegen.syntax import call, literal, name


class Untranslatable(Exception):
    """What is to be written out does something that cannot be foreseen here; a wider form may do."""


@dataclass(frozen=True, eq=False)
class Expression:
    """What is known only when the script runs.

    Attributes
    ----------
    node
        The expression.
    shape
        Its shape if it is a tensor of a known number of axes, ``None`` for an extent that is not known.
    live
        The ``torch.nn`` module or parameter that it will be, made for the occasion.
    """

    node: ast.expr
    shape: tuple[int | None, ...] | None = None
    live: Any = None

    def __bool__(self) -> bool:
        raise Untranslatable("a branch depends on a tensor")

    def __iter__(self) -> Iterator[Any]:
        raise Untranslatable("a loop goes over a tensor")

    def __eq__(self, other: object) -> bool:
        raise Untranslatable("a comparison depends on a tensor")

    def __hash__(self) -> int:
        raise Untranslatable("a tensor as a key")

    def __index__(self) -> int:
        raise Untranslatable("a number depends on a tensor")

    @property
    def is_atomic(self) -> bool:
        """Whether it costs nothing to compute it twice."""
        node = self.node
        while isinstance(node, ast.Attribute) or (
            isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant)
        ):
            node = node.value
        return isinstance(node, (ast.Name, ast.Constant))


@dataclass(frozen=True, eq=False)
class ModuleValue(Expression):
    """The module of a layer, whose parts may stand elsewhere: ``core`` says where the one with the weights is."""

    core: ast.expr | None = None


@dataclass(frozen=True, eq=False)
class Method(Expression):
    """A method of a tensor, or another attribute that is not known before."""

    owner: Expression | None = None


def is_known(value: Any) -> bool:
    """Return whether nothing in a value has to wait for the script to run."""
    if isinstance(value, (tuple, list)):
        return all(map(is_known, value))
    if isinstance(value, dict):
        return all(map(is_known, value.values()))
    return not isinstance(value, Expression)


def lift(value: Any) -> ast.expr:
    """Return the expression of a value.

    Raises
    ------
    Unforeseen
        If it has none.
    """
    if isinstance(value, Expression):
        return value.node
    if isinstance(value, float) and not math.isfinite(value):
        return call(name("float"), literal(str(value)))
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
        return name(title)
    raise Untranslatable(f"{type(value).__name__} cannot be written out")


def of_torch(value: Any) -> bool:
    """Return whether a value is PyTorch itself, or a module below it."""
    return isinstance(value, ModuleType) and value.__name__.partition(".")[0] == "torch"


def is_python(value: Any) -> bool:
    """Return whether a value is a function of nnpipe."""
    function = getattr(value, "__func__", value)
    return isinstance(function, FunctionType) and str(function.__module__).partition(".")[0] != "torch"
