"""The run database."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nnpipe.core.argument_checks import check_call
from nnpipe.core.closing import Closing
from nnpipe.experiment.database import _run_lookup, _sql_statements
from nnpipe.experiment.database._tables import tables
from nnpipe.experiment.database.artifacts import Artifacts
from nnpipe.experiment.database.connections import Connections
from nnpipe.experiment.database.jobs import Jobs
from nnpipe.experiment.database.run_statistics import RunFigures
from nnpipe.experiment.database.runs import Runs
from nnpipe.experiment.provenance import Origin


class RunDatabase(Closing):
    """Everything about runs, in a file of SQLite or in PostgreSQL, which give the same answers.

    ::

        with RunDatabase("runs.sqlite") as database:
            run = database.runs.create("digits", configuration)
            database.runs.enter(run, "running")
            database.figures.put_history(run, "training", [{"epoch": 1, "loss": 0.5}])
            database.figures.put_statistics(run, {"accuracy": 0.98})
            database.runs.enter(run, "completed")
            database.runs.find("statistics.accuracy > 0.9", order="-statistics.accuracy")

    Every method is one transaction: it is kept whole or not at all; :meth:`together` makes one of several.  Threads
    and processes, also forked ones, may use a database at once.  A file on a
    network drive is for one machine at a time, as SQLite's own documentation
    tells (https://sqlite.org/wal.html); use PostgreSQL for several.

    Parameters
    ----------
    address
        A file, or ``postgresql://user@host/name``.
    store
        The folder for artifacts; beside the file, with ``.artifacts`` added,
        by default.  PostgreSQL has no default.
    create
        Make it if it is not there.
    patience
        How many seconds to wait while another process writes.

    Raises
    ------
    ConfigError
        If the address is of no kind known, or nothing can be reached there.
    ArtifactError
        If what is there is damaged, something else, or of a newer schema.
    MissingDependency
        If SQLAlchemy or psycopg is not installed.
    """

    def __init__(
        self, address: str | Path, *, store: str | Path | None = None, create: bool = True, patience: float = 60.0
    ) -> None:
        check_call(RunDatabase, locals())
        self._connections = Connections(address, create=create, patience=patience)
        self._address = str(address)
        if store is None and not self._connections.postgresql:
            store = f"{self._connections.url.database}.artifacts"
        self._store = None if store is None else str(Path(store).absolute())
        self.runs = Runs(self._connections)
        self.figures = RunFigures(self._connections)
        self.jobs = Jobs(self._connections)
        self.artifacts = Artifacts(self._connections, None if store is None else Path(store))

    @property
    def shown(self) -> str:
        """What to call it in messages; without a password."""
        return self._connections.shown

    @property
    def opened_by(self) -> tuple[str, str | None]:
        """The address and the store with which another process opens it, wherever that runs; may hold a password."""
        if self._connections.postgresql:
            return self._address, self._store
        return str(Path(str(self._connections.url.database)).absolute()), self._store

    def delete(self, runs: Iterable[str], *, even_if_running: bool = False) -> list[str]:
        """Delete runs with all that belongs to them, files too unless other runs need them; all runs or none.

        Returns
        -------
        list of str
            The identities of those deleted.

        Raises
        ------
        ConfigError
            If a run is not there, runs, or is a parent of one that stays.
        """
        given = list(runs)
        files = [(artifact.digest, artifact.suffix) for run in given for artifact in self.artifacts.list(run)]
        deleted = self.runs.delete(given, even_if_running=even_if_running)
        self.artifacts.collect(files)
        return deleted

    @contextmanager
    def together(self) -> Iterator[None]:
        """Make one transaction of what this thread does in the block, which is kept whole or not at all.

        Every transaction waits for the disk, so those that come together should be one::

            with database.together():
                database.figures.put_history(run, "training", rows)
                database.figures.put_statistics(run, {"accuracy": 0.98})
                database.runs.enter(run, "completed")

        Artifacts have transactions of their own, and are stored before or after.
        """
        with self._connections.together():
            yield

    def put_origins(self, run: str, origins: Iterable[Origin]) -> None:
        """Store where the classes and functions of a run came from, in place of what was stored of it."""
        table = tables().origins
        rows = {origin.path: origin.to_json() for origin in origins}
        with self._connections.writing() as connection:
            identity = _run_lookup.identity(connection, run)
            connection.execute(table.delete().where(table.c.run == identity))
            if rows:
                connection.execute(
                    _sql_statements.insert("origins"), [row | {"run": identity} for row in rows.values()]
                )

    def origins(self, run: str) -> list[Origin]:
        """Return where the classes and functions of a run came from, by path."""
        import sqlalchemy as sa

        table = tables().origins
        with self._connections.reading() as connection:
            query = sa.select(table).where(table.c.run == _run_lookup.identity(connection, run)).order_by(table.c.path)
            return [Origin.from_json(_without_run(row)) for row in connection.execute(query)]

    def close(self) -> None:
        """Let go of it."""
        self._connections.close()


def _without_run(row: Any) -> dict[str, Any]:
    return {name: value for name, value in row._mapping.items() if name != "run"}
