"""Who may import whom: down only, as the table in ``docs/architecture.md`` says."""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "nnpipe"
ASIDE = {"testing": {"core", "protocols", "training", "layers", "codegen", "compilers"}}
"""Packages beside the table: what each may import, while nothing may import them."""

CIRCLES = [
    {f"nnpipe.training.sequences.{name}" for name in ("sequence", "map", "regroup", "reservoir")}
]
"""Circles that are meant: a sequence's methods, such as ``map``, make stages, which are
sequences themselves.
"""

CIRCLES_OF_TYPES = {
    ("nnpipe.codegen.graph", "nnpipe.codegen.description"),
    ("nnpipe.codegen.script_task", "nnpipe.codegen.description"),
    ("nnpipe.codegen.script_task", "nnpipe.codegen.script"),
    ("nnpipe.core.live_model", "nnpipe.core.model"),
    ("nnpipe.experiment.database._tables", "nnpipe.experiment.database.connections"),
    ("nnpipe.layers.graph.shape_inference", "nnpipe.layers.graph.graph"),
    ("nnpipe.measuring.diagnosis", "nnpipe.measuring.run"),
    ("nnpipe.measuring.run_figures", "nnpipe.measuring.run"),
    ("nnpipe.measuring.quality_warnings", "nnpipe.measuring.run"),
    ("nnpipe.modelwrappers.frameworks.pytorch_export", "nnpipe.modelwrappers.frameworks.pytorch"),
    ("nnpipe.modelwrappers.frameworks.pytorch_graph", "nnpipe.modelwrappers.frameworks.pytorch"),
    ("nnpipe.modelwrappers.frameworks.pytorch_profile", "nnpipe.modelwrappers.frameworks.pytorch"),
    ("nnpipe.modelwrappers.frameworks.pytorch_profile", "nnpipe.modelwrappers.frameworks.pytorch"),
    ("nnpipe.modelwrappers.frameworks.pytorch_training", "nnpipe.modelwrappers.frameworks.pytorch"),
    ("nnpipe.modelwrappers.frameworks.pytorch_training", "nnpipe.modelwrappers.frameworks.pytorch"),
    ("nnpipe.training.final_weights", "nnpipe.training.fit"),
}
"""Imports for type checkers alone that close a circle: a part that is handed the whole it
belongs to.
"""

FIRST_OF_ALL = {"nnpipe.core.telemetry"}
"""What `import nnpipe` itself runs, before any other module; it imports nothing of nnpipe."""

CORE_MAY_IMPORT = sys.stdlib_module_names | {"numpy", "nnpipe"}


@dataclass(frozen=True)
class Import:
    """A module of nnpipe, what it imports, and where."""

    importer: str
    imported: str
    place: str
    for_types: bool = False


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


@functools.cache  # to parse all modules takes seconds
def imports(source: Path) -> tuple[Import, ...]:
    """Find every import of a module of this package in it: at the top, in a function, or for
    types only.
    """
    return tuple(_imports(source))


def _imports(source: Path) -> Iterator[Import]:
    known = modules(source)
    for module, path in known.items():
        package = module if path.name == "__init__.py" else module.rpartition(".")[0]
        for node, for_types in _nodes(ast.parse(path.read_text("utf-8"))):
            for name in _imported(node, package, known):
                if name.partition(".")[0] == source.name:
                    yield Import(
                        module, name, f"{path.relative_to(source.parent)}:{node.lineno}", for_types
                    )


def _nodes(tree: ast.Module) -> Iterator[tuple[ast.AST, bool]]:
    """Find all nodes, and whether only a type checker sees each."""
    waiting: list[tuple[ast.AST, bool]] = [(tree, False)]
    while waiting:
        node, hidden = waiting.pop()
        yield node, hidden
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            waiting += [(child, True) for child in node.body] + [
                (child, hidden) for child in node.orelse
            ]
        else:
            waiting += [(child, hidden) for child in ast.iter_child_nodes(node)]


def circles(links: Iterable[tuple[str, str]]) -> list[set[str]]:
    """Find the sets of modules that import each other, directly or by way of others."""
    after: dict[str, set[str]] = {}
    for importer, imported in links:
        after.setdefault(importer, set()).add(imported)

    def reached(start: str) -> set[str]:
        found, waiting = set(), [start]
        while waiting:
            new = after.get(waiting.pop(), set()) - found
            found |= new
            waiting += new
        return found

    reach = {module: reached(module) for module in after}
    found: list[set[str]] = []
    for module in after:
        circle = {other for other in reach[module] if module in reach.get(other, ())}
        if circle and circle not in found:
            found.append(circle)
    return found


