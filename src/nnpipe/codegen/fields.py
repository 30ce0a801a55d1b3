"""The field table of a task: for each argument or variable, how it is checked and what it means."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from dataclasses import MISSING, dataclass
from typing import Any

_ROW = "nnpipe.codegen.row"
Check = Callable[[Any], str]
"""Says what is wrong with a value; nothing if it is right."""


@dataclass(frozen=True)
class Row:
    """What a field of a task is.

    Attributes
    ----------
    role
        ``takes`` or ``gives`` for variables, ``set`` for an argument.
    kind
        For variables, the kinds that fit.
    many
        Whether the field names several variables.
    """

    name: str
    role: str
    help: str
    check: Check
    kind: tuple[str, ...]
    many: bool
    default: Any


def setting(check: Check, help: str, default: Any = MISSING) -> Any:
    """Declare an argument of a task."""
    return dataclasses.field(default=default, metadata={_ROW: ("set", help, check, (), False)})


def takes(*kind: str, help: str, many: bool = False, optional: bool = False) -> Any:
    """Declare variables that a task needs."""
    default: Any = () if many else None if optional else MISSING
    check = _names if many else (_optional(_name) if optional else _name)
    return dataclasses.field(default=default, metadata={_ROW: ("takes", help, check, kind, many)})


def gives(kind: str, help: str, optional: bool = False) -> Any:
    """Declare a variable that a task makes."""
    default: Any = None if optional else MISSING
    check = _optional(_name) if optional else _name
    return dataclasses.field(default=default, metadata={_ROW: ("gives", help, check, (kind,), False)})


def rows(cls: Any) -> tuple[Row, ...]:
    """Return the table of a task's class."""
    found = []
    for field in dataclasses.fields(cls):
        if _ROW in field.metadata:
            role, help, check, kind, many = field.metadata[_ROW]
            found.append(Row(field.name, role, help, check, kind, many, field.default))
    return tuple(found)


def faults(value: Any) -> Iterator[tuple[str, str]]:
    """List what is wrong with a task's fields: the field, and the fault."""
    for row in rows(type(value)):
        fault = row.check(getattr(value, row.name))
        if fault:
            yield row.name, fault


# -- checks ---------------------------------------------------------------------------------------


def integer(least: int = 1, most: int = 1 << 40) -> Check:
    """An integer within bounds."""

    def check(value: Any) -> str:
        good = isinstance(value, int) and not isinstance(value, bool) and least <= value <= most
        return "" if good else f"must be a whole number of at least {least}, not {shown(value)}"

    return check


def number(least: float = -math.inf, most: float = math.inf) -> Check:
    """A finite number within bounds."""

    def check(value: Any) -> str:
        good = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
        return "" if good and least <= value <= most else f"must be a number from {least} to {most}, not {shown(value)}"

    return check


def text(value: Any) -> str:
    """A text of at least one character, which can be written into a file."""
    if not isinstance(value, str) or not value or "\0" in value:
        return f"must be a text, not {shown(value)}"
    try:
        value.encode()
    except UnicodeEncodeError:
        return "must be a text that can be written as UTF-8"
    return ""


def flag(value: Any) -> str:
    """Yes or no."""
    return "" if isinstance(value, bool) else f"must be true or false, not {shown(value)}"


def one_of(*words: str) -> Check:
    """One of some words."""
    return lambda value: "" if value in words else f"must be one of {', '.join(words)}, not {shown(value)}"


def several_of(*words: str) -> Check:
    """Some of some words."""

    def check(value: Any) -> str:
        good = isinstance(value, tuple) and all(item in words for item in value)
        return "" if good else f"must be a list of {', '.join(words)}, not {shown(value)}"

    return check


def several(one: Check) -> Check:
    """A list whose items are right."""

    def check(value: Any) -> str:
        if not isinstance(value, tuple):
            return f"must be a list, not {shown(value)}"
        return next((fault for item in value if (fault := one(item))), "")

    return check


def maybe(one: Check) -> Check:
    """A value, or none."""
    return _optional(one)


def shown(value: Any) -> str:
    """Return a value as it is shown in a message: in one line, and not for long."""
    found = repr(value)
    return found if len(found) <= 60 else found[:59] + "…"


def _optional(one: Check) -> Check:
    return lambda value: "" if value is None else one(value)


def _name(value: Any) -> str:
    return "" if isinstance(value, str) and value else f"must name a variable, not be {shown(value)}"


def _names(value: Any) -> str:
    good = isinstance(value, tuple) and all(isinstance(item, str) and item for item in value)
    return "" if good else f"must be a list of variables, not {shown(value)}"
