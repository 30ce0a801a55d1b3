"""The statements that every run needs, built once: to build one takes longer than to carry it out.

``of`` is the parameter that says of which run, history or configuration.
"""

from __future__ import annotations

import functools
from typing import Any

from nnpipe.experiment.database._tables import tables


@functools.cache
def insert(table: str) -> Any:
    """Insert rows; their columns follow from what is given."""
    return getattr(tables(), table).insert()


@functools.cache
def update(table: str) -> Any:
    """Change the row of an identity; the columns follow from what is given."""
    import sqlalchemy as sa

    changed = getattr(tables(), table)
    return changed.update().where(changed.c.id == sa.bindparam("of"))


@functools.cache
def select(table: str, by: str, *columns: str) -> Any:
    """Select columns of the rows that have something in the column ``by``."""
    import sqlalchemy as sa

    read = getattr(tables(), table)
    return sa.select(*(read.c[column] for column in columns)).where(read.c[by] == sa.bindparam("of"))
