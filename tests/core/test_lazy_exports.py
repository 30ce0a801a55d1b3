"""Names of packages that are imported when they are first used."""

from __future__ import annotations

import ast
import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from nnpipe.core.lazy_exports import lazy_getattr
from nnpipe.testing.component import HEAVY

SOURCE = Path(__file__).resolve().parents[2] / "src" / "nnpipe"
CALLS = ("lazy_getattr", "lazy_exports")
PACKAGES = sorted(
    ".".join(path.parent.relative_to(SOURCE).parts)
    for path in SOURCE.rglob("__init__.py")
    if any(f" = {call}(" in path.read_text("utf-8") for call in CALLS)
)
PUBLIC = ("training", "training.outputs", "training.sequences", "experiment", "layers", "tasks")


def source_of(package: str) -> str:
    return (SOURCE / package.replace(".", "/") / "__init__.py").read_text("utf-8")


def told_to_type_checkers(package: str) -> dict[str, str]:
    """Read what type checkers see: each name, and the module that it comes from."""
    found = {}
    for node in ast.parse(source_of(package)).body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for line in node.body:
                assert isinstance(line, ast.ImportFrom)
                found |= {alias.asname or alias.name: str(line.module) for alias in line.names}
    return found


def promised(package: str) -> dict[str, str]:
    """Read the table that a package gives ``lazy_getattr`` or ``lazy_exports``."""
    for node in ast.walk(ast.parse(source_of(package))):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in CALLS:
            homes = ast.literal_eval(node.args[1])
            return {
                name: f"nnpipe.{package}.{home}" for home, names in homes.items() for name in names
            }
    raise AssertionError(f"{package} has no lazy names")


def test_there_are_packages_with_lazy_names() -> None:
    assert "protocols" in PACKAGES


@pytest.mark.parametrize("package", PACKAGES)
def test_type_checkers_see_what_is_there(package: str) -> None:
    assert told_to_type_checkers(package) == promised(package)


@pytest.mark.parametrize("package", PACKAGES)
def test_each_name_is_found_at_home(package: str) -> None:
    module = importlib.import_module(f"nnpipe.{package}")
    for name, home in promised(package).items():
        assert getattr(module, name) is getattr(importlib.import_module(home), name)


@pytest.mark.parametrize("package", PUBLIC)
def test_a_public_package_lists_its_names(package: str) -> None:
    module = importlib.import_module(f"nnpipe.{package}")
    assert promised(package).keys() <= set(module.__all__)
    assert len(module.__all__) == len(set(module.__all__))


def test_the_names_of_public_packages_need_no_framework() -> None:
    script = (
        "import importlib, json, sys\n"
        "for package in sys.argv[1:]:\n"
        "    module = importlib.import_module(f'nnpipe.{package}')\n"
        "    [getattr(module, name) for name in module.__all__]\n"
        "print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *PUBLIC],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert not set(HEAVY) & set(json.loads(done.stdout))


def test_a_name_is_imported_when_it_is_used_and_not_before() -> None:
    script = (
        "import sys, nnpipe.protocols as p\n"
        "assert 'nnpipe.protocols.network' not in sys.modules\n"
        "p.UnixProtocol\n"
        "assert 'nnpipe.protocols.network' in sys.modules and 'nnpipe.protocols.tls' not in "
        "sys.modules\n"
        "assert 'UnixProtocol' in vars(p)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    find = lazy_getattr("nnpipe.core", {"naming": ("nearest",)})
    with pytest.raises(AttributeError, match=r"module 'nnpipe.core' has no attribute 'furthest'"):
        find("furthest")
