"""Search, check and calls of plugins."""

from __future__ import annotations

import ast
import hashlib
import importlib.metadata
import importlib.util
import inspect
import logging
import os
import sys
import traceback
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError
from nnpipe.core.messages import suggest_name

PROCESS_DATASET = "process_dataset"
LOAD_TEST_DATA = "load_test_data"
PROCESS_MODEL_OUTPUT = "process_model_output"

SIGNATURES: dict[str, tuple[tuple[str, ...], ...]] = {
    PROCESS_DATASET: (("x", "y"),),
    LOAD_TEST_DATA: (("path",),),
    PROCESS_MODEL_OUTPUT: (
        ("model_input", "model_output"),
        ("model_input", "expected_output", "model_output"),
    ),
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


def find_problems(source: bytes, file: str, needed: Collection[str] = ()) -> list[PluginProblem]:
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
    check_call(find_problems, locals())
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = f" in line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        return [
            PluginProblem(
                file, "the file", "Python", f"{getattr(error, 'msg', None) or error}{line}"
            )
        ]
    defined: dict[str, ast.stmt] = {}
    for statement in tree.body:
        for name in _list_bound_names(statement):
            defined[name] = statement
    found = []
    for function, forms in SIGNATURES.items():
        expected = " or ".join(f"def {function}({', '.join(form)})" for form in forms)
        statement_of = defined.get(function)
        if statement_of is None:
            if function in needed:
                found.append(PluginProblem(file, function, expected, "no such function"))
        elif fault := _find_fault(statement_of, forms):
            found.append(PluginProblem(file, function, expected, fault))
    if not needed and not found and not any(name in defined for name in SIGNATURES):
        found.append(
            PluginProblem(file, "the file", "one of " + ", ".join(SIGNATURES), "none of them")
        )
    return found


def _list_bound_names(statement: ast.stmt) -> list[str]:
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return [statement.name]
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        return [alias.asname or alias.name for alias in statement.names]
    return [
        node.id
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    ]


def _find_fault(statement: ast.stmt, forms: tuple[tuple[str, ...], ...]) -> str:
    line = f"line {statement.lineno}"
    if not isinstance(statement, ast.FunctionDef):
        kind = (
            "an async function"
            if isinstance(statement, ast.AsyncFunctionDef)
            else "something else of that name"
        )
        return f"{kind} in {line}"
    if statement.decorator_list:
        return f"a decorated function in {line}, whose parameters cannot be known"
    if any(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in _list_own_nodes(statement)):
        return f"a generator in {line}, which gives nothing back"
    given = statement.args
    shown = f"({ast.unparse(given)}) in {line}"
    if given.posonlyargs:
        return f"{shown}: parameters before / cannot be given by name"
    named = [parameter.arg for parameter in (*given.args, *given.kwonlyargs)]
    plain = len(given.args) - len(given.defaults)
    free = {parameter.arg for parameter in given.args[plain:]}
    free |= {
        p.arg
        for p, default in zip(given.kwonlyargs, given.kw_defaults, strict=True)
        if default is not None
    }
    for form in forms:
        if set(form) <= set(named) and set(named) - set(form) <= free:
            return ""
    return shown


def _list_own_nodes(function: ast.FunctionDef) -> list[ast.AST]:
    """Return the nodes of a function without those of functions inside it."""
    found: list[ast.AST] = []
    waiting: list[ast.AST] = [*function.body]
    while waiting:
        node = waiting.pop()
        found.append(node)
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            waiting += ast.iter_child_nodes(node)
    return found


ENTRY_POINTS = "nnpipe.functions"
"""Entry-point group of official plugins: ``name = "module"``."""

OUTPUT = "output"
"""Folder into which ``process_model_output`` writes."""

_LIMIT = 1 << 20
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TestData:
    """The result of ``load_test_data``: the data, their number of steps, and the expected output
    if it is known.
    """

    __test__ = False  # not a test class, despite its name

    data: Any
    steps: int
    expected: Any = None


