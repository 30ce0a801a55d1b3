"""Creating, starting, ending, finding and deleting runs."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from nnpipe.core.errors import ConfigError
from nnpipe.core.secret import hide_settings_secrets
from nnpipe.experiment.configuration import Configuration
from nnpipe.experiment.database import _run_lookup
from nnpipe.experiment.database._tables import get_tables
from nnpipe.experiment.database._values import check_text, iterate_setting_rows
from nnpipe.experiment.database.connections import Connections
from nnpipe.experiment.database.records import RunRecord
from nnpipe.experiment.status import NEXT


def acquire_run(connection: Any, before: RunRecord, *, even_if_running: bool) -> None:
    """Make this process the owner of a run, within a transaction; see :meth:`Runs.acquire`."""
    table = get_tables().runs
    if before.status == "completed":
        raise ConfigError(f"run {before.id[:12]} of {before.experiment} is completed")
    if before.status == "running" and not even_if_running and may_be_alive(connection, before):
        raise ConfigError(
            f"run {before.id[:12]} of {before.experiment} is running in process {before.process} "
            f"on {before.host}; "
            "if that is gone, take it over"
        )
    values = get_owner_columns() | {
        "status": "running",
        "reason": "",
        "started": time.time(),
        "ended": None,
    }
    connection.execute(table.update().where(table.c.id == before.id).values(**values))


def may_be_alive(connection: Any, record: RunRecord) -> bool:
    """Return whether the process that owns a run may still exist; on another machine this is not
    known.
    """
    import psutil
    import sqlalchemy as sa

    if record.process is None:
        return False
    if record.host != platform.node():
        return True
    table = get_tables().runs
    began = connection.scalar(sa.select(table.c.process_started).where(table.c.id == record.id))
    try:
        # Process ids are reused, but not together with the start time.
        return began is None or abs(psutil.Process(record.process).create_time() - began) < 1.0
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True


def get_owner_columns() -> dict[str, Any]:
    """Return the columns of a run that identify this process."""
    import psutil

    return {
        "host": platform.node(),
        "process": os.getpid(),
        "process_started": psutil.Process().create_time(),
    }


class Runs:
    """The runs of a database."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def create(
        self,
        experiment: str,
        configuration: Configuration | None = None,
        *,
        parents: Sequence[str] = (),
        environment: Mapping[str, Any] | None = None,
    ) -> str:
        """Create a run that has not begun, and return its identity.

        Parameters
        ----------
        experiment
            The name of the experiment.
        configuration
            The configuration that it is built from; by default an empty one.
        parents
            The runs on which it is based, such as the one that trained the model that it tests.
        environment
            The environment as JSON can hold it; see
            :func:`nnpipe.experiment.provenance.describe_environment`.

        Returns
        -------
        str
            Its identity.

        Raises
        ------
        ConfigError
            If a parent does not exist, or a text cannot be stored.
        """
        with self._connections.begin_write() as connection:
            return insert(connection, experiment, configuration, parents, environment)

    def get(self, run: str) -> RunRecord:
        """Return one run.

        Parameters
        ----------
        run
            Its identity, or the beginning of it; or the name of an experiment, which stands
            for its newest run.

        Raises
        ------
        ConfigError
            If there is no such run, or several identities begin so.
        """
        with self._connections.reading() as connection:
            return _run_lookup.read_records(
                connection, [_run_lookup.find_identity(connection, run)]
            )[0]

    def find(
        self, where: str = "", *, order: str = "-created", limit: int | None = None
    ) -> list[RunRecord]:
        """Return the runs that fulfil a condition.

        Parameters
        ----------
        where
            A condition in the form of :mod:`nnpipe.experiment.database.query`, such as
            ``status = completed and statistics.accuracy > 0.98``; empty for all.
        order
            The field to sort by, with a leading ``-`` for the greatest first; runs without it come
            last.
        limit
            The greatest number of runs; None for all.

        Raises
        ------
        ConfigError
            If the condition cannot be read; the message names the place.
        """
        with self._connections.reading() as connection:
            found = _run_lookup.find_runs(
                connection, where, order, limit, postgresql=self._connections.postgresql
            )
            return _run_lookup.read_records(connection, found)

    def children(self, run: str) -> list[RunRecord]:
        """Return the runs that have this run as a parent, the oldest first."""
        import sqlalchemy as sa

        table, runs = get_tables().parents, get_tables().runs
        with self._connections.reading() as connection:
            parent = _run_lookup.find_identity(connection, run)
            query = (
                sa.select(runs.c.id)
                .join(table, table.c.run == runs.c.id)
                .where(table.c.parent == parent)
            )
            return _run_lookup.read_records(
                connection, connection.scalars(query.order_by(runs.c.created, runs.c.id)).all()
            )

    def acquire(self, run: str, *, even_if_running: bool = False) -> RunRecord:
        """Make this process the owner of a run; its status becomes ``running``.

        Parameters
        ----------
        run
            Its identity.
        even_if_running
            Whether to take it over even if another process seems to own it.

        Returns
        -------
        RunRecord
            The run as it was before.

        Raises
        ------
        ConfigError
            If the run is completed, or owned by a process that may still exist.
        """
        with self._connections.begin_write() as connection:
            before = _run_lookup.read_records(
                connection, [_run_lookup.find_identity(connection, run)]
            )[0]
            acquire_run(connection, before, even_if_running=even_if_running)
            return before

    def find_or_create(
        self,
        experiment: str,
        configuration: Configuration,
        *,
        parents: Sequence[str] = (),
        environment: Callable[[], Mapping[str, Any]] = dict,
        take_over: bool = False,
    ) -> RunRecord:
        """Make this process the owner of an experiment's newest run, or of a new one if there is
        none.

        Parameters
        ----------
        experiment
            The name of the experiment.
        configuration
            The configuration that it is built from.
        parents
            The runs on which a new run is based.
        environment
            Returns the environment of a new run.
        take_over
            Whether to take it over even if another process seems to own it.

        Returns
        -------
        RunRecord
            The run as it was before; a completed run does not get an owner.

        Raises
        ------
        ConfigError
            If the run was begun with another configuration, or is owned by a process that may still
            exist.
        """
        import sqlalchemy as sa

        table, around = get_tables().runs, environment()
        with self._connections.begin_write() as connection:
            # A job or search may have the name of the experiment that it carries out, but is not
            # one of its runs.
            newest = sa.select(table.c.id).where(table.c.experiment == experiment)
            for other in (get_tables().jobs, get_tables().searches):
                newest = newest.where(~sa.exists().where(other.c.run == table.c.id))
            found = connection.scalar(newest.order_by(table.c.created.desc(), table.c.id).limit(1))
            if found is None:
                found = insert(connection, experiment, configuration, parents, around)
            before = _run_lookup.read_records(connection, [found])[0]
            same = compute_digest(configuration) == compute_digest(
                Configuration(before.configuration)
            )
            # there is nothing to go on with
            if not same and before.status == "failed" and not before.done:
                found = insert(connection, experiment, configuration, parents, around)
                before = _run_lookup.read_records(connection, [found])[0]
            elif not same:
                raise ConfigError(
                    f"{experiment} was begun with another configuration "
                    f"({_describe_difference(before, configuration)}); "
                    "take another name for this one"
                )
            if before.status != "completed":
                acquire_run(connection, before, even_if_running=take_over)
            return before

    def enter(self, run: str, status: str, reason: str = "") -> None:
        """Change the status of a run.

        Raises
        ------
        ConfigError
            If the status is unknown or cannot follow the present one.
        """
        with self._connections.begin_write() as connection:
            identity = _run_lookup.find_identity(connection, run)
            now = connection.scalar(_run_lookup.select("runs", "id", "status"), {"of": identity})
            if status not in NEXT or (status != now and status not in NEXT[now]):
                raise ConfigError(f"run {identity[:12]} is {now} and cannot become {status}")
            values: dict[str, Any] = {"status": status, "reason": replace_unstorable(reason)}
            if status == "running":
                values |= get_owner_columns() | {"started": time.time(), "ended": None}
            elif status != "created":
                values |= {"process": None, "process_started": None, "ended": time.time()}
            connection.execute(_run_lookup.update("runs"), {"of": identity, **values})

    def advance(self, run: str, done: int, total: int = 0) -> None:
        """Record how many steps of a run are done."""
        with self._connections.begin_write() as connection:
            identity = _run_lookup.find_identity(connection, run)
            connection.execute(
                _run_lookup.update("runs"), {"of": identity, "done": done, "total": total}
            )

    def delete(self, runs: Iterable[str], *, even_if_running: bool = False) -> list[str]:
        """Delete runs and everything in the database that only they use; all of them or none.

        :meth:`RunDatabase.delete` also removes files that are no longer needed.

        Raises
        ------
        ConfigError
            If a run does not exist, is running, or is a parent of a run that is kept.
        """
        import sqlalchemy as sa

        table, parents = get_tables().runs, get_tables().parents
        with self._connections.begin_write() as connection:
            going = list(dict.fromkeys(_run_lookup.find_identity(connection, run) for run in runs))
            for record in _run_lookup.read_records(connection, going):
                if (
                    record.status == "running"
                    and not even_if_running
                    and may_be_alive(connection, record)
                ):
                    raise ConfigError(
                        f"run {record.id[:12]} of {record.experiment} is running; stop it first"
                    )
            links = connection.execute(
                sa.select(parents.c.run, parents.c.parent).where(parents.c.parent.in_(going))
            )
            for child, parent in links:
                if child not in going:
                    raise ConfigError(
                        f"run {parent[:12]} is a parent of {child[:12]}; delete that one first, or "
                        f"both"
                    )
            connection.execute(parents.delete().where(parents.c.run.in_(going)))
            connection.execute(table.delete().where(table.c.id.in_(going)))
            connection.info.pop(_run_lookup.SEEN, None)
            unused = ~sa.exists().where(
                table.c.configuration == get_tables().configurations.c.digest
            )
            connection.execute(get_tables().configurations.delete().where(unused))
            return going


