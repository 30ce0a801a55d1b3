"""Who may import whom: down only, as the table in ``docs/architecture.md`` says."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "nnpipe"
ASIDE = {"testing": {"core", "protocols"}}
"""Packages beside the table: what each may import, while nothing may import them."""

CORE_MAY_IMPORT = sys.stdlib_module_names | {"numpy", "nnpipe"}


@dataclass(frozen=True)
class Import:
    """A module of nnpipe, what it imports, and where."""

    importer: str
    imported: str
    place: str


def layer_table(page: Path = ROOT / "docs" / "architecture.md") -> dict[str, int]:
    """Read the table: a level, then packages; ``nnpipe`` itself may be imported by all."""
    block = page.read_text("utf-8").partition("```text layers\n")[2].partition("```")[0]
    table = {}
    for line in block.splitlines():
        level, *packages = line.split()
        table |= dict.fromkeys(packages, int(level))
    assert table, f"{page} has no block that starts with ```text layers"
    return table


def modules(source: Path) -> dict[str, Path]:
    """Find every module below a package's folder, by dotted name."""
    found = {}
    for path in sorted(source.rglob("*.py")):
        parts = path.relative_to(source.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(source: Path) -> Iterator[Import]:
    """Find every import of a module of this package in it: at the top, in a function, or for types only."""
    known = modules(source)
    for module, path in known.items():
        package = module if path.name == "__init__.py" else module.rpartition(".")[0]
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            for name in _imported(node, package, known):
                if name.partition(".")[0] == source.name:
                    yield Import(module, name, f"{path.relative_to(source.parent)}:{node.lineno}")


def _imported(node: ast.AST, package: str, known: dict[str, Path]) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            outer = package.split(".")[: len(package.split(".")) - node.level + 1]
            base = ".".join([*outer, *filter(None, [node.module])])
        # `from nnpipe import measure` names a package, `from nnpipe import __version__` does not.
        return [f"{base}.{alias.name}" if f"{base}.{alias.name}" in known else base for alias in node.names]
    if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if called in ("import_module", "__import__") and isinstance(node.args[0].value, str):
            return [node.args[0].value]
    return []


def layer_of(module: str) -> str:
    """Name the layer of a module: its package, or the module's own name where it lies in the root."""
    return [*module.split("."), ""][1]


def faults(source: Path, table: dict[str, int]) -> list[str]:
    """List the imports that the table forbids."""
    found = []
    for item in imports(source):
        here, there = layer_of(item.importer), layer_of(item.imported)
        if not there or here == there:
            continue
        if here in ASIDE:
            allowed = there in ASIDE[here]
        elif here in table and there in table:
            allowed = table[there] < table[here]
        else:
            # The root's own modules (__main__) stand above everything.
            allowed = here == "__main__" and there in table
        if not allowed:
            found.append(f"{item.place}: {here or 'nnpipe'} may not import {there}")
    return found


def heavy_imports_of_core(source: Path) -> list[str]:
    """List the imports of the core that are neither the standard library nor numpy."""
    found = []
    for module, path in modules(source / "core").items():
        for node in _executed(ast.parse(path.read_text("utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or "nnpipe"]
            found += [f"{module}: {name}" for name in names if name.partition(".")[0] not in CORE_MAY_IMPORT]
    return found


def _executed(tree: ast.Module) -> Iterator[ast.Import | ast.ImportFrom]:
    """Find all imports, in functions too, but not those that only a type checker sees."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield node
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            waiting += node.orelse
        else:
            waiting += ast.iter_child_nodes(node)


def test_imports_go_down_only() -> None:
    assert faults(SOURCE, layer_table()) == []


def test_the_table_names_every_package_and_no_other() -> None:
    packages = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert packages == {*layer_table(), *ASIDE}


def test_the_core_stands_on_the_standard_library_and_numpy() -> None:
    assert heavy_imports_of_core(SOURCE) == []


# -- what these tests would notice ------------------------------------------------------------


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    source = tmp_path / "nnpipe"
    for package in ("core", "measure", "datasets", "runtimes", "scenarios", "testing"):
        (source / package).mkdir(parents=True)
        (source / package / "__init__.py").touch()
    (source / "__init__.py").touch()
    return source


TABLE = {"core": 0, "measure": 1, "datasets": 3, "runtimes": 3, "scenarios": 4}


@pytest.mark.parametrize(
    ("module", "line", "fault"),
    [
        ("core/a.py", "import nnpipe.measure.run", "core may not import measure"),
        ("datasets/a.py", "def f():\n    from nnpipe.runtimes import x", "datasets may not import runtimes"),
        ("datasets/a.py", "from nnpipe import runtimes", "datasets may not import runtimes"),
        ("datasets/a.py", "from ..runtimes.x import y", "datasets may not import runtimes"),
        ("datasets/a.py", "from .. import runtimes", "datasets may not import runtimes"),
        ("measure/a.py", "from nnpipe.workflows.candidates.stages import z", "measure may not import workflows"),
        ("measure/a.py", "from importlib import import_module\nimport_module('nnpipe.testing.x')", "import testing"),
        ("testing/a.py", "from nnpipe.measure import run", "testing may not import measure"),
        ("__init__.py", "from nnpipe.core import errors", "nnpipe may not import core"),
        ("core/a.py", "if TYPE_CHECKING:\n    from nnpipe.measure import run", "core may not import measure"),
        ("scenarios/a.py", "import nnpipe.newcomer.x", "scenarios may not import newcomer"),
    ],
)
def test_a_forbidden_import_is_noticed(tree: Path, module: str, line: str, fault: str) -> None:
    (tree / module).write_text(line + "\n", "utf-8")
    (found,) = faults(tree, TABLE)
    assert fault in found
    assert module.rpartition("/")[2] in found


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("measure/a.py", "from nnpipe.core.errors import NNPipeError"),
        ("scenarios/a.py", "from nnpipe.datasets import x\nfrom ..measure import run\nfrom nnpipe import __version__"),
        ("testing/a.py", "from nnpipe.core import x\nfrom nnpipe.testing.b import y"),
        ("__main__.py", "from nnpipe.scenarios._cli.index import scenarios"),
        ("core/a.py", "import numpy, json\nfrom nnpipe import __version__"),
    ],
)
def test_an_allowed_import_passes(tree: Path, module: str, line: str) -> None:
    (tree / module).write_text(line + "\n", "utf-8")
    assert faults(tree, TABLE) == []
    assert heavy_imports_of_core(tree) == []


@pytest.mark.parametrize("line", ["import torch", "def f():\n    import yaml", "from psutil import cpu_count"])
def test_a_heavy_import_in_the_core_is_noticed(tree: Path, line: str) -> None:
    (tree / "core" / "a.py").write_text(line + "\n", "utf-8")
    assert len(heavy_imports_of_core(tree)) == 1
