"""What the tests of code generation share."""

from __future__ import annotations

import ast
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from nnpipe.codegen.imports import imports_of
from nnpipe.codegen.printing import source_of
from nnpipe.codegen.runtime.parts import with_needed


def _every_layer() -> ModuleType:
    """The examples of every layer, which the tests of the layers declare."""
    path = Path(__file__).parents[1] / "layers" / "test_backends.py"
    spec = importlib.util.spec_from_file_location("every_layer", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["every_layer"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def every_layer() -> ModuleType:
    return _every_layer()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if {"cls", "make", "shapes"} <= set(metafunc.fixturenames):
        metafunc.parametrize(("cls", "make", "shapes"), _every_layer().CASES)


def run(framework: str, script: Any, helpers: tuple[str, ...] = ()) -> dict[str, Any]:
    """Run what a script defines, in a namespace of its own."""
    wanted = {*helpers, *({"used_as"} if framework == "pytorch" else ())}
    body = [*with_needed(framework, wanted).values(), *script.definitions.values()]
    text = source_of(ast.Module([*imports_of(body), *body], []))
    namespace: dict[str, Any] = {"__name__": "generated"}
    exec(compile(text, "generated.py", "exec"), namespace)
    return namespace
