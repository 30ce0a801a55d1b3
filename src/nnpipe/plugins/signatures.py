"""The functions that a plugin may define, and their check in a file without running it."""

from __future__ import annotations

import ast
from collections.abc import Collection
from dataclasses import dataclass

from nnpipe.core.argument_checks import check_call

PROCESS_DATASET = "process_dataset"
LOAD_TEST_DATA = "load_test_data"
PROCESS_MODEL_OUTPUT = "process_model_output"

SIGNATURES: dict[str, tuple[tuple[str, ...], ...]] = {
    PROCESS_DATASET: (("x", "y"),),
    LOAD_TEST_DATA: (("path",),),
    PROCESS_MODEL_OUTPUT: (("model_input", "model_output"), ("model_input", "expected_output", "model_output")),
}
"""Parameters by function; the longer of two forms also takes the expected output."""


@dataclass(frozen=True)
class PluginProblem:
    """Why a function of a file cannot be used."""

    file: str
    function: str
    expected: str
    found: str

    def __str__(self) -> str:
        return f"{self.file}: {self.function}: expected {self.expected}, found {self.found}"


def problems_of(source: bytes, file: str, needed: Collection[str] = ()) -> list[PluginProblem]:
    """Return everything that is wrong with a plugin's source, without running it.

    Parameters
    ----------
    source
        The file's content.
    file
        Its name, for messages.
    needed
        Functions that must exist; others are checked if they exist.

    Returns
    -------
    list of PluginProblem
        Empty if nnpipe can call every function with all parameters by name.
    """
    check_call(problems_of, locals())
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = f" in line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        return [PluginProblem(file, "the file", "Python", f"{getattr(error, 'msg', None) or error}{line}")]
    defined: dict[str, ast.stmt] = {}
    for statement in tree.body:
        for name in _bound(statement):
            defined[name] = statement
    found = []
    for function, forms in SIGNATURES.items():
        expected = " or ".join(f"def {function}({', '.join(form)})" for form in forms)
        statement_of = defined.get(function)
        if statement_of is None:
            if function in needed:
                found.append(PluginProblem(file, function, expected, "no such function"))
        elif fault := _fault(statement_of, forms):
            found.append(PluginProblem(file, function, expected, fault))
    if not needed and not found and not any(name in defined for name in SIGNATURES):
        found.append(PluginProblem(file, "the file", "one of " + ", ".join(SIGNATURES), "none of them"))
    return found


def _bound(statement: ast.stmt) -> list[str]:
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return [statement.name]
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        return [alias.asname or alias.name for alias in statement.names]
    return [node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]


def _fault(statement: ast.stmt, forms: tuple[tuple[str, ...], ...]) -> str:
    line = f"line {statement.lineno}"
    if not isinstance(statement, ast.FunctionDef):
        kind = "an async function" if isinstance(statement, ast.AsyncFunctionDef) else "something else of that name"
        return f"{kind} in {line}"
    if statement.decorator_list:
        return f"a decorated function in {line}, whose parameters cannot be known"
    if any(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in _own(statement)):
        return f"a generator in {line}, which gives nothing back"
    given = statement.args
    shown = f"({ast.unparse(given)}) in {line}"
    if given.posonlyargs:
        return f"{shown}: parameters before / cannot be given by name"
    named = [parameter.arg for parameter in (*given.args, *given.kwonlyargs)]
    plain = len(given.args) - len(given.defaults)
    free = {parameter.arg for parameter in given.args[plain:]}
    free |= {p.arg for p, default in zip(given.kwonlyargs, given.kw_defaults, strict=True) if default is not None}
    for form in forms:
        if set(form) <= set(named) and set(named) - set(form) <= free:
            return ""
    return shown


def _own(function: ast.FunctionDef) -> list[ast.AST]:
    """Return the nodes of a function without those of functions inside it."""
    found: list[ast.AST] = []
    waiting: list[ast.AST] = [*function.body]
    while waiting:
        node = waiting.pop()
        found.append(node)
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            waiting += ast.iter_child_nodes(node)
    return found
