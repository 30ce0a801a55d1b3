"""The field table of a task: for each argument or variable, how it is checked and what it means.

Arguments are declared as those of components are, with :func:`nnpipe.core.arguments.argument`.
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
        ``takes`` or ``gives`` for variables, ``set`` for an argument.
    kind
        For variables, the kinds that it accepts.
    values
        What values the field takes.
    """

    name: str
    role: str
    help: str
    kind: tuple[str, ...]
    values: Kind
    default: Any

    @property
    def many(self) -> bool:
        """Whether the field holds several values, or names several variables."""
        return self.values.many is not None

    def check(self, value: Any) -> str:
        """Return what is wrong with a value; an empty string if nothing is."""
        return fault_of(self.values, value)


def takes(*kind: str, help: str, many: bool = False) -> Any:
    """Declare a variable, or several, that a task needs."""
    return dataclasses.field(default=() if many else MISSING, metadata={_ROW: ("takes", help, kind)})


def gives(kind: str, help: str, optional: bool = False) -> Any:
    """Declare a variable that a task creates."""
    return dataclasses.field(default=None if optional else MISSING, metadata={_ROW: ("gives", help, (kind,))})


def rows(cls: Any) -> tuple[Row, ...]:
    """Return the table of a task's class."""
    declared = {field.name: field.metadata.get(_ROW) for field in dataclasses.fields(cls)}
    found = []
    for argument in arguments_of(cls):
        role, help, kind = declared[argument.name] or ("set", argument.help, ())
        if help:
            found.append(Row(argument.name, role, help, kind, argument.kind, argument.default))
    return tuple(found)


def faults(value: Any) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with a task's fields, as pairs of field and fault."""
    for row in rows(type(value)):
        fault = row.check(getattr(value, row.name))
        if fault:
            yield row.name, fault


def fault_of(kind: Kind, value: Any) -> str:
    """Return what is wrong with a value; texts must not be empty, and UTF-8 must be able to hold them."""
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
