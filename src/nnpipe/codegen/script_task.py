"""The base class of tasks, with the table of its fields, variables and problems."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterable, Iterator
from dataclasses import MISSING, dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from nnpipe.core.arguments import Kind, list_arguments
from nnpipe.core.component import dataclass_transform
from nnpipe.core.discoverable import Discoverable, Option
from nnpipe.core.messages import format_value
from nnpipe.layers.vocabulary.value_kinds import LARGEST

if TYPE_CHECKING:
    from nnpipe.codegen.description import ScriptGenerator
    from nnpipe.codegen.script import Writer

CODES = {
    "structure": "a part of the description is missing, or has the wrong structure",
    "unknown-task": "a task of a kind that does not exist",
    "argument": "an argument of a task has an invalid value, is missing, or is not known",
    "name": "a name that is not an identifier, is a keyword of Python, or has another meaning in every script",
    "duplicate-name": "two tasks, two variables, or a task and a variable with the same name",
    "undeclared-variable": "a task names a variable that is not declared",
    "undeclared-task": "the last task, or a task that another one should follow, does not exist",
    "variable-kind": "a task is given a variable of a kind that it does not accept",
    "never-generated": "a variable is needed, and no task creates it",
    "generated-twice": "several tasks create the same variable",
    "cycle": "tasks that wait for each other",
    "variable-cycle": "tasks that need each other's variables",
    "island": "tasks or variables without a connection to the last task",
    "after-last": "a task that comes after the last one",
    "import": "an import that is not a dotted name of identifiers",
    "network": "a problem of a network, as nnpipe.layers reports it",
    "file": "a file that is needed to write the script is missing or damaged",
    "plugin": "a plugin whose functions cannot be called",
    "framework": "something that a framework does not support",
}
"""The codes of problems and their meanings."""


@dataclass(frozen=True, order=True)
class ScriptProblem:
    """One problem of a description.

    Attributes
    ----------
    code
        A key of :data:`CODES`.
    where
        The task, the variable or the path in the description; empty for the whole description.
    message
        What is wrong and how to mend it, in one line.
    """

    code: str
    where: str
    message: str

    def __post_init__(self) -> None:
        if self.code not in CODES:
            raise ValueError(f"no such code: {self.code}")

    def __str__(self) -> str:
        text = f"{self.where}: {self.message}" if self.where else self.message
        # Names of variables come from the description and may hold unprintable characters.
        return "".join(c if c.isprintable() else repr(c)[1:-1] for c in f"{text} [{self.code}]")


# The field table of a task, with the meaning and the checks of each argument and variable.
#
# Arguments are declared like those of components, with :func:`nnpipe.core.arguments.argument`.

_ROW = "nnpipe.codegen.row"


@dataclass(frozen=True)
class TaskField:
    """A field of a task.

    Attributes
    ----------
    role
        ``takes`` or ``gives`` for a variable, ``set`` for an argument.
    kind
        The kinds of variables that the field accepts; empty for an argument.
    values
        The kind of the values that the field accepts.
    """

    name: str
    role: str
    help: str
    kind: tuple[str, ...]
    values: Kind
    default: Any

    @property
    def many(self) -> bool:
        """Whether the field holds several values or names several variables."""
        return self.values.many is not None

    def check(self, value: Any) -> str:
        """Return what is wrong with a value; the empty string if it is valid."""
        return find_fault(self.values, value)


def takes(*kind: str, help: str, many: bool = False) -> Any:
    """Return the declaration of a field that names a variable, or several, that a task needs."""
    return dataclasses.field(
        default=() if many else MISSING, metadata={_ROW: ("takes", help, kind)}
    )


def gives(kind: str, help: str, optional: bool = False) -> Any:
    """Return the declaration of a field that names a variable that a task creates."""
    return dataclasses.field(
        default=None if optional else MISSING, metadata={_ROW: ("gives", help, (kind,))}
    )


def list_fields(cls: Any) -> tuple[TaskField, ...]:
    """Return the field table of a task class; fields without a help text are left out."""
    declared = {field.name: field.metadata.get(_ROW) for field in dataclasses.fields(cls)}
    found = []
    for argument in list_arguments(cls):
        role, help, kind = declared[argument.name] or ("set", argument.help, ())
        if help:
            found.append(
                TaskField(argument.name, role, help, kind, argument.kind, argument.default)
            )
    return tuple(found)


def find_faults(value: Any) -> Iterator[tuple[str, str]]:
    """Yield the name and the fault of each invalid field of a task."""
    for row in list_fields(type(value)):
        fault = row.check(getattr(value, row.name))
        if fault:
            yield row.name, fault


def find_fault(kind: Kind, value: Any) -> str:
    """Return what is wrong with a value, or the empty string; strings must not be empty and must
    be valid UTF-8.
    """
    try:
        found = kind.coerce(value)
    except ValueError as error:
        return str(error)
    for item in found if kind.many is not None and found is not None else (found,):
        if isinstance(item, int) and abs(item) > LARGEST:
            return f"{format_value(item)} is too large"
        if isinstance(item, str) and (not item or "\0" in item):
            return f"must be a text, not {format_value(item)}"
        if isinstance(item, str) and item != item.encode("utf-8", "ignore").decode():
            return "must be a text that can be written as UTF-8"
    return ""


FRAMEWORKS = ("pytorch", "keras")


@dataclass_transform(
    frozen_default=True, kw_only_default=True, field_specifiers=(takes, gives, field)
)
@dataclass(frozen=True, kw_only=True)
class ScriptTask(Discoverable):
    """One step of a script: a frozen value with its arguments and variables.

    Authors set the name of the ``task``, declare its arguments with
    :func:`~nnpipe.core.arguments.argument`, and declare the variables that it takes and gives with
    the functions of :mod:`nnpipe.codegen.script_task`.  They implement :meth:`write`, and
    :meth:`problems` for what the fields alone cannot check. Classes of tasks are found like
    components: in nnpipe, in plugins, and in the running program.

    Parameters
    ----------
    name
        Name of this task, which other tasks use.
    after
        Names of tasks that must come before this one, besides those whose variables it needs.

    Examples
    --------
    >>> from nnpipe import argument
    >>> from nnpipe.codegen.syntax import fill_template
    >>> class Tell(ScriptTask):
    ...     'Print a line.'
    ...     task = "tell"
    ...     line: str = argument("done", help="what to print")
    ...     def write(self, writer):
    ...         line = writer.add_option(self, "line", self.line, "what to print")
    ...         return fill_template("print(LINE)", LINE=line)
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
            for row in list_fields(cls)
        )

    def variables(self, role: str) -> list[tuple[TaskField, str]]:
        """Return the variables that the task ``takes`` or ``gives``, each with its field,
        without invalid fields.
        """
        found: list[tuple[TaskField, str]] = []
        for row in list_fields(type(self)):
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


KINDS = ("network", "data", "compiled", "callback", "samples", "outputs", "file", "any")
"""Kinds of variables, by the values that they hold while the script runs."""


@dataclass(frozen=True)
class Variable:
    """A value that one task creates and others use.

    Attributes
    ----------
    name
        Name of the variable in the script.
    kind
        Kind of the value, one of :data:`KINDS`.
    """

    name: str
    kind: str
