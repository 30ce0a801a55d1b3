"""Jobs: runs that are carried out by subprocesses, on this machine or another."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nnpipe.core.errors import ConfigError
from nnpipe.core.progress import MOST_METRICS
from nnpipe.experiment.configuration import Configuration
from nnpipe.experiment.database import _run_lookup
from nnpipe.experiment.database._tables import get_tables
from nnpipe.experiment.database._values import decode_double, parse_object
from nnpipe.experiment.database.connections import Connections
from nnpipe.experiment.database.records import RunRecord
from nnpipe.experiment.database.run_statistics import build_statistic_rows, insert_statistics
from nnpipe.experiment.database.runs import (
    get_owner_columns,
    insert,
    may_be_alive,
    replace_unstorable,
)

NOT_STARTED, CREATING, INITIALISING, IN_PROGRESS = (
    "not started",
    "creating",
    "initialising",
    "in progress",
)
COMPLETED, CANCELLED, FAILED = "completed", "cancelled", "failed"

ENDED = (COMPLETED, CANCELLED, FAILED)

STATUS = {
    NOT_STARTED: "created",
    CREATING: "created",
    INITIALISING: "running",
    IN_PROGRESS: "running",
    COMPLETED: "completed",
    CANCELLED: "cancelled",
    FAILED: "failed",
}
"""The states of a job, with the status of its run in each."""


@dataclass(frozen=True, kw_only=True)
class JobRecord:
    """A job as it was when the database was read.

    Parameters
    ----------
    run
        The job's run.
    place
        The place where it runs: ``here``, or an address such as ``ssh://host``.
    folder
        Its folder at that place.
    state
        One of :data:`STATUS`.
    fraction
        The share of the work that is done, from 0 to 1; None if it is not known.
    attempt
        The number of the attempt, from 1.
    settled
        Whether everything that follows its end has been done.
    details
        The settings of its submission, and the state of its outputs.
    """

    run: RunRecord
    place: str
    folder: str
    state: str
    fraction: float | None
    attempt: int
    settled: bool
    details: Mapping[str, Any] = field(repr=False)

    @property
    def id(self) -> str:
        """The run's identity."""
        return self.run.id

    @property
    def ended(self) -> bool:
        """Whether it has ended, in any way."""
        return self.state in ENDED


