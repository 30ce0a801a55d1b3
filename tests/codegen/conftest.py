"""What the tests of code generation share."""

from __future__ import annotations

import ast
import runpy
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from borrowed import LAYERS, loaded

from nnpipe.codegen import unparse
from nnpipe.codegen.runtime.function_sources import with_needed
from nnpipe.codegen.torch_code.code_blocks import Script
from nnpipe.codegen.torch_code.network import NetworkClass, build_state_dict, write_network_class
from nnpipe.codegen.unparse import find_imports, generate_source
from nnpipe.layers.graph.graph import NetworkGraph
from nnpipe.layers.graph.weights import Weights


@cache
def _every_layer() -> ModuleType:
    """The examples of every layer, which the tests of the layers declare."""
    return loaded("every_layer", LAYERS / "test_backends.py")


@pytest.fixture(scope="session")
def every_layer() -> ModuleType:
    return _every_layer()


@pytest.fixture(scope="session")
def ruff_finds_nothing() -> Callable[[Path], None]:
    """Check the scripts of a folder with ruff: nothing to mend in them, and laid out as ruff
    lays out.
    """
    pytest.importorskip("ruff", reason="ruff is not installed")

    def check(folder: Path) -> None:
        assert list(folder.glob("*.py"))  # or there is nothing to be found
        for command in (["check", "--extend-select=I"], ["format", "--check", "--diff"]):
            # As a module: the program need not be on the path.
            given = [
                sys.executable,
                "-m",
                "ruff",
                *command,
                "--quiet",
                "--isolated",
                "--no-cache",
                ".",
            ]
            ran = subprocess.run(given, cwd=folder, capture_output=True, text=True, check=False)
            assert ran.returncode == 0, (ran.stdout + ran.stderr)[-3000:]

    return check


@pytest.fixture
def run_script(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """Run a script in its folder as Python runs it, but in this process: starting frameworks
    takes seconds.
    """

    def ran(script: Path, *arguments: str) -> str:
        monkeypatch.chdir(script.parent)
        monkeypatch.setattr(sys, "argv", [script.name, *arguments])
        capfd.readouterr()
        status = None
        try:
            runpy.run_path(script.name, run_name="__main__")
        except SystemExit as left:
            status = left.code
        told = capfd.readouterr()
        assert not status, told.err
        return told.out

    return ran


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if {"cls", "make", "shapes"} <= set(metafunc.fixturenames):
        metafunc.parametrize(("cls", "make", "shapes"), _every_layer().CASES)


@pytest.fixture(scope="session")
def run() -> Callable[..., dict[str, Any]]:
    """Run what a script defines, in a namespace of its own, with functions that are copied into
    scripts.
    """
    return _run


@pytest.fixture(scope="session")
def helpers() -> Callable[..., dict[str, Any]]:
    """Return functions as scripts of a framework hold them, by their names."""
    return lambda framework, *names: _run(framework, Script(), names)


@pytest.fixture(scope="session")
def built() -> Callable[[NetworkGraph, Weights], tuple[Any, NetworkClass]]:
    """Run a network's code for PyTorch; give the module with its weights, and what is known of
    the code.
    """
    return _built


def _built(graph: NetworkGraph, weights: Weights) -> tuple[Any, NetworkClass]:
    import torch

    script = Script()
    written = write_network_class(graph, script)
    module = _run("pytorch", script)[written.title]()
    state = {
        name: torch.from_numpy(value)
        for name, value in build_state_dict(written, graph, weights).items()
    }
    missing, unknown = module.load_state_dict(state, strict=False)
    assert not unknown
    # what a normalisation without scale or offset has in PyTorch
    neutral = {"weight", "bias", "num_batches_tracked"}
    assert all(name.rpartition(".")[2] in neutral for name in missing)
    return module, written


def _run(framework: str, script: Any, helpers: tuple[str, ...] = ()) -> dict[str, Any]:
    wanted = {*helpers, *({"run_in_mode"} if framework == "pytorch" else ())}
    body = [*with_needed(framework, wanted).values(), *script.definitions.values()]
    with pytest.MonkeyPatch.context() as patch:
        # how code is laid out has tests of its own
        patch.setattr(unparse, "_find_ruff", lambda: None)
        text = generate_source(ast.Module([*find_imports(body), *body], []))
    namespace: dict[str, Any] = {"__name__": "generated"}
    exec(compile(text, "generated.py", "exec"), namespace)
    return namespace