def run_time_circles(source: Path) -> list[set[str]]:
    """Find the circles of imports that are carried out, inside functions too."""
    known = modules(source)
    links = [
        (i.importer, i.imported) for i in imports(source) if not i.for_types and i.imported in known
    ]
    return circles(link for link in links if source.name not in link and link[0] != link[1])


def circles_of_types(source: Path) -> set[tuple[str, str]]:
    """Find the imports for type checkers that would close a circle if they were carried out."""
    found = {(i.importer, i.imported): i for i in imports(source)}
    carried_out = {(i.importer, i.imported) for i in imports(source) if not i.for_types}
    joined = circles(link for link in found if source.name not in link and link[0] != link[1])
    return {
        link
        for link in found
        if link not in carried_out and any({*link} <= circle for circle in joined)
    }


def private_imports(paths: Iterable[Path], known: dict[str, Path]) -> list[str]:
    """List the imports of private modules, whose names begin with an underscore, from outside
    their package.
    """
    found = []
    names = {path: module for module, path in known.items()}
    for path in paths:
        module = names.get(path, "")
        package = module if path.name == "__init__.py" else module.rpartition(".")[0]
        text = path.read_text("utf-8")
        blocks = (
            [text]
            if path.suffix == ".py"
            else [b.partition("```")[0] for b in text.split("```python\n")[1:]]
        )
        for block in blocks:
            try:
                tree = ast.parse(block)
            except SyntaxError:
                continue  # a page may show a part of a program; tests/test_docs.py runs the others
            for node in ast.walk(tree):
                for name in _imported(node, package, known):
                    parts = name.split(".")
                    private = [
                        at
                        for at, part in enumerate(parts)
                        if part.startswith("_") and not part.endswith("__")
                    ]
                    if (
                        parts[0] == "nnpipe"
                        and private
                        and layer_of(module) not in (parts[1], "__main__")
                    ):
                        found.append(f"{path.name}: {name} is private")
    return found


def _imported(node: ast.AST, package: str, known: dict[str, Path]) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            outer = package.split(".")[: len(package.split(".")) - node.level + 1]
            base = ".".join([*outer, *filter(None, [node.module])])
        # `from nnpipe import measuring` names a package, `from nnpipe import __version__` does not.
        return [
            f"{base}.{alias.name}" if f"{base}.{alias.name}" in known else base
            for alias in node.names
        ]
    if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
        called = (
            node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        )
        if called in ("import_module", "__import__") and isinstance(node.args[0].value, str):
            return [node.args[0].value]
    return []


def layer_of(module: str) -> str:
    """Name the layer of a module: its package, or the module's own name where it lies in the
    root.
    """
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
            allowed = (here == "__main__" and there in table) or item.imported in FIRST_OF_ALL
        if not allowed:
            found.append(f"{item.place}: {here or 'nnpipe'} may not import {there}")
    return found


