"""The base class of tasks."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from nnpipe.codegen import fields
from nnpipe.codegen.fields import Row
from nnpipe.codegen.problems import ScriptProblem
from nnpipe.core.component import dataclass_transform
from nnpipe.core.discoverable import Discoverable, Option

if TYPE_CHECKING:
    from nnpipe.codegen.generator import ScriptGenerator
    from nnpipe.codegen.writer import Writer

FRAMEWORKS = ("pytorch", "keras")


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(fields.takes, fields.gives, field))
@dataclass(frozen=True, kw_only=True)
class ScriptTask(Discoverable):
    """One step of a script: a frozen value with its arguments and variables.

    Authors set the name of the ``task``, declare its arguments with :func:`~nnpipe.core.arguments.argument`, and
    declare the variables that it takes and gives with the functions of :mod:`nnpipe.codegen.fields`.  They implement
    :meth:`write`, and :meth:`problems` for what the fields alone cannot check.
    Classes of tasks are found like components: in nnpipe, in plugins, and in the running program.

    Parameters
    ----------
    name
        Name of this task, which other tasks use.
    after
        Names of tasks that must come before this one, besides those whose variables it needs.

    Examples
    --------
    >>> from nnpipe import argument
    >>> from nnpipe.codegen.syntax import quoted
    >>> class Tell(ScriptTask):
    ...     'Print a line.'
    ...     task = "tell"
    ...     line: str = argument("done", help="what to print")
    ...     def write(self, writer):
    ...         line = writer.argument(self, "line", self.line, "what to print")
    ...         return quoted("print(LINE)", LINE=line)
    >>> [(option.name, option.help, option.default) for option in Tell.options()]
    [('line', 'what to print', 'done')]
    """

    abstract: ClassVar[bool] = True
    task: ClassVar[str] = ""
    """Name of the task in descriptions."""
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

    @classmethod
    def short_name(cls) -> str:
        """Return the name of the task in descriptions."""
        return cls.task or cls.__name__

    @classmethod
    def options(cls) -> tuple[Option, ...]:
        """Return the variables and arguments with their help texts."""
        kinds = {"takes": "takes {}", "gives": "gives {}", "set": ""}
        return tuple(
            Option(row.name, kinds[row.role].format(" or ".join(row.kind)), row.help, row.default)
            for row in fields.rows(cls)
        )

    def variables(self, role: str) -> list[tuple[Row, str]]:
        """Return the variables that the task ``takes`` or ``gives``, each with its field, without invalid fields."""
        found: list[tuple[Row, str]] = []
        for row in fields.rows(type(self)):
            value = getattr(self, row.name)
            if row.role == role and value is not None and not row.check(value):
                found += [(row, item) for item in (value if row.many else (value,))]
        return found

    def problems(self, script: ScriptGenerator) -> Iterable[ScriptProblem]:
        """Return the problems that the checks of the fields and of the graph do not find."""
        return ()

    def write(self, writer: Writer) -> list[ast.stmt]:
        """Return the statements of the task."""
        raise NotImplementedError