def insert(
    connection: Any,
    experiment: str,
    configuration: Configuration | None,
    parents: Sequence[str],
    environment: Mapping[str, Any] | None,
) -> str:
    """Create a run within a transaction; see :meth:`Runs.create`."""
    now, identity = time.time(), uuid.uuid4().hex
    values = {
        "id": identity,
        "experiment": check_text(experiment, "experiment"),
        "configuration": store_configuration(connection, configuration or Configuration({})),
        "status": "created",
        "reason": "",
        "done": 0,
        "total": 0,
        "created": now,
        "host": platform.node(),
        "environment": json.dumps(dict(environment or {}), allow_nan=False),
    }
    connection.execute(_run_lookup.insert("runs"), values)
    known = [_run_lookup.find_identity(connection, parent) for parent in parents]
    for position, parent in enumerate(dict.fromkeys(known)):
        row = {"run": identity, "parent": parent, "position": position}
        connection.execute(get_tables().parents.insert(), row)
    return identity


def _describe_difference(before: RunRecord, configuration: Configuration) -> str:
    new_tree = hide_settings_secrets(configuration.tree)
    old, new = (
        {row["path"]: row for row in iterate_setting_rows(tree)}
        for tree in (before.configuration, new_tree)
    )
    differing = [path for path in {**old, **new} if old.get(path) != new.get(path)]
    return f"{', '.join(differing[:3]) or 'types'}{', ...' if len(differing) > 3 else ''} differs"


def replace_unstorable(reason: str) -> str:
    """Return a reason in a form that can be stored: an error may hold any characters and must
    not be lost.
    """
    return reason.replace("\0", "?").encode("utf-8", "replace").decode("utf-8")


def compute_digest(configuration: Configuration) -> str:
    """Return the SHA-256 of a configuration's tree as it is stored, independent of the order of
    names.
    """
    return hashlib.sha256(
        json.dumps(hide_settings_secrets(configuration.tree), sort_keys=True).encode()
    ).hexdigest()


def store_configuration(connection: Any, configuration: Configuration) -> str:
    """Store a configuration without its secrets, unless it is stored already, and return its
    digest.
    """
    tree, digest = hide_settings_secrets(configuration.tree), compute_digest(configuration)
    if (
        connection.scalar(_run_lookup.select("configurations", "digest", "digest"), {"of": digest})
        is None
    ):
        rows = {row["path"]: row | {"configuration": digest} for row in iterate_setting_rows(tree)}
        connection.execute(
            _run_lookup.insert("configurations"), {"digest": digest, "tree": json.dumps(tree)}
        )
        connection.execute(_run_lookup.insert("settings"), list(rows.values()))
    return digest
