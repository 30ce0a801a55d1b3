"""Tasks of scripts that each break the contract in one way, under the suite that must tell;
test_task.py runs this.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Mapping
from typing import Any, ClassVar

import pytest

from nnpipe.codegen.script import Writer
from nnpipe.codegen.script_task import ScriptTask
from nnpipe.codegen.syntax import fill_template
from nnpipe.core.arguments import argument
from nnpipe.core.discoverable import Option
from nnpipe.testing.script_task import ScriptTaskContract

NETWORK = [{"class": "Input", "shape": [4]}, {"class": "Dense", "units": 3}]


class Tell(ScriptTask):
    """Print a line, as it should be done."""

    task = "tell"
    line: str = argument("done", help="what to print")

    def write(self, writer: Writer) -> list[ast.stmt]:
        return fill_template(
            "print(LINE)", LINE=writer.add_option(self, "line", self.line, "what to print")
        )


class TestTell(ScriptTaskContract):
    made: ClassVar[type[ScriptTask]] = Tell

    @pytest.fixture
    def task(self) -> type[ScriptTask]:
        return type(self).made

    @pytest.fixture
    def script(self) -> Mapping[str, Any]:
        tasks = [
            {"task": "load_model", "network": "small", "model": "net"},
            {"task": type(self).made.task, "line": "built", "after": ["load_model"]},
        ]
        return {
            "script": "tried",
            "networks": {"small": NETWORK},
            "variables": {"net": "network"},
            "tasks": tasks,
        }


class Elder(Tell):
    """Gives its name to another one."""

    task = "elder"


class Heir(Elder):
    """Has the name of the one that it derives from."""


class TestHeir(TestTell):
    made = Heir


class Unhelpful(Tell):
    """Does not say what an argument means."""

    task = "unhelpful"
    line: str = argument("done", help="")


class TestUnhelpful(TestTell):
    made = Unhelpful


class Undeclared(Tell):
    """Has a field that nothing checks."""

    task = "undeclared"
    often: int = 1


class TestUndeclared(TestTell):
    made = Undeclared


class Aimless(Tell):
    """Is there for no framework."""

    task, frameworks = "aimless", ()


class TestAimless(TestTell):
    made = Aimless


class Foreign(Tell):
    """Is there for a framework that there are no scripts of."""

    task, frameworks = "foreign", ("jax",)


class TestForeign(TestTell):
    made = Foreign


class Leaning(Tell):
    """Writes scripts that need us."""

    task = "leaning"

    def write(self, writer: Writer) -> list[ast.stmt]:
        return [*fill_template("import nnpipe"), *super().write(writer)]


class TestLeaning(TestTell):
    made = Leaning


class Moody(Tell):
    """Writes another script each time."""

    task = "moody"
    count: ClassVar[Any] = itertools.count()

    def write(self, writer: Writer) -> list[ast.stmt]:
        return fill_template(f"print({next(self.count)})")


class TestMoody(TestTell):
    made = Moody


class Lonely(Tell):
    """Is equal to itself alone."""

    task = "lonely"

    def __eq__(self, other: object) -> bool:
        return self is other


class TestLonely(TestTell):
    made = Lonely


class Thawed(Tell):
    """Can be changed."""

    task = "thawed"


Thawed.__setattr__ = object.__setattr__  # type: ignore[method-assign]


class TestThawed(TestTell):
    made = Thawed


class Trusting(Tell):
    """Takes any argument."""

    task = "trusting"

    def __post_init__(self) -> None:
        object.__setattr__(self, "line", str(self.line))


class TestTrusting(TestTell):
    made = Trusting


# -- as all classes that are found by name ------------------------------------------------------


class _Hidden(Tell):
    """Has the name of a private class."""

    task = "hidden"


class TestHidden(TestTell):
    made = _Hidden


class Silent(Tell):
    task = "silent"


class TestSilent(TestTell):
    made = Silent


class Stammering(Tell):
    """Names its options twice."""

    task = "stammering"

    @classmethod
    def options(cls) -> tuple[Option, ...]:
        return super().options() * 2


class TestStammering(TestTell):
    made = Stammering
