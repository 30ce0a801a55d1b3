"""The trials of a search as rows: leased, written with a fencing number, read by version.

Several processes write at the same time, so every transaction locks the row of its trial first and
the row of the search second, and keeps the latter, which counts versions and numbers, for a
statement or two only.
"""

from __future__ import annotations

import functools
import hashlib
import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from nnpipe.core.errors import ConfigError
from nnpipe.experiment.database._tables import WrongValue, get_tables
from nnpipe.experiment.database._values import (
    build_server_time,
    decode_double,
    encode_double,
    parse_numbers,
    parse_object,
)
from nnpipe.experiment.database.connections import Connections
from nnpipe.experiment.database.runs import replace_unstorable

WAITING = 0.0
"""When the lease of a waiting trial expired."""


@dataclass(frozen=True)
class TrialStatements:
    """The statements, built once: building one takes longer than executing it."""

    version: Any
    changed: Any
    reported: Any
    unended: Any
    first_open: Any
    own: Any
    known: Any
    move: Any
    insert: Any
    change: Any
    renew: Any
    release: Any
    remove: Any
    give_back: Any
    insert_report: Any
    change_report: Any
    forget_reports: Any


@functools.cache
def build_trial_statements(of_server: bool) -> TrialStatements:
    """Return the statements; ``of_server`` says whether the time is that of PostgreSQL, or the
    value of ``time``.
    """
    import sqlalchemy as sa

    t, searches, reports = get_tables().trials, get_tables().searches, get_tables().reports
    search: Any = sa.bindparam("of_search")
    number: Any = sa.bindparam("of_number")
    now: Any = sa.bindparam("time", type_=sa.Double())
    if of_server:
        now = build_server_time()
    later = now + sa.bindparam("lasting", type_=sa.Double())
    this_search, this_trial = (
        searches.c.run == search,
        (t.c.search == search) & (t.c.number == number),
    )
    leased = this_trial & (t.c.fence == sa.bindparam("of_fence")) & (t.c.state == "running")
    this_report = (reports.c.search == search) & (reports.c.number == number)
    same_trial = (t.c.search == reports.c.search) & (t.c.number == reports.c.number)
    recent = (t.c.search == search) & (t.c.version > sa.bindparam("after"))
    not_ended = (t.c.search == search) & t.c.expires.is_not(None)
    of_worker = not_ended & (t.c.worker == sa.bindparam("of_worker")) & (t.c.state == "running")
    counted = {
        "version": searches.c.version + sa.bindparam("versions"),
        "next": searches.c.next + sa.bindparam("numbers"),
        "trials": searches.c.trials + sa.bindparam("new"),
    }
    return TrialStatements(
        version=sa.select(searches.c.version).where(this_search),
        changed=sa.select(t, sa.exists().where(same_trial).label("has_reports"))
        .where(recent)
        .order_by(t.c.version),
        reported=sa.select(reports.c.number, reports.c.step, reports.c.value)
        .join(t, same_trial)
        .where(recent)
        .order_by(reports.c.number, reports.c.step),
        unended=sa.select(t).where(not_ended).order_by(t.c.number),
        first_open=sa.select(t)
        .where(not_ended & (t.c.expires <= now))
        .order_by(t.c.number)
        .limit(1)
        .with_for_update(skip_locked=True),
        own=sa.select(t.c.started).where(leased).with_for_update(),
        known=sa.select(t.c.number)
        .where(t.c.search == search, t.c.digest == sa.bindparam("of_digest"))
        .limit(1),
        move=searches.update()
        .where(this_search, searches.c.trials < sa.bindparam("limit"))
        .values(counted)
        .returning(searches.c.version, searches.c.next, now.label("now")),
        insert=t.insert(),
        change=t.update().where(this_trial),
        renew=t.update().where(leased).values(expires=later),
        release=t.update().where(of_worker).values(expires=WAITING),
        remove=t.delete().where(this_trial),
        give_back=searches.update()
        .where(this_search)
        .values(
            trials=searches.c.trials - 1,
            next=sa.case((searches.c.next == number + 1, number), else_=searches.c.next),
        ),
        insert_report=reports.insert(),
        change_report=reports.update().where(
            this_report & (reports.c.step == sa.bindparam("of_step"))
        ),
        forget_reports=reports.delete().where(this_report),
    )


