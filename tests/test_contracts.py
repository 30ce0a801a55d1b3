"""Every component that comes with nnpipe is held to the contract of its interface by some test.

Tests are read, not run: a test class derives from a contract, and names the component that it is
for in its body, in a fixture of its module that it asks for, or in what it is parametrised with.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from nnpipe.core.registry import FAMILIES, components

TESTS = Path(__file__).resolve().parent
CONTRACTS = {
    "datasets": {"DatasetContract"},
    "modelwrappers": {"ModelWrapperContract"},
    "compilers": {"ModelCompilerContract"},
    "runtimes": {"RuntimeContract"},
    "protocols": {"RuntimeProtocolContract", "EmulatedProtocolContract"},
    "decoders": {"OutputDecoderContract"},
    "transforms": {"InputTransformContract"},
    "meters": {"EnergyMeterContract"},
}


@cache
def named_under(contract: str) -> frozenset[str]:
    """Return every name in test classes that derive from a contract, and in the fixtures that
    these ask for.
    """
    return frozenset(
        name for path in TESTS.rglob("test_*.py") for name in _named_in(path, contract)
    )


@cache
def _contracts(contract: str) -> frozenset[str]:
    """Return a contract with those that modules beside the tests derive from it."""
    found = {contract}
    for path in sorted(TESTS.rglob("*.py")):
        for cls in () if path.name.startswith("test_") else parsed(path).body:
            if isinstance(cls, ast.ClassDef) and found & bases_of(cls):
                found.add(cls.name)
    return frozenset(found)


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def bases_of(cls: ast.ClassDef) -> set[str]:
    return {getattr(base, "id", "") for base in cls.bases}


def _named_in(path: Path, contract: str) -> Iterator[str]:
    tree = parsed(path)
    derived = set(_contracts(contract))
    fixtures = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    variants = {node.name: node.bases for node in tree.body if isinstance(node, ast.ClassDef)}
    for cls in tree.body:
        if not isinstance(cls, ast.ClassDef) or not derived & bases_of(cls):
            continue
        derived.add(cls.name)
        asked, seen = [cls], set()
        while asked:
            part = asked.pop()
            for name in names_in(part):
                yield name
                # A variant of a component, made for the test, stands for it.
                yield from (getattr(base, "id", "") for base in variants.get(name, ()))
            for name in {
                argument.arg for argument in ast.walk(part) if isinstance(argument, ast.arg)
            } - seen:
                seen.add(name)
                if name in fixtures:
                    asked.append(fixtures[name])


def names_in(part: ast.AST) -> Iterator[str]:
    return (node.id for node in ast.walk(part) if isinstance(node, ast.Name))


@pytest.mark.parametrize("family", CONTRACTS)
def test_every_component_has_its_contract_tested(family: str) -> None:
    covered = frozenset().union(*map(named_under, CONTRACTS[family]))
    ours = {
        cls.__name__ for cls in components(FAMILIES[family]) if cls.__module__.startswith("nnpipe.")
    }
    assert ours
    assert sorted(ours - covered) == []


def test_a_component_without_a_test_is_noticed() -> None:
    assert "TestEveryComponent" not in named_under("ModelCompilerContract")
    assert "TVMCompiler" in named_under("ModelCompilerContract")
    assert "TVMRuntime" not in named_under("DatasetContract")
