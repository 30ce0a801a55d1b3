"""Types of columns that check what SQLite returns: it stores a value of any type in any column.

A file may have been written by somebody else.  A value of another type would
otherwise fail anywhere, far from the file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nnpipe.core.errors import ArtifactError

_WORDS = {str: "text", int: "a whole number", float: "a number", bool: "yes or no (1 or 0)"}


class WrongValue(ArtifactError):
    """What a database holds cannot have been written by nnpipe; the message has yet to name the database."""


def checked(base: Any, python: Any, most: float | None = None) -> Any:
    """Return a class like a type of SQLAlchemy, with a check that SQLite returns values of a type of Python.

    With ``most``, numbers are from 0 to this one.

    PostgreSQL makes this check itself.
    """

    class Checked(base):  # type: ignore[misc]
        where = ""
        nullable = True

        def result_processor(self, dialect: Any, coltype: object) -> Callable[[Any], Any] | None:
            if dialect.name != "sqlite":
                found: Callable[[Any], Any] | None = super().result_processor(dialect, coltype)
                return found
            where, nullable = self.where, self.nullable

            def check(value: Any) -> Any:
                if value is None and nullable:
                    return value
                if isinstance(value, int) and (python is float or (python is bool and value in (0, 1))):
                    value = python(value)
                if type(value) is not python:
                    found = "nothing" if value is None else repr(value)[:40]
                    raise WrongValue(f"{where} holds {found} in place of {_WORDS[python]}")
                if most is not None and not 0 <= value <= most:
                    raise WrongValue(f"{where} holds {value!r}, which is not from 0 to {most:,.0f}")
                return value

            return check

    return Checked


def name_columns(metadata: Any) -> None:
    """Pass its place to the type of every column, and whether it may have no value."""
    for table in metadata.tables.values():
        for column in table.columns:
            column.type = column.type.copy()
            column.type.where, column.type.nullable = f"{table.name}.{column.name}", bool(column.nullable)
