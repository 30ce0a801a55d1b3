"""Common statements, built once: building one takes longer than executing it.

The parameter ``of`` names the run, history or configuration.
"""

from __future__ import annotations

import functools
from typing import Any

from nnpipe.experiment.database._tables import tables


@functools.cache
def insert(table: str) -> Any:
    """Return the statement that inserts rows; the columns follow from the parameters."""
    return getattr(tables(), table).insert()


@functools.cache
def update(table: str) -> Any:
    """Return the statement that updates the row of an identity; the columns follow from the parameters."""
    import sqlalchemy as sa

    changed = getattr(tables(), table)
    return changed.update().where(changed.c.id == sa.bindparam("of"))


@functools.cache
def select(table: str, by: str, *columns: str) -> Any:
    """Return the statement that selects columns of the rows with a given value in the column ``by``."""
    import sqlalchemy as sa

    read = getattr(tables(), table)
    return sa.select(*(read.c[column] for column in columns)).where(read.c[by] == sa.bindparam("of"))