@dataclass(frozen=True)
class Plugin:
    """A checked plugin whose module has been executed; created by :func:`load_plugin`."""

    name: str
    module: ModuleType

    def process_dataset(self, x: Any, y: Any) -> tuple[Any, Any]:
        """Return transformed samples and targets.

        Raises
        ------
        ConfigError
            If the function fails or does not return a pair.
        """
        found = self._call(PROCESS_DATASET, x=x, y=y)
        if not isinstance(found, (tuple, list)) or len(found) != 2:
            raise self._create_result_error(PROCESS_DATASET, "x and y", found)
        return found[0], found[1]

    def load_test_data(self, path: Path) -> TestData:
        """Return test data from a path; the function returns ``data, steps`` or ``data,
        expected_output, steps``.

        Raises
        ------
        ConfigError
            If the function fails or returns something else.
        """
        found = self._call(LOAD_TEST_DATA, path=str(path))
        if not isinstance(found, (tuple, list)) or len(found) not in (2, 3):
            raise self._create_result_error(
                LOAD_TEST_DATA, "data and steps, or data, expected_output and steps", found
            )
        steps = found[-1]
        if not hasattr(steps, "__index__") or isinstance(steps, bool) or int(steps) < 1:
            raise ConfigError(
                f"{self.name}: {LOAD_TEST_DATA} gave {steps!r} steps; expected a whole number "
                f"above zero"
            )
        return TestData(found[0], int(steps), found[1] if len(found) == 3 else None)

    def process_model_output(
        self, model_input: Any, model_output: Any, expected_output: Any = None, *, folder: Path
    ) -> list[Path]:
        """Call the function, which writes into ``output/`` below ``folder``, and return the files
        there.

        The working directory of the whole process changes during the call: call
        this from one thread only.
        """
        (folder / OUTPUT).mkdir(parents=True, exist_ok=True)
        given = {
            "model_input": model_input,
            "model_output": model_output,
            "expected_output": expected_output,
        }
        names = inspect.signature(getattr(self.module, PROCESS_MODEL_OUTPUT)).parameters
        before = Path.cwd()
        os.chdir(folder)
        try:
            self._call(
                PROCESS_MODEL_OUTPUT,
                **{name: value for name, value in given.items() if name in names},
            )
        finally:
            os.chdir(before)
        return sorted(path for path in (folder / OUTPUT).rglob("*") if path.is_file())

    def _call(self, function: str, **given: Any) -> Any:
        try:
            return getattr(self.module, function)(**given)
        except Exception as error:  # any exception is the plugin's fault, reported with its place
            raise ConfigError(f"{self.name}: {function} failed: {_format_error(error)}") from error

    def _create_result_error(self, function: str, expected: str, found: Any) -> ConfigError:
        return ConfigError(
            f"{self.name}: {function} gave {type(found).__name__}; expected it to return {expected}"
        )


def load_plugin(name: str, needed: Collection[str] = (), sha256: str = "") -> Plugin:
    """Check a plugin, then run its code.

    Parameters
    ----------
    name
        A file that ends in ``.py``, or the name of an installed plugin.
    needed
        Functions that it must define.
    sha256
        SHA-256 of the content that was checked before; other content is not run.

    Raises
    ------
    ConfigError
        If the plugin has problems, all in one message before any of its code runs; or if its code
        fails.
    """
    check_call(load_plugin, locals())
    path, source = read_checked_source(name, needed)
    digest = hashlib.sha256(source).hexdigest()
    if sha256 and digest != sha256:
        raise ConfigError(f"plugin {path}: it was changed after it had been looked at; begin again")
    if name.endswith(".py"):
        _log.warning("%s is run as code, with all your rights: use only files that you trust", path)
    module = ModuleType("nnpipe_plugin_" + digest[:16])
    # its functions may be called in another working directory
    module.__file__ = str(path.absolute())
    sys.modules[module.__name__] = module  # dataclasses look up their module there
    try:
        # Runs the checked content, even if the file has changed since.
        exec(compile(source, str(path), "exec"), module.__dict__)
    except Exception as error:
        del sys.modules[module.__name__]
        raise ConfigError(
            f"plugin {path}: running the file failed: {_format_error(error)}"
        ) from error
    return Plugin(str(path), module)


def read_checked_source(name: str, needed: Collection[str] = ()) -> tuple[Path, bytes]:
    """Return a plugin's file and its content after the checks of :func:`load_plugin`; its code
    is not run.
    """
    path = find_plugin_path(name)
    try:
        with open(path, "rb") as handle:
            source = handle.read(_LIMIT + 1)
    except OSError as error:
        raise ConfigError(f"plugin {path}: {error.strerror or error}") from None
    if len(source) > _LIMIT:
        raise ConfigError(f"plugin {path}: larger than the {_LIMIT:,} bytes of a plugin")
    problems = find_problems(source, str(path), needed)
    if problems:
        raise ConfigError("; ".join(map(str, problems)))
    return path, source


def list_official_plugins() -> dict[str, str]:
    """Return the modules of the installed plugins by name."""
    return {
        entry.name: entry.value
        for entry in sorted(importlib.metadata.entry_points(group=ENTRY_POINTS))
    }


def find_plugin_path(name: str) -> Path:
    """Return the file of a plugin.

    Raises
    ------
    ConfigError
        If ``name`` is neither a file nor the name of an installed plugin.
    """
    if name.endswith(".py"):
        return Path(name)
    known = list_official_plugins()
    if name not in known:
        hint = (
            suggest_name(name, known)
            or "; give a file that ends in .py, or the name of an installed plugin"
        )
        raise ConfigError(f"there is no plugin {name!r}{hint}")
    try:
        spec = importlib.util.find_spec(known[name])
    except (ImportError, ValueError) as error:
        raise ConfigError(f"plugin {name!r}: {known[name]} cannot be found: {error}") from None
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        raise ConfigError(f"plugin {name!r}: {known[name]} is not a Python file")
    return Path(spec.origin)


def _format_error(error: Exception) -> str:
    places = traceback.extract_tb(error.__traceback__)
    line = f" (line {places[-1].lineno} of {Path(places[-1].filename).name})" if places else ""
    return f"{type(error).__name__}: {error}{line}"
