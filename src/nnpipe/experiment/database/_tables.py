"""The tables of the run database.

Both backends must give the same answers.  So texts are compared by characters,
not by the rules of a language; times are seconds since 1970 UTC; and NaN, which
SQLite cannot store, is NULL (infinity is stored as it is).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nnpipe.core.errors import ArtifactError, ConfigError

if TYPE_CHECKING:
    from nnpipe.experiment.database.connections import Connections


# Types of columns that check what SQLite returns: it stores a value of any type in any column.
#
# A file may have been written by somebody else.  A value of another type would otherwise fail
# anywhere, far from the file.

_WORDS = {str: "text", int: "a whole number", float: "a number", bool: "yes or no (1 or 0)"}


class WrongValue(ArtifactError):
    """What a database holds cannot have been written by nnpipe; the message has yet to name the
    database.
    """


def create_checked_type(base: Any, python: Any, most: float | None = None) -> Any:
    """Return a class like a type of SQLAlchemy, with a check that SQLite returns values of a type
    of Python.

    With ``most``, numbers are from 0 to this one.

    PostgreSQL makes this check itself.
    """

    class CheckedType(base):  # type: ignore[misc]
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
                if isinstance(value, int) and (
                    python is float or (python is bool and value in (0, 1))
                ):
                    value = python(value)
                if type(value) is not python:
                    found = "nothing" if value is None else repr(value)[:40]
                    raise WrongValue(f"{where} holds {found} in place of {_WORDS[python]}")
                if most is not None and not 0 <= value <= most:
                    raise WrongValue(f"{where} holds {value!r}, which is not from 0 to {most:,.0f}")
                return value

            return check

    return CheckedType


def name_columns(metadata: Any) -> None:
    """Pass its place to the type of every column, and whether it may have no value."""
    for table in metadata.tables.values():
        for column in table.columns:
            column.type = column.type.copy()
            column.type.where, column.type.nullable = (
                f"{table.name}.{column.name}",
                bool(column.nullable),
            )


SCHEMA = 5
"""Version of the tables."""

_LAST = 253_402_300_799  # seconds until the end of the year 9999, the last that Python shows

FLOAT, INTEGER, BOOLEAN, TEXT, NOTHING = range(5)
"""The Python type of a stored value."""


@dataclass(frozen=True)
class Tables:
    """The tables by name; ``metadata`` creates them all."""

    metadata: Any
    about: Any
    configurations: Any
    settings: Any
    runs: Any
    parents: Any
    statistics: Any
    histories: Any
    series: Any
    points: Any
    artifacts: Any
    origins: Any
    jobs: Any
    searches: Any
    trials: Any
    reports: Any
    device_tickets: Any


@functools.cache
def get_tables() -> Tables:
    """Return the tables; this imports SQLAlchemy, so call it only when a database is opened."""
    import sqlalchemy as sa

    big_integer, integer = (
        create_checked_type(sa.BigInteger, int),
        create_checked_type(sa.Integer, int),
    )
    small_integer, double, boolean = (
        create_checked_type(sa.SmallInteger, int),
        create_checked_type(sa.Double, float),
        create_checked_type(sa.Boolean, bool),
    )
    moment, fraction = (
        create_checked_type(sa.Double, float, _LAST),
        create_checked_type(sa.Double, float, 1e6),
    )
    metadata = sa.MetaData()
    text = create_checked_type(sa.Text, str)().with_variant(sa.Text(collation="C"), "postgresql")
    # SQLite auto-increments only INTEGER columns
    identity = big_integer().with_variant(integer(), "sqlite")

    def create_column(name: str, kind: Any, **options: Any) -> Any:
        return sa.Column(name, kind, nullable=options.pop("nullable", False), **options)

    def create_run_column(primary: bool = True) -> Any:
        key = sa.ForeignKey("nnpipe_runs.id", ondelete="CASCADE")
        return sa.Column("run", text, key, primary_key=primary, nullable=False, index=not primary)

    def create_table(name: str, *columns: Any, **options: Any) -> Any:
        return sa.Table(f"nnpipe_{name}", metadata, *columns, **options)

    found = Tables(
        metadata=metadata,
        about=create_table(
            "about", create_column("name", text, primary_key=True), create_column("value", text)
        ),
        configurations=create_table(
            "configurations",
            create_column("digest", text, primary_key=True),  # SHA-256 of the tree
            create_column("tree", text),  # JSON
        ),
        settings=create_table(  # the leaves of the trees, for queries
            "settings",
            sa.Column(
                "configuration",
                text,
                sa.ForeignKey("nnpipe_configurations.digest", ondelete="CASCADE"),
                primary_key=True,
            ),
            create_column("path", text, primary_key=True),  # optimiser.arguments.lr
            create_column("kind", small_integer),
            create_column("number", double, nullable=True),
            create_column("text", text, nullable=True),
            sa.Index("nnpipe_settings_by_path", "path"),
        ),
        runs=create_table(
            "runs",
            create_column("id", text, primary_key=True),
            create_column("experiment", text, index=True),
            sa.Column(
                "configuration",
                text,
                sa.ForeignKey("nnpipe_configurations.digest"),
                nullable=False,
                index=True,
            ),
            create_column("status", text),
            create_column("reason", text),
            create_column("done", big_integer),
            create_column("total", big_integer),
            create_column("created", moment, index=True),
            create_column("started", moment, nullable=True),  # the last start
            create_column("ended", moment, nullable=True),
            create_column("host", text),
            create_column("process", big_integer, nullable=True),  # the owner while it runs
            create_column("process_started", moment, nullable=True),
            create_column("environment", text),  # JSON
        ),
        parents=create_table(
            "parents",
            create_run_column(),
            sa.Column(
                "parent", text, sa.ForeignKey("nnpipe_runs.id"), primary_key=True, index=True
            ),
            create_column("position", integer),
        ),
        statistics=create_table(
            "statistics",
            create_run_column(),
            create_column("name", text, primary_key=True),
            create_column("position", integer),
            create_column("count", big_integer),
            *(
                create_column(name, double, nullable=True)
                for name in ("weight", "mean", "spread", "least", "greatest")
            ),
        ),
        histories=create_table(
            "histories",
            sa.Column("id", identity, primary_key=True, autoincrement=True),
            create_run_column(primary=False),
            create_column("name", text),
            create_column("rows", big_integer),
            sa.UniqueConstraint("run", "name", name="nnpipe_histories_by_name"),
        ),
        series=create_table(
            "series",
            sa.Column("id", identity, primary_key=True, autoincrement=True),
            sa.Column(
                "history",
                identity,
                sa.ForeignKey("nnpipe_histories.id", ondelete="CASCADE"),
                nullable=False,
            ),
            create_column("name", text),
            sa.UniqueConstraint("history", "name", name="nnpipe_series_by_name"),
        ),
        points=create_table(
            "points",
            sa.Column(
                "series",
                identity,
                sa.ForeignKey("nnpipe_series.id", ondelete="CASCADE"),
                primary_key=True,
                autoincrement=False,
            ),
            sa.Column("row", big_integer, primary_key=True, autoincrement=False),
            create_column("kind", small_integer),
            create_column("value", double, nullable=True),
            sqlite_with_rowid=False,
        ),
        artifacts=create_table(
            "artifacts",
            create_run_column(),
            create_column("name", text, primary_key=True),
            create_column("kind", text),  # state, arrays or file
            create_column("digest", text, index=True),  # SHA-256 of the content
            create_column("size", big_integer),
            create_column("suffix", text),
            create_column("created", moment),
        ),
        origins=create_table(
            "origins",
            create_run_column(),
            create_column("path", text, primary_key=True),  # of the class or function
            create_column("module", text),
            create_column("package", text),
            create_column("version", text),
            create_column("commit", text),
            create_column("dirty", boolean, nullable=True),
            create_column("sha256", text),
        ),
        jobs=create_table(  # further columns of a run that is a job
            "jobs",
            create_run_column(),
            create_column("place", text),
            create_column("folder", text),
            create_column("state", text),
            create_column("fraction", fraction, nullable=True),
            create_column("attempt", integer),
            create_column("settled", boolean, index=True),
            create_column("details", text),  # JSON
        ),
        searches=create_table(  # further columns of a run that is a search
            "searches",
            create_run_column(),
            create_column("objectives", text),  # JSON: minimize or maximize, by name
            create_column("version", big_integer),  # the number of changes to its trials
            create_column("next", big_integer),  # the number of the next trial
            create_column("trials", big_integer),  # without those taken over from elsewhere
        ),
        trials=create_table(
            "trials",
            sa.Column(
                "search",
                text,
                sa.ForeignKey("nnpipe_searches.run", ondelete="CASCADE"),
                primary_key=True,
            ),
            sa.Column("number", big_integer, primary_key=True, autoincrement=False),
            create_column("state", text),
            create_column("configuration", text, nullable=True),  # JSON
            create_column("digest", text, nullable=True),  # SHA-256 of the configuration's key
            create_column("notes", text),  # JSON
            create_column("results", text),  # JSON: the value of each objective
            # JSON: the ends of those of measured values
            create_column("intervals", text, server_default="{}"),
            # SHA-256 of the list of its files in a storage
            create_column("files", text, server_default=""),
            create_column("seconds", double, nullable=True),
            create_column("message", text),
            create_column("worker", text),
            create_column("origin", text),
            create_column("fence", big_integer),
            create_column("version", big_integer),
            create_column("started", moment, nullable=True),
            create_column(
                "expires", moment, nullable=True
            ),  # 0 while it waits, NULL when it has ended
            sa.Index("nnpipe_trials_by_version", "search", "version"),
            sa.Index("nnpipe_trials_by_digest", "search", "digest"),
            sa.Index(
                "nnpipe_trials_not_ended",
                "search",
                "number",
                sqlite_where=sa.text("expires IS NOT NULL"),
                postgresql_where=sa.text("expires IS NOT NULL"),
            ),
        ),
        reports=create_table(  # intermediate values of trials
            "reports",
            sa.Column("search", text, primary_key=True),
            sa.Column("number", big_integer, primary_key=True, autoincrement=False),
            sa.Column("step", big_integer, primary_key=True, autoincrement=False),
            create_column("value", double, nullable=True),
            sa.ForeignKeyConstraint(
                ("search", "number"),
                ("nnpipe_trials.search", "nnpipe_trials.number"),
                ondelete="CASCADE",
            ),
        ),
        device_tickets=create_table(  # who uses a shared device, and who waits for it
            "device_tickets",
            # given once, and ever greater
            sa.Column("number", identity, primary_key=True, autoincrement=True),
            create_column("device", text, index=True),
            create_column("holder", text),
            create_column("purpose", text),
            create_column("asked", moment),
            create_column("granted", moment, nullable=True),  # NULL while it waits
            create_column("expires", moment),
            sqlite_autoincrement=True,
        ),
    )
    name_columns(metadata)
    return found


def _add_jobs(connection: Any) -> None:
    get_tables().jobs.create(connection, checkfirst=True)


def _add_searches(connection: Any) -> None:
    for table in (get_tables().searches, get_tables().trials, get_tables().reports):
        table.create(connection, checkfirst=True)


def _add_results(connection: Any) -> None:
    import sqlalchemy as sa
    from sqlalchemy.schema import CreateColumn

    t = get_tables().trials
    known = {each["name"] for each in sa.inspect(connection).get_columns(t.name)}
    for column in (t.c.intervals, t.c.files):
        if column.name not in known:  # the step before creates the table as it is now
            described = CreateColumn(column).compile(connection)
            connection.execute(sa.text(f"ALTER TABLE {t.name} ADD COLUMN {described}"))


def _add_device_tickets(connection: Any) -> None:
    get_tables().device_tickets.create(connection, checkfirst=True)


MIGRATIONS: dict[int, Callable[[Any], None]] = {
    1: _add_jobs,
    2: _add_searches,
    3: _add_results,
    4: _add_device_tickets,
}
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
        found = _read_schema(connection, connections)
    if found == SCHEMA:
        return
    if found is None and not create:
        raise ConfigError(f"{connections.shown}: holds no runs yet")
    connections.prepare_file()
    with connections.begin_write() as connection:
        found = _read_schema(connection, connections)  # another process may have been first
        if found is None:
            get_tables().metadata.create_all(connection)
            connection.execute(
                get_tables().about.insert(), {"name": "schema", "value": str(SCHEMA)}
            )
        elif found < SCHEMA:
            for older in range(found, SCHEMA):
                MIGRATIONS[older](connection)
            connection.execute(
                get_tables().about.update().values(value=str(SCHEMA)).where(_is_schema())
            )


def _is_schema() -> Any:
    return get_tables().about.c.name == "schema"


def _read_schema(connection: Any, connections: Connections) -> int | None:
    import sqlalchemy as sa

    if not connections.postgresql:
        _check_plain(connection)
    names = sa.inspect(connection).get_table_names()
    if get_tables().about.name not in names:
        # A PostgreSQL database may be shared; a file belongs to one.
        if names and not connections.postgresql:
            raise ArtifactError(
                f"{connections.shown}: an SQLite database of something else, not a run database"
            )
        return None
    text = str(
        connection.execute(sa.select(get_tables().about.c.value).where(_is_schema())).scalar()
    )
    schema = int(text) if text.isascii() and text.isdigit() and len(text) < 9 else -1
    if schema > SCHEMA:
        raise ArtifactError(
            f"{connections.shown}: written by a newer nnpipe (schema {schema}, not {SCHEMA}): "
            f"upgrade nnpipe"
        )
    if schema != SCHEMA and schema not in MIGRATIONS:
        raise ArtifactError(
            f"{connections.shown}: of schema {text[:20]}, which this nnpipe does not read"
        )
    return schema


def _check_plain(connection: Any) -> None:
    """Raise :class:`WrongValue` if a file has more than tables: views and the like compute what
    their author likes.
    """
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
                    raise WrongValue(
                        f"{name}.{column} is computed, not stored, which no run database does"
                    )
