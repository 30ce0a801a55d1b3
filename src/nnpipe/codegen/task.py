"""What all tasks have in common."""

from __future__ import annotations

import ast
import dataclasses
import importlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from nnpipe.codegen import fields
from nnpipe.codegen.fields import Row
from nnpipe.codegen.problems import Problem

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform

    from nnpipe.codegen.generator import ScriptGenerator
    from nnpipe.codegen.writer import Writer
else:
    from nnpipe.core.component import dataclass_transform

FRAMEWORKS = ("pytorch", "keras")


@dataclass_transform(
    frozen_default=True, kw_only_default=True, field_specifiers=(fields.setting, fields.takes, fields.gives, field)
)
@dataclass(frozen=True, kw_only=True)
class Task:
    """One step of a script: a frozen value that says what is to be done, with which variables.

    Parameters
    ----------
    name
        Its name, which other tasks know it by.
    after
        Tasks that come before it, besides those whose variables it needs.
    """

    task: ClassVar[str] = ""
    """What descriptions call it."""
    frameworks: ClassVar[tuple[str, ...]] = FRAMEWORKS

    name: str
    after: tuple[str, ...] = ()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        dataclass(frozen=True, kw_only=True)(cls)

    def __post_init__(self) -> None:
        for item in dataclasses.fields(self):
            value = getattr(self, item.name)
            if isinstance(value, list):
                object.__setattr__(self, item.name, tuple(value))

    def variables(self, role: str) -> list[tuple[Row, str]]:
        """List the variables that a task ``takes`` or ``gives``, with the row of each."""
        found: list[tuple[Row, str]] = []
        for row in fields.rows(type(self)):
            value = getattr(self, row.name)
            if row.role == role and value is not None and not row.check(value):
                found += [(row, item) for item in (value if row.many else (value,))]
        return found

    def problems(self, script: ScriptGenerator) -> Iterable[Problem]:
        """List what is wrong beyond the fields and the graph; these are checked already."""
        return ()

    def write(self, writer: Writer) -> list[ast.stmt]:
        """Return the statements of the task."""
        raise NotImplementedError


def task_classes() -> dict[str, type[Task]]:
    """Return the class of every task by what descriptions call it."""
    importlib.import_module("nnpipe.codegen.tasks")  # which imports them all

    def below(cls: Any) -> list[Any]:
        return [found for child in cls.__subclasses__() for found in (child, *below(child))]

    return {cls.task: cls for cls in below(Task) if cls.task and cls.__module__.startswith("nnpipe.")}
