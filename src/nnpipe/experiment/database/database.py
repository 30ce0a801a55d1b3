"""The run database."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nnpipe.core.argument_checks import check_call
from nnpipe.core.closing import Closing
from nnpipe.core.errors import ConfigError
from nnpipe.experiment.database import _run_lookup
from nnpipe.experiment.database._tables import get_tables
from nnpipe.experiment.database.artifacts import Artifacts
from nnpipe.experiment.database.connections import Connections
from nnpipe.experiment.database.device_queues import DeviceQueues
from nnpipe.experiment.database.jobs import Jobs
from nnpipe.experiment.database.run_statistics import RunFigures
from nnpipe.experiment.database.runs import Runs
from nnpipe.experiment.database.searches import Searches
from nnpipe.experiment.provenance import Origin


class RunDatabase(Closing):
    """A database of runs, in an SQLite file or in PostgreSQL, with the same behaviour.

    ::

        with RunDatabase("runs.sqlite") as database:
            run = database.runs.create("digits", configuration)
            database.runs.enter(run, "running")
            database.figures.put_history(run, "training", [{"epoch": 1, "loss": 0.5}])
            database.figures.put_statistics(run, {"accuracy": 0.98})
            database.runs.enter(run, "completed")
            database.runs.find("statistics.accuracy > 0.9", order="-statistics.accuracy")

    Every method is one transaction; :meth:`together` combines several.  Threads and
    processes, including forked ones, may use a database at the same time.  A file on
    a network drive can be used by only one machine at a time (see
    https://sqlite.org/wal.html); use PostgreSQL for several machines.

    Parameters
    ----------
    address
        The path of a file, or ``postgresql://user@host/name``.
    store
        The folder for artifacts; by default the path of the file with ``.artifacts``
        appended.  PostgreSQL has no default.
    create
        Whether to create the database if it does not exist.
    patience
        Seconds to wait while another process writes.

    Raises
    ------
    ConfigError
        If the address is of an unknown kind, or cannot be reached.
    ArtifactError
        If the database is damaged, not a run database, or of a newer schema.
    MissingDependency
        If SQLAlchemy or psycopg is not installed.
    """

    def __init__(
        self,
        address: str | Path,
        *,
        store: str | Path | None = None,
        create: bool = True,
        patience: float = 60.0,
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
        self.searches = Searches(self._connections)
        self.devices = DeviceQueues(self._connections)
        self.artifacts = Artifacts(self._connections, None if store is None else Path(store))

    @property
    def shown(self) -> str:
        """The address for messages, without a password."""
        return self._connections.shown

    @property
    def opened_by(self) -> tuple[str, str | None]:
        """The address and the store with which any other process opens it; the address may hold
        a password.
        """
        if self._connections.postgresql:
            return self._address, self._store
        return str(Path(str(self._connections.url.database)).absolute()), self._store

    def delete(self, runs: Iterable[str], *, even_if_running: bool = False) -> list[str]:
        """Delete runs with everything that belongs to them, including files that no other run
        needs; all runs or none.

        Returns
        -------
        list of str
            The identities of the deleted runs.

        Raises
        ------
        ConfigError
            If a run does not exist, is running, or is a parent of a run that is kept.
        """
        given = list(runs)
        files = [
            (artifact.digest, artifact.suffix)
            for run in given
            for artifact in self.artifacts.list(run)
        ]
        deleted = self.runs.delete(given, even_if_running=even_if_running)
        self.artifacts.collect(files)
        return deleted

    @contextmanager
    def together(self) -> Iterator[None]:
        """Combine everything that this thread does in the block into one transaction.

        Every transaction waits for the disk, so combine those that belong together::

            with database.together():
                database.figures.put_history(run, "training", rows)
                database.figures.put_statistics(run, {"accuracy": 0.98})
                database.runs.enter(run, "completed")

        Artifacts have their own transactions; store them before or after the block.
        """
        with self._connections.together():
            yield

    def add_parent(self, run: str, parent: str) -> None:
        """Add a run on which another is based, unless it is there already.

        Raises
        ------
        ConfigError
            If a run does not exist, or the parent is based on the run itself.
        """
        import sqlalchemy as sa

        table = get_tables().parents
        with self._connections.begin_write() as connection:
            own, other = (_run_lookup.find_identity(connection, name) for name in (run, parent))
            before = list(connection.scalars(sa.select(table.c.parent).where(table.c.run == own)))
            if other in before:
                return
            above, seen = {other}, set[str]()
            while above:
                if own in above:
                    raise ConfigError(
                        f"run {other[:12]} is based on {own[:12]}, so it cannot be its parent"
                    )
                seen |= above
                above = (
                    set(connection.scalars(sa.select(table.c.parent).where(table.c.run.in_(above))))
                    - seen
                )
            connection.execute(
                table.insert(), {"run": own, "parent": other, "position": len(before)}
            )

    def put_origins(self, run: str, origins: Iterable[Origin]) -> None:
        """Store the origins of a run's classes and functions; they replace earlier ones."""
        table = get_tables().origins
        rows = {origin.path: origin.to_json() for origin in origins}
        with self._connections.begin_write() as connection:
            identity = _run_lookup.find_identity(connection, run)
            connection.execute(table.delete().where(table.c.run == identity))
            if rows:
                connection.execute(
                    _run_lookup.insert("origins"),
                    [row | {"run": identity} for row in rows.values()],
                )

    def origins(self, run: str) -> list[Origin]:
        """Return the origins of a run's classes and functions, sorted by path."""
        import sqlalchemy as sa

        table = get_tables().origins
        with self._connections.reading() as connection:
            query = (
                sa.select(table)
                .where(table.c.run == _run_lookup.find_identity(connection, run))
                .order_by(table.c.path)
            )
            return [Origin.from_json(_remove_run_column(row)) for row in connection.execute(query)]

    def close(self) -> None:
        """Close the database."""
        self._connections.close()


def _remove_run_column(row: Any) -> dict[str, Any]:
    return {name: value for name, value in row._mapping.items() if name != "run"}
