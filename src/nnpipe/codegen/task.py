"""What all tasks have in common."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from nnpipe.codegen import fields
from nnpipe.codegen.fields import Row
from nnpipe.codegen.problems import ScriptProblem

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

    def problems(self, script: ScriptGenerator) -> Iterable[ScriptProblem]:
        """List what is wrong beyond the fields and the graph; these are checked already."""
        return ()

    def write(self, writer: Writer) -> list[ast.stmt]:
        """Return the statements of the task."""
        raise NotImplementedError
