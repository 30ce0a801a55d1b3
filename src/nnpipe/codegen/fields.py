"""The field table of a task, with the meaning and the checks of each argument and variable.

Arguments are declared like those of components, with :func:`nnpipe.core.arguments.argument`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import MISSING, dataclass
from typing import Any

from nnpipe.core.argument_kinds import Kind
from nnpipe.core.arguments import arguments_of
from nnpipe.core.messages import shown
from nnpipe.layers.vocabulary.value_kinds import LARGEST

_ROW = "nnpipe.codegen.row"


@dataclass(frozen=True)
class Row:
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
        return fault_of(self.values, value)


def takes(*kind: str, help: str, many: bool = False) -> Any:
    """Return the declaration of a field that names a variable, or several, that a task needs."""
    return dataclasses.field(default=() if many else MISSING, metadata={_ROW: ("takes", help, kind)})


def gives(kind: str, help: str, optional: bool = False) -> Any:
    """Return the declaration of a field that names a variable that a task creates."""
    return dataclasses.field(default=None if optional else MISSING, metadata={_ROW: ("gives", help, (kind,))})


def rows(cls: Any) -> tuple[Row, ...]:
    """Return the field table of a task class; fields without a help text are left out."""
    declared = {field.name: field.metadata.get(_ROW) for field in dataclasses.fields(cls)}
    found = []
    for argument in arguments_of(cls):
        role, help, kind = declared[argument.name] or ("set", argument.help, ())
        if help:
            found.append(Row(argument.name, role, help, kind, argument.kind, argument.default))
    return tuple(found)


def faults(value: Any) -> Iterator[tuple[str, str]]:
    """Yield the name and the fault of each invalid field of a task."""
    for row in rows(type(value)):
        fault = row.check(getattr(value, row.name))
        if fault:
            yield row.name, fault


def fault_of(kind: Kind, value: Any) -> str:
    """Return what is wrong with a value, or the empty string; strings must not be empty and must be valid UTF-8."""
    try:
        found = kind.coerce(value)
    except ValueError as error:
        return str(error)
    for item in found if kind.many is not None and found is not None else (found,):
        if isinstance(item, int) and abs(item) > LARGEST:
            return f"{shown(item)} is too large"
        if isinstance(item, str) and (not item or "\0" in item):
            return f"must be a text, not {shown(item)}"
        if isinstance(item, str) and item != item.encode("utf-8", "ignore").decode():
            return "must be a text that can be written as UTF-8"
    return ""