_NO_LIMIT = (1 << 63) - 1


class TrialRows:
    """The trials of one search in a database.

    Trials are returned as the fields of :class:`~nnpipe.searching.trial_store.SearchTrial` by name.
    Every method is one transaction.  Those that take a fencing number return whether it is the last
    one that was given for the trial; if not, they write nothing.

    Parameters
    ----------
    connections
        The database.
    search
        The identity of the search's run.
    clock
        Returns the time in seconds since 1970 UTC; by default PostgreSQL's own, which all machines
        share, or the time of this machine.
    """

    def __init__(
        self, connections: Connections, search: str, clock: Callable[[], float] | None = None
    ) -> None:
        self._connections = connections
        self.search = search
        self._clock = clock or time.time
        self._of_server = connections.postgresql and clock is None
        self._do = build_trial_statements(self._of_server)

    def read_changes(self, version: int) -> tuple[int, list[dict[str, Any]]]:
        """Return the version now, and the trials that changed after another one, in the order of
        their changes.
        """
        of = self._get_key() | {"after": version}
        reports: dict[int, list[tuple[int, float]]] = defaultdict(list)
        with self._connections.reading() as connection:
            rows = connection.execute(self._do.changed, of).all()
            if not rows and connection.scalar(self._do.version, of) is None:
                raise self._create_deleted_error()
            for number, step, value in (
                connection.execute(self._do.reported, of)
                if any(row.has_reports for row in rows)
                else ()
            ):
                reports[number].append((step, decode_double(value)))
            # Trials change one after the other, each with the next version.
            now = rows[-1].version if rows else version
            return int(now), [_decode_row(row, tuple(reports[row.number])) for row in rows]

    def read_unfinished(self) -> list[dict[str, Any]]:
        """Return the trials that have not ended, by number and without their reports."""
        with self._connections.reading() as connection:
            return [
                _decode_row(row, ())
                for row in connection.execute(self._do.unended, self._get_key())
            ]

    def take(self, worker: str, seconds: float, limit: int) -> tuple[dict[str, Any], float] | None:
        """Lease the first trial that waits or whose lease has expired, or a new one below the
        limit.

        Returns
        -------
        tuple of dict and float, or None
            The trial, and when its lease expires; ``None`` if there is nothing to do.
        """
        worker = replace_unstorable(worker)
        with self._connections.begin_write(alone=False) as connection:
            row = connection.execute(
                self._do.first_open, self._get_key() | self._get_time()
            ).first()
            moved = (
                self._advance_search(connection)
                if row is not None
                else self._advance_search(connection, 1, 1, limit)
            )
            if moved is None:
                return None
            expires = moved.now + seconds
            fence = row.fence + 1 if row is not None else 1
            shown = {"state": "running", "worker": worker, "version": moved.version, "fence": fence}
            leased = {**shown, "started": moved.now, "expires": expires}
            if row is not None:
                connection.execute(self._do.change, self._get_key(row.number) | leased)
                connection.execute(self._do.forget_reports, self._get_key(row.number))
                return _decode_row(row, ()) | shown, expires
            number = {"search": self.search, "number": moved.next - 1}
            connection.execute(self._do.insert, {**_NEW, **number, **leased})
            return {"number": moved.next - 1, "configuration": None, **shown}, expires

    def configure(
        self,
        number: int,
        fence: int,
        configuration: Mapping[str, Any],
        notes: Mapping[str, Any],
        key: str | None,
    ) -> tuple[bool, int | None]:
        """Store the configuration of a trial.

        Parameters
        ----------
        number, fence
            The trial, and the lease's fencing number.
        configuration, notes
            What is stored.
        key
            A text that is equal for equal configurations; nothing is stored if another trial has
            it.  ``None`` if several trials may have one configuration.

        Returns
        -------
        tuple of bool and int or None
            Whether the lease is valid, and the version; ``None`` if nothing was stored.
        """
        digest = None if key is None else _compute_digest(key)
        with self._lock_trial(number, fence) as (connection, row):
            if row is None:
                return False, None
            # locks the search before the look at what is known
            version = self._advance_search(connection).version
            if self._is_known(connection, digest):
                return True, None
            values = {
                **_encode_configuration(configuration, digest),
                "notes": json.dumps(dict(notes)),
                "version": version,
            }
            connection.execute(self._do.change, self._get_key(number) | values)
            return True, version

    def withdraw(self, number: int, fence: int) -> bool:
        """Remove a trial that has no configuration."""
        with self._lock_trial(number, fence) as (connection, row):
            if row is not None:
                connection.execute(self._do.remove, self._get_key(number))
                connection.execute(self._do.give_back, self._get_key(number))
            return row is not None

    def report(self, number: int, fence: int, step: int, value: float, seconds: float) -> bool:
        """Store an intermediate value, and extend the lease to ``seconds`` from now."""
        with self._lock_trial(number, fence) as (connection, row):
            if row is None:
                return False
            of = self._get_key(number) | {"of_step": step, "value": encode_double(value)}
            if not connection.execute(self._do.change_report, of).rowcount:
                report = {
                    "search": self.search,
                    "number": number,
                    "step": step,
                    "value": encode_double(value),
                }
                connection.execute(self._do.insert_report, report)
            moved = self._advance_search(connection)
            values = {"version": moved.version, "expires": moved.now + seconds}
            connection.execute(self._do.change, self._get_key(number) | values)
            return True

    def renew(self, number: int, fence: int, seconds: float) -> bool:
        """Extend a lease to ``seconds`` from now."""
        of = self._get_key(number) | self._get_time() | {"of_fence": fence, "lasting": seconds}
        with self._connections.begin_write(alone=False) as connection:
            return bool(connection.execute(self._do.renew, of).rowcount)

    def end(
        self, number: int, fence: int, state: str, message: str, result: Mapping[str, Any]
    ) -> tuple[float, int] | None:
        """End a trial; its result has ``values``, ``intervals`` and ``files``.

        Returns
        -------
        tuple of float and int, or None
            The seconds since it was leased, and the version; ``None`` if the lease is not valid.
        """
        with self._lock_trial(number, fence) as (connection, row):
            if row is None:
                return None
            moved = self._advance_search(connection)
            ended = {
                "state": state,
                "results": json.dumps(dict(result["values"])),
                "message": replace_unstorable(message),
                "intervals": json.dumps(dict(result["intervals"])),
                "files": replace_unstorable(result["files"]),
                "expires": None,
                "seconds": moved.now - row.started,
                "version": moved.version,
            }
            connection.execute(self._do.change, self._get_key(number) | ended)
            return float(ended["seconds"]), int(moved.version)

    def release(self, worker: str) -> int:
        """End the leases of a worker; return how many it had."""
        with self._connections.begin_write(alone=False) as connection:
            return int(
                connection.execute(
                    self._do.release, self._get_key() | {"of_worker": replace_unstorable(worker)}
                ).rowcount
            )

    def add(
        self,
        trials: Sequence[tuple[Mapping[str, Any], str | None, Mapping[str, Any]]],
        counted: bool,
    ) -> int:
        """Add trials.

        Parameters
        ----------
        trials
            For each its configuration, its key as in :meth:`configure`, and the columns that differ
            from those of a waiting trial.
        counted
            Whether they count towards the limit of :meth:`take`.

        Returns
        -------
        int
            How many were added: those whose configuration was not known.
        """
        with self._connections.begin_write(alone=False) as connection:
            before = self._advance_search(
                connection, 0
            )  # locks the search before the look at what is known
            rows: dict[str | int, dict[str, Any]] = {}
            for configuration, key, columns in trials:
                digest = None if key is None else _compute_digest(key)
                if self._is_known(connection, digest):
                    continue
                row = {
                    **_NEW,
                    "search": self.search,
                    **_encode_configuration(configuration, digest),
                    **columns,
                }
                rows.setdefault(digest or len(rows), row)
            for place, row in enumerate(rows.values()):
                row |= {"number": before.next + place, "version": before.version + place + 1}
            if rows:
                connection.execute(self._do.insert, list(rows.values()))
                self._advance_search(
                    connection, len(rows), len(rows) if counted else 0, numbers=len(rows)
                )
            return len(rows)

    @contextmanager
    def _lock_trial(self, number: int, fence: int) -> Iterator[tuple[Any, Any]]:
        """Yield a connection with a trial's row locked, and the row; ``None`` if another fencing
        number is the last.
        """
        with self._connections.begin_write(alone=False) as connection:
            yield (
                connection,
                connection.execute(
                    self._do.own, self._get_key(number) | {"of_fence": fence}
                ).first(),
            )

    def _advance_search(
        self,
        connection: Any,
        versions: int = 1,
        trials: int = 0,
        limit: int = _NO_LIMIT,
        numbers: int | None = None,
    ) -> Any:
        """Lock and count up the search; return its version, its next number and the time, or
        ``None`` at the limit.
        """
        counts = {
            "versions": versions,
            "new": trials,
            "numbers": trials if numbers is None else numbers,
        }
        moved = connection.execute(
            self._do.move, self._get_key() | self._get_time() | counts | {"limit": limit}
        ).first()
        if moved is None and connection.scalar(self._do.version, self._get_key()) is None:
            raise self._create_deleted_error()
        return moved

    def _is_known(self, connection: Any, digest: str | None) -> bool:
        of = self._get_key() | {"of_digest": digest}
        return digest is not None and connection.scalar(self._do.known, of) is not None

    def _get_key(self, number: int | None = None) -> dict[str, Any]:
        return {"of_search": self.search} | ({} if number is None else {"of_number": number})

    def _get_time(self) -> dict[str, float]:
        return {} if self._of_server else {"time": self._clock()}

    def _create_deleted_error(self) -> ConfigError:
        return ConfigError(f"{self._connections.shown}: search {self.search[:12]} has been deleted")


