"""Creating the tables, and updating those of an older nnpipe."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from nnpipe.core.errors import ArtifactError, ConfigError
from nnpipe.experiment.database._column_types import WrongValue
from nnpipe.experiment.database._tables import SCHEMA, tables

if TYPE_CHECKING:
    from nnpipe.experiment.database.connections import Connections


def _add_jobs(connection: Any) -> None:
    tables().jobs.create(connection, checkfirst=True)


def _add_searches(connection: Any) -> None:
    for table in (tables().searches, tables().trials, tables().reports):
        table.create(connection, checkfirst=True)


def _add_results(connection: Any) -> None:
    import sqlalchemy as sa
    from sqlalchemy.schema import CreateColumn

    t = tables().trials
    known = {each["name"] for each in sa.inspect(connection).get_columns(t.name)}
    for column in (t.c.intervals, t.c.files):
        if column.name not in known:  # the step before creates the table as it is now
            described = CreateColumn(column).compile(connection)
            connection.execute(sa.text(f"ALTER TABLE {t.name} ADD COLUMN {described}"))


def _add_device_tickets(connection: Any) -> None:
    tables().device_tickets.create(connection, checkfirst=True)


MIGRATIONS: dict[int, Callable[[Any], None]] = {
    1: _add_jobs, 2: _add_searches, 3: _add_results, 4: _add_device_tickets,
}  # fmt: skip
"""By schema version: the function that updates the tables to the next version."""


def check(connections: Connections, *, create: bool) -> None:
    """Create or update the tables of a database, or raise.

    Raises
    ------
    ArtifactError
        If it holds something else, or its schema cannot be read.
    ConfigError
        If there are no tables and ``create`` is false.
    """
    with connections.reading() as connection:
        found = _schema_of(connection, connections)
    if found == SCHEMA:
        return
    if found is None and not create:
        raise ConfigError(f"{connections.shown}: holds no runs yet")
    connections.prepare_file()
    with connections.writing() as connection:
        found = _schema_of(connection, connections)  # another process may have been first
        if found is None:
            tables().metadata.create_all(connection)
            connection.execute(tables().about.insert(), {"name": "schema", "value": str(SCHEMA)})
        elif found < SCHEMA:
            for older in range(found, SCHEMA):
                MIGRATIONS[older](connection)
            connection.execute(tables().about.update().values(value=str(SCHEMA)).where(_is_schema()))


def _is_schema() -> Any:
    return tables().about.c.name == "schema"


def _schema_of(connection: Any, connections: Connections) -> int | None:
    import sqlalchemy as sa

    if not connections.postgresql:
        _check_plain(connection)
    names = sa.inspect(connection).get_table_names()
    if tables().about.name not in names:
        # A PostgreSQL database may be shared; a file belongs to one.
        if names and not connections.postgresql:
            raise ArtifactError(f"{connections.shown}: an SQLite database of something else, not a run database")
        return None
    text = str(connection.execute(sa.select(tables().about.c.value).where(_is_schema())).scalar())
    schema = int(text) if text.isascii() and text.isdigit() and len(text) < 9 else -1
    if schema > SCHEMA:
        raise ArtifactError(
            f"{connections.shown}: written by a newer nnpipe (schema {schema}, not {SCHEMA}): upgrade nnpipe"
        )
    if schema != SCHEMA and schema not in MIGRATIONS:
        raise ArtifactError(f"{connections.shown}: of schema {text[:20]}, which this nnpipe does not read")
    return schema


def _check_plain(connection: Any) -> None:
    """Raise :class:`WrongValue` if a file has more than tables: views and the like compute what their author likes."""
    import sqlalchemy as sa

    stored = sa.text("SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL")
    for kind, name, sql in connection.execute(stored).all():
        words = str(sql).upper().split()
        if kind not in ("table", "index") or "VIRTUAL" in words[:2]:
            raise WrongValue(f"holds a {kind} {str(name)[:80]!r}, which no run database has")
        if kind == "table":
            columns = connection.execute(
                sa.text("SELECT name, hidden FROM pragma_table_xinfo(:table)"), {"table": name}
            )
            for column, hidden in columns.all():
                if hidden:
                    raise WrongValue(f"{name}.{column} is computed, not stored, which no run database does")
