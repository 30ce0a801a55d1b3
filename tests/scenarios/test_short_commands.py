"""A command parses, makes one public call and writes: what it does besides declaring its options
is short.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from nnpipe import scenarios
from nnpipe.scenarios._cli.index import list_scenarios as names

FOLDER = Path(scenarios.__file__).parent
MOST = 59
OPTIONS = "_add_options"
"""Declares what may follow the command, and is as long as there are options."""


def count_statements(source: str) -> int:
    """Count the statements of a command's functions and methods, without those that declare its
    options.
    """
    functions = [
        node
        for statement in ast.parse(source).body
        for node in (statement.body if isinstance(statement, ast.ClassDef) else [statement])
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name != OPTIONS
    ]
    return sum(isinstance(each, ast.stmt) for node in functions for each in ast.walk(node))


@pytest.mark.parametrize("name", sorted(names()))
def test_a_command_is_short(name: str) -> None:
    assert 3 <= count_statements((FOLDER / f"{name}.py").read_text("utf-8")) <= MOST


def test_every_module_with_a_main_is_a_command() -> None:
    found = {path.stem for path in FOLDER.glob("*.py") if "def main(" in path.read_text("utf-8")}
    assert found == set(names())
    assert len(found) > 15


def test_long_work_would_be_noticed() -> None:
    body = "\n".join(f"    step({number})" for number in range(MOST))
    assert count_statements(f"def _work():\n{body}\n") > MOST
    assert (
        count_statements(f"class Work:\n    def do(self):\n{body.replace('    ', '        ')}\n")
        > MOST
    )
    assert count_statements(f"def {OPTIONS}(parser):\n{body}\n") == 0
