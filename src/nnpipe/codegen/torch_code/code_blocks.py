"""Containers of generated code: the statements of a function, the definitions of a script, and
the names in use.
"""

from __future__ import annotations

import ast
import builtins
import copy
import inspect
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from types import CodeType, FunctionType, MethodType
from typing import Any, TypeAlias

from nnpipe.codegen.syntax import assign, is_name
from nnpipe.codegen.torch_code.values import Expression, Untranslatable


@dataclass
class Names:
    """The names in use in one scope."""

    taken: set[str] = field(default_factory=set)

    def fresh(self, wanted: str) -> str:
        """Return an unused name that resembles ``wanted``, and mark it as used; equal calls give
        equal names.
        """
        # Python mangles names in classes that start with two underscores.
        stem = re.sub(r"[^a-zA-Z0-9]+", "_", wanted)
        stem = stem if stem.strip("_") else f"{stem}value"
        stem = stem if not stem[0].isdigit() else f"_{stem}"
        found, number = stem, 1
        while found in self.taken or not is_name(found):
            number += 1
            found = f"{stem}_{number}"
        self.taken.add(found)
        return found


@dataclass
class Script:
    """The functions and classes of a script that networks need, in order, and the imports by
    module and name.
    """

    names: Names = field(default_factory=Names)
    definitions: dict[str, ast.stmt] = field(default_factory=dict)
    imports: dict[tuple[str, str], ast.ImportFrom] = field(default_factory=dict)

    def import_name(self, module: str, title: str) -> ast.Name:
        """Add the import of a function or class of an installed package, and return its name in the
        script.

        It is imported under another name if its own is taken.
        """
        if (module, title) not in self.imports:
            fresh = self.names.fresh(title)
            self.imports[module, title] = ast.ImportFrom(
                module, [ast.alias(title, fresh if fresh != title else None)], 0
            )
        (alias,) = self.imports[module, title].names
        return ast.Name(alias.asname or alias.name, ast.Load())

    def save_state(self) -> tuple[set[str], dict[str, ast.stmt]]:
        """Return a copy of the present state for :meth:`restore_state`."""
        return set(self.names.taken), dict(self.definitions)

    def restore_state(self, mark: tuple[set[str], dict[str, ast.stmt]]) -> None:
        """Restore the state of a mark, to remove the traces of a failed attempt."""
        self.names.taken, self.definitions = set(mark[0]), dict(mark[1])

    def define(self, wanted: str, made: ast.FunctionDef | ast.ClassDef) -> str:
        """Add a definition and return its name; an equal definition that exists already is used
        again.
        """
        for known, node in self.definitions.items():
            made.name = known
            if ast.dump(made) == ast.dump(node):
                return known
        made.name = self.names.fresh(wanted)
        self.definitions[made.name] = made
        return made.name


@dataclass
class CodeBlock:
    """The statements of one function."""

    names: Names = field(default_factory=Names)
    statements: list[ast.stmt] = field(default_factory=list)

    def save_state(self) -> tuple[set[str], int]:
        """Return the present state for :meth:`restore_state`."""
        return set(self.names.taken), len(self.statements)

    def restore_state(self, mark: tuple[set[str], int]) -> None:
        """Restore the state of a mark."""
        self.names.taken = set(mark[0])
        del self.statements[mark[1] :]

    def bind(self, value: Expression, wanted: str) -> Expression:
        """Add the assignment of a value to a new name, and return the name; return an atomic
        value itself.
        """
        if value.is_atomic:
            return value
        found = self.names.fresh(wanted)
        self.statements.append(assign(found, value.node))
        return Expression(ast.Name(found, ast.Load()), value.shape, value.live)


class NoSource(Exception):
    """An error about a function whose source code is missing or ambiguous."""


@dataclass(frozen=True, eq=False)
class Closure:
    """A function as a syntax tree, with the values of the names that it uses from its
    surroundings.
    """

    node: ast.FunctionDef | ast.Lambda
    around: Mapping[str, Any]
    globals: Mapping[str, Any]
    name: str
    first: tuple[Any, ...] = ()
    """First arguments that are bound already, such as ``self``."""


def read_closure(function: FunctionType | MethodType) -> Closure:
    """Return a Python function as a syntax tree with its surroundings.

    Raises
    ------
    NoSource
        If the source code of the function is missing or ambiguous.
    """
    first: tuple[Any, ...] = ()
    if isinstance(function, MethodType):
        first, function = (function.__self__,), function.__func__  # type: ignore[assignment]
    assert isinstance(function, FunctionType)
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    around = {name: cell.cell_contents for name, cell in cells}
    return Closure(
        _find_function_node(function.__code__),
        around,
        function.__globals__,
        function.__name__,
        first,
    )


@cache
def _find_function_node(code: CodeType) -> ast.FunctionDef | ast.Lambda:
    found = [
        node
        for node in _parse_functions(code.co_filename).get(code.co_firstlineno, ())
        if _is_of(node, code)
    ]
    if len({ast.dump(node) for node in found}) != 1:
        raise NoSource(f"{code.co_name} in {code.co_filename}, line {code.co_firstlineno}")
    return found[0]


@cache
def _parse_functions(path: str) -> dict[int, list[ast.FunctionDef | ast.Lambda]]:
    try:
        with open(path, encoding="utf-8") as file:
            tree = ast.parse(file.read())
    except (OSError, SyntaxError) as error:
        raise NoSource(f"{path}: {error}") from None
    found: dict[int, list[ast.FunctionDef | ast.Lambda]] = {}
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.Lambda)):
            line = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])
            found.setdefault(line, []).append(node)
    return found