def heavy_imports_of_core(source: Path) -> list[str]:
    """List the imports of the core that are neither the standard library nor numpy."""
    found = []
    for module, path in modules(source / "core").items():
        for node in _executed(ast.parse(path.read_text("utf-8"))):
            names = (
                [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else [node.module or "nnpipe"]
            )
            found += [
                f"{module}: {name}"
                for name in names
                if name.partition(".")[0] not in CORE_MAY_IMPORT
            ]
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


def test_no_modules_import_each_other_at_run_time() -> None:
    assert [circle for circle in run_time_circles(SOURCE) if circle not in CIRCLES] == []
    assert run_time_circles(SOURCE) == CIRCLES


def test_circles_of_types_are_named() -> None:
    assert circles_of_types(SOURCE) == CIRCLES_OF_TYPES


def test_private_modules_are_imported_by_their_own_package_alone() -> None:
    known = modules(SOURCE)
    outside = [
        p
        for folder in ("docs", "examples")
        for p in sorted((ROOT / folder).rglob("*"))
        if p.suffix in (".py", ".md")
    ]
    assert private_imports([*outside, *known.values()], known) == []


# -- what these tests would notice ------------------------------------------------------------


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    source = tmp_path / "nnpipe"
    for package in ("core", "measuring", "datasets", "runtimes", "scenarios", "testing"):
        (source / package).mkdir(parents=True)
        (source / package / "__init__.py").touch()
    (source / "__init__.py").touch()
    return source


TABLE = {"core": 0, "measuring": 1, "datasets": 3, "runtimes": 3, "scenarios": 4}


@pytest.mark.parametrize(
    ("module", "line", "fault"),
    [
        ("core/a.py", "import nnpipe.measuring.run", "core may not import measuring"),
        (
            "datasets/a.py",
            "def f():\n    from nnpipe.runtimes import x",
            "datasets may not import runtimes",
        ),
        ("datasets/a.py", "from nnpipe import runtimes", "datasets may not import runtimes"),
        ("datasets/a.py", "from ..runtimes.x import y", "datasets may not import runtimes"),
        ("datasets/a.py", "from .. import runtimes", "datasets may not import runtimes"),
        (
            "measuring/a.py",
            "from nnpipe.workflows.candidates.stages import z",
            "measuring may not import workflows",
        ),
        (
            "measuring/a.py",
            "from importlib import import_module\nimport_module('nnpipe.testing.x')",
            "import testing",
        ),
        ("testing/a.py", "from nnpipe.measuring import run", "testing may not import measuring"),
        ("__init__.py", "from nnpipe.core import errors", "nnpipe may not import core"),
        (
            "core/a.py",
            "if TYPE_CHECKING:\n    from nnpipe.measuring import run",
            "core may not import measuring",
        ),
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
        ("measuring/a.py", "from nnpipe.core.errors import NNPipeError"),
        (
            "scenarios/a.py",
            "from nnpipe.datasets import x\nfrom ..measuring import run\nfrom nnpipe import "
            "__version__",
        ),
        ("testing/a.py", "from nnpipe.core import x\nfrom nnpipe.testing.b import y"),
        ("__main__.py", "from nnpipe.scenarios._cli.index import list_scenarios"),
        ("core/a.py", "import numpy, json\nfrom nnpipe import __version__"),
    ],
)
def test_an_allowed_import_passes(tree: Path, module: str, line: str) -> None:
    (tree / module).write_text(line + "\n", "utf-8")
    assert faults(tree, TABLE) == []
    assert heavy_imports_of_core(tree) == []


@pytest.mark.parametrize(
    "line", ["import torch", "def f():\n    import yaml", "from psutil import cpu_count"]
)
def test_a_heavy_import_in_the_core_is_noticed(tree: Path, line: str) -> None:
    (tree / "core" / "a.py").write_text(line + "\n", "utf-8")
    assert len(heavy_imports_of_core(tree)) == 1


def test_a_circle_is_noticed_also_through_functions_and_other_modules(tree: Path) -> None:
    (tree / "core" / "a.py").write_text("from nnpipe.core import b\n", "utf-8")
    (tree / "core" / "b.py").write_text("def f():\n    import nnpipe.core.c\n", "utf-8")
    (tree / "core" / "c.py").write_text("", "utf-8")
    assert run_time_circles(tree) == []
    imports.cache_clear()
    (tree / "core" / "c.py").write_text("from nnpipe.core.a import x\n", "utf-8")
    assert run_time_circles(tree) == [{"nnpipe.core.a", "nnpipe.core.b", "nnpipe.core.c"}]
    assert circles_of_types(tree) == set()


def test_a_circle_of_types_is_no_circle_at_run_time_and_is_noticed(tree: Path) -> None:
    (tree / "core" / "a.py").write_text("from nnpipe.core import b\n", "utf-8")
    (tree / "core" / "b.py").write_text(
        "if TYPE_CHECKING:\n    from nnpipe.core.a import A\n", "utf-8"
    )
    assert run_time_circles(tree) == []
    assert circles_of_types(tree) == {("nnpipe.core.b", "nnpipe.core.a")}


@pytest.mark.parametrize(
    "line",
    [
        "from nnpipe.core import _a",
        "from nnpipe.core._a import x",
        "def f():\n    import nnpipe.core._a",
    ],
)
def test_a_private_import_across_packages_or_from_a_page_is_noticed(tree: Path, line: str) -> None:
    (tree / "core" / "_a.py").write_text("", "utf-8")
    (tree / "core" / "b.py").write_text(line + "\n", "utf-8")
    assert private_imports(modules(tree).values(), modules(tree)) == []
    (tree / "measuring" / "b.py").write_text(line + "\n", "utf-8")
    (tree / "page.md").write_text(f"Text\n\n```python\n{line}\n```\n", "utf-8")
    found = private_imports([*modules(tree).values(), tree / "page.md"], modules(tree))
    assert [place.partition(":")[0] for place in found] == ["b.py", "page.md"]