class Jobs:
    """The jobs of a database."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def create(
        self,
        name: str,
        configuration: Configuration,
        *,
        place: str,
        environment: Mapping[str, Any] | None = None,
    ) -> str:
        """Create a job that has not started, owned by this process until it starts; return its
        run's identity.
        """
        with self._connections.begin_write() as connection:
            run = insert(connection, name, configuration, (), environment)
            connection.execute(
                get_tables().jobs.insert(),
                {
                    "run": run,
                    "place": place,
                    "folder": "",
                    "state": NOT_STARTED,
                    "attempt": 1,
                    "settled": False,
                    "details": "{}",
                },
            )
            table = get_tables().runs
            connection.execute(
                table.update().where(table.c.id == run).values(**get_owner_columns())
            )
            return run

    def get(self, job: str) -> JobRecord:
        """Return one job.

        Parameters
        ----------
        job
            The identity of its run, or the beginning of one; or its name, which stands for
            the newest job of that name.

        Raises
        ------
        ConfigError
            If there is no such run, or it is not a job.
        """
        with self._connections.reading() as connection:
            identity = _run_lookup.find_identity(connection, job)
            found = self._read_records(connection, [identity])
        # A newer run may have the job's name, for example that of the experiment that the job
        # carries out.
        found = found or self.find(job, limit=1)
        if not found:
            raise ConfigError(f"run {identity[:12]} is no job; nnpipe jobs list shows the jobs")
        return found[0]

    def find(self, name: str | None = None, *, limit: int | None = None) -> list[JobRecord]:
        """Return all jobs, or those of a name, the newest first."""
        import sqlalchemy as sa

        jobs, runs = get_tables().jobs, get_tables().runs
        query = sa.select(jobs.c.run).join(runs, runs.c.id == jobs.c.run)
        if name is not None:
            query = query.where(runs.c.experiment == name)
        with self._connections.reading() as connection:
            query = query.order_by(runs.c.created.desc(), runs.c.id).limit(limit)
            return self._read_records(connection, list(connection.scalars(query)))

    def record_state(
        self,
        job: JobRecord,
        state: str,
        *,
        reason: str | None = None,
        fraction: float | None = None,
        process: tuple[int, float] | None = None,
        host: str | None = None,
        folder: str | None = None,
        settled: bool | None = None,
        details: Mapping[str, Any] | None = None,
        began: float | None = None,
        at: float | None = None,
        figures: Mapping[str, float] | None = None,
    ) -> bool:
        """Record a job's state, unless a newer one has been recorded.

        Parameters
        ----------
        job
            The job as it was read.  If a new attempt has begun since, nothing is recorded.
        state
            The new state.  The state of an ended job does not change.
        reason, fraction, folder, settled, details
            New values; details are added to the present ones.
        process, host
            The process that carries it out, and its machine: the process's id and its start in
            seconds since 1970.
        began
            The start of its work in seconds since 1970; by default now, if this is its first
            running state.
        at
            Its end in seconds since 1970; by default now.
        figures
            Its latest figures by name.  At most ``MOST_METRICS`` names are stored, also with
            several observers.

        Returns
        -------
        bool
            Whether the state was recorded.
        """
        runs, jobs, rows = get_tables().runs, get_tables().jobs, build_statistic_rows(figures or {})
        with self._connections.begin_write() as connection:
            found = self._read_records(connection, [job.id])
            if (
                not found
                or found[0].attempt != job.attempt
                or (found[0].ended and state != found[0].state)
            ):
                return False
            before = found[0]
            about: dict[str, Any] = {"state": state}
            about |= {"fraction": fraction} if fraction is not None else {}
            about |= {"folder": folder} if folder is not None else {}
            about |= {"settled": settled} if settled is not None else {}
            about |= (
                {"details": json.dumps({**before.details, **details})}
                if details is not None
                else {}
            )
            connection.execute(jobs.update().where(jobs.c.run == job.id).values(**about))
            values = _compute_run_changes(before, state, began, at or time.time()) | (
                {"reason": replace_unstorable(reason)} if reason is not None else {}
            )
            if fraction is not None:
                values |= {"done": round(100 * fraction), "total": 100}
            if process is not None and not values.get("ended"):
                values |= {"process": process[0], "process_started": process[1]}
            if host is not None:
                values |= {"host": replace_unstorable(host)}
            connection.execute(runs.update().where(runs.c.id == job.id).values(**values))
            insert_statistics(connection, job.id, rows, MOST_METRICS)
            return True

    def begin_attempt(self, job: JobRecord) -> JobRecord:
        """Begin another attempt of a cancelled or failed job, owned by this process until it
        starts.

        Raises
        ------
        ConfigError
            If the job is completed or has not ended.
        """
        runs, jobs = get_tables().runs, get_tables().jobs
        with self._connections.begin_write() as connection:
            (before,) = self._read_records(connection, [job.id])
            if before.state not in (CANCELLED, FAILED):
                raise ConfigError(
                    f"job {job.id[:12]} is {before.state}; only what was cancelled or failed is "
                    f"resumed"
                )
            values = {"state": CREATING, "attempt": before.attempt + 1, "settled": False}
            connection.execute(jobs.update().where(jobs.c.run == job.id).values(**values))
            status = {
                "status": STATUS[CREATING],
                "reason": "",
                "ended": None,
                **get_owner_columns(),
            }
            connection.execute(runs.update().where(runs.c.id == job.id).values(**status))
            return self._read_records(connection, [job.id])[0]

    def is_abandoned(self, job: JobRecord) -> bool:
        """Return whether a job has not started and the process that should start it has ended."""
        with self._connections.reading() as connection:
            run = _run_lookup.read_records(connection, [job.id])[0]
            here = run.host == platform.node()
            return here and run.status == "created" and not may_be_alive(connection, run)

    def _read_records(self, connection: Any, identities: list[str]) -> list[JobRecord]:
        import sqlalchemy as sa

        table = get_tables().jobs
        rows: dict[str, Any] = {}
        for begin in range(0, len(identities), 500):
            query = sa.select(table).where(table.c.run.in_(identities[begin : begin + 500]))
            rows |= {row.run: row for row in connection.execute(query)}
        runs = _run_lookup.read_records(
            connection, [identity for identity in identities if identity in rows]
        )
        return [
            JobRecord(
                run=run,
                place=row.place,
                folder=row.folder,
                state=row.state,
                attempt=row.attempt,
                settled=row.settled,
                fraction=None if row.fraction is None else decode_double(row.fraction),
                details=parse_object(row.details, f"job {row.run[:12]}"),
            )
            for run in runs
            for row in (rows[run.id],)
        ]


def _compute_run_changes(
    before: JobRecord, state: str, began: float | None, now: float
) -> dict[str, Any]:
    """Return the columns of a run that change when its job enters a state."""
    values: dict[str, Any] = {"status": STATUS[state]}
    started = {} if began is None else {"started": began}
    if state in ENDED and not before.ended:
        values |= {"ended": now, "process": None, "process_started": None, **started}
    elif STATUS[state] == "running" and before.run.status != "running":
        values |= {"started": now, "process": None, "process_started": None, **started}
    return values