def _is_of(node: ast.FunctionDef | ast.Lambda, code: CodeType) -> bool:
    """Return whether a tree belongs to a code object at the same line; a line may hold several
    lambdas.
    """
    if (getattr(node, "name", None) or "<lambda>") != code.co_name:
        return False
    count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & inspect.CO_VARARGS)
    if [argument.arg for argument in list_parameters(node)] != list(code.co_varnames[:count]):
        return False
    names = {item.id for item in ast.walk(node) if isinstance(item, ast.Name)}
    outer = {*code.co_names, *code.co_freevars}
    return isinstance(node, ast.FunctionDef) or outer - _find_attribute_names(node) <= names


def list_parameters(node: ast.FunctionDef | ast.Lambda) -> list[ast.arg]:
    """Return the parameters of a function, in the order of code objects."""
    given = node.args
    return [
        *given.posonlyargs,
        *given.args,
        *given.kwonlyargs,
        *([given.vararg] if given.vararg else []),
    ]


def _find_attribute_names(node: ast.AST) -> set[str]:
    return {item.attr for item in ast.walk(node) if isinstance(item, ast.Attribute)}


Inline: TypeAlias = "Callable[[Closure, list[Any], Mapping[str, Any], Scope], Any]"


@dataclass(frozen=True)
class Scope:
    """The scope in which an expression is evaluated.

    ``block`` receives statements that must come before the expression.  It is
    ``None`` where no statement is possible, such as in a branch of an expression.
    ``inline`` returns the result of a call of a Python function.
    """

    local: Mapping[str, Any]
    closure: Closure
    script: Script
    block: CodeBlock | None
    inline: Inline

    def value(self, name: str) -> Any:
        """Return the value of a name; raise :class:`Untranslatable` if it is not known."""
        for values in (self.local, self.closure.around, self.closure.globals, vars(builtins)):
            if name in values:
                return values[name]
        raise Untranslatable(f"{name} is not known")

    def inner(self, local: Mapping[str, Any]) -> Scope:
        """Return the scope with further local names, in which no statements can be added."""
        return replace(self, local={**self.local, **local}, block=None)


_WIDTH = 72
_NUMBERED = re.compile(r"([a-z]+)_\d+")


def remove_intermediate_names(
    statements: list[ast.stmt], kept: Collection[str] = ()
) -> list[ast.stmt]:
    """Return statements without unnecessary intermediate names.

    Parameters
    ----------
    statements
        The body of a function, in which each name except those in ``kept`` is assigned once.
    kept
        Names that stay, because they are informative or are assigned again.
    """
    found: list[ast.stmt] = []
    uses = Counter(n.id for s in statements for n in ast.walk(s) if isinstance(n, ast.Name))
    for statement in statements:
        while (
            found and (shorter := _merge_statements(found[-1], statement, kept, uses)) is not None
        ):
            found.pop()
            statement = shorter
        found.append(statement)
    return _renumber_names(found, kept)


def _renumber_names(statements: list[ast.stmt], kept: Collection[str]) -> list[ast.stmt]:
    """Return statements in which numbered names that remain have the lowest free numbers."""
    names = {n.id for s in statements for n in ast.walk(s) if isinstance(n, ast.Name)}
    passing: list[str] = []
    for statement in statements:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            name = statement.targets[0].id
            if name not in kept and name not in passing and _NUMBERED.fullmatch(name):
                passing.append(name)
    taken, renamed = names.difference(passing), {}
    for name in passing:
        match = _NUMBERED.fullmatch(name)
        assert match is not None
        stem, number = match[1], 1
        title = stem
        while title in taken:
            number += 1
            title = f"{stem}_{number}"
        taken.add(title)
        renamed[name] = title
    return [_NameReplacer(renamed).visit(statement) for statement in statements]


class _NameReplacer(ast.NodeTransformer):
    def __init__(self, renamed: dict[str, str]) -> None:
        self.renamed = renamed

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(self.renamed.get(node.id, node.id), node.ctx)


def _merge_statements(
    first: ast.stmt, second: ast.stmt, kept: Collection[str], uses: Counter[str]
) -> ast.stmt | None:
    """Return the second statement with the value of the first one in it; ``None`` if they cannot
    be joined.
    """
    if not (
        isinstance(first, ast.Assign)
        and len(first.targets) == 1
        and isinstance(first.targets[0], ast.Name)
    ):
        return None
    name = first.targets[0].id
    if (
        name in kept
        or uses[name] != 2
        or not isinstance(second, (ast.Assign, ast.Return))
        or second.value is None
    ):
        return None
    if not any(isinstance(node, ast.Name) and node.id == name for node in ast.walk(second.value)):
        return None
    value = _ValueInserter(name, first.value).visit(copy.deepcopy(second.value))
    if len(ast.unparse(value)) > _WIDTH:
        return None
    return (
        ast.Return(value) if isinstance(second, ast.Return) else ast.Assign(second.targets, value)
    )


class _ValueInserter(ast.NodeTransformer):
    def __init__(self, name: str, value: ast.expr) -> None:
        self.name, self.value = name, value

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self.value if node.id == self.name else node

    def visit_Lambda(self, node: ast.Lambda) -> ast.expr:
        return node