_NEW: dict[str, Any] = {
    "state": "waiting",
    "configuration": None,
    "digest": None,
    "notes": "{}",
    "results": "{}",
    "message": "",
    "intervals": "{}",
    "files": "",
    "worker": "",
    "origin": "",
    "fence": 0,
    "started": None,
    "expires": WAITING,
    "seconds": None,
}


def _encode_configuration(configuration: Mapping[str, Any], digest: str | None) -> dict[str, Any]:
    return {"configuration": json.dumps(dict(configuration)), "digest": digest}


def _compute_digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def _decode_row(row: Any, reports: tuple[tuple[int, float], ...]) -> dict[str, Any]:
    alike = (
        "number",
        "state",
        "seconds",
        "message",
        "worker",
        "origin",
        "fence",
        "version",
        "files",
    )
    what = f"trial {row.number}"
    intervals = parse_object(row.intervals, f"intervals of {what}")
    for name, ends in intervals.items():
        if not (
            isinstance(ends, list)
            and len(ends) == 2
            and all(isinstance(end, (int, float)) for end in ends)
        ):
            raise WrongValue(f"intervals of {what}: {name[:40]!r} is not two numbers")
    return {name: getattr(row, name) for name in alike} | {
        "configuration": None
        if row.configuration is None
        else parse_object(row.configuration, what),
        "values": parse_numbers(row.results, f"values of {what}"),
        "intervals": {name: (low, high) for name, (low, high) in intervals.items()},
        "notes": parse_object(row.notes, f"notes of {what}"),
        "reports": reports,
    }
