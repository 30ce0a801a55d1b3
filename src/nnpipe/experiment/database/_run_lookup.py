"""Reading many runs at a time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from nnpipe.core.errors import ConfigError
from nnpipe.core.naming import nearest
from nnpipe.experiment.database import _sql_conditions, _sql_statements
from nnpipe.experiment.database._column_types import WrongValue
from nnpipe.experiment.database._tables import tables
from nnpipe.experiment.database._values import document, unreal
from nnpipe.experiment.database.query import parse_condition, parse_order
from nnpipe.experiment.database.records import RunRecord
from nnpipe.experiment.status import NEXT

SEEN = "nnpipe runs seen"
"""The key under which a connection caches identities found in its transaction."""

_AT_ONCE = 500  # values bound in a statement; SQLite and PostgreSQL take several thousand at least
_DIGITS = frozenset("0123456789abcdef")


def identity(connection: Any, run: str) -> str:
    """Return the full identity of a run; see :meth:`nnpipe.experiment.database.runs.Runs.get`.

    Raises
    ------
    ConfigError
        If there is no such run, or several identities begin so.
    """
    import sqlalchemy as sa

    table = tables().runs
    if not isinstance(run, str) or not run or "\0" in run or not run.isprintable():
        raise ConfigError(f"no run is called {str(run)[:40]!r}")
    whole = len(run) == 32 and set(run) <= _DIGITS
    seen: set[str] = connection.info.setdefault(SEEN, set())
    if run in seen:
        return run
    if whole and connection.scalar(_sql_statements.select("runs", "id", "id"), {"of": run}) is not None:
        seen.add(run)
        return run
    newest = sa.select(table.c.id).where(table.c.experiment == run)
    found = connection.scalar(newest.order_by(table.c.created.desc(), table.c.id).limit(1))
    if found is not None:
        return str(found)
    if set(run) <= _DIGITS and len(run) < 32:
        above = run[:-1] + chr(ord(run[-1]) + 1)  # both backends compare texts by character
        query = sa.select(table.c.id).where(table.c.id >= run, table.c.id < above).order_by(table.c.id).limit(2)
        begin = connection.scalars(query).all()
        if len(begin) > 1:
            raise ConfigError(f"several runs begin with {run}: {begin[0][:12]}, {begin[1][:12]}, ...")
        if begin:
            return str(begin[0])
    names = connection.scalars(sa.select(table.c.experiment).distinct().limit(1000)).all()
    raise ConfigError(f"no run or experiment is called {run[:80]!r}{nearest(run[:80], names)}")


def matching(connection: Any, where: str, order: str, limit: int | None, *, postgresql: bool) -> list[str]:
    """Return the identities of the runs for which a condition holds, in order."""
    import sqlalchemy as sa

    table = tables().runs
    field, descending = parse_order(order)
    column = _sql_conditions.sortable(field, postgresql=postgresql)
    query = sa.select(table.c.id)
    if where.strip():
        query = query.where(_sql_conditions.clause(parse_condition(where), postgresql=postgresql))
    ordered = column.desc() if descending else column.asc()
    query = query.order_by(ordered.nulls_last(), table.c.created.desc(), table.c.id)
    if limit is not None:
        if not 0 <= limit < 1 << 31:
            raise ConfigError(f"limit: expected 0 or more runs, not {limit}")
        query = query.limit(limit)
    return list(connection.scalars(query))


def records(connection: Any, identities: Sequence[str]) -> list[RunRecord]:
    """Return the runs of these identities, in their order."""
    import sqlalchemy as sa

    t = tables()
    rows: dict[str, Any] = {}
    parents: dict[str, list[str]] = defaultdict(list)
    means: dict[str, dict[str, float]] = defaultdict(dict)
    trees: dict[str, Any] = {}
    for some in batches(identities):
        rows |= {row.id: row for row in connection.execute(sa.select(t.runs).where(t.runs.c.id.in_(some)))}
        query = sa.select(t.parents.c.run, t.parents.c.parent).where(t.parents.c.run.in_(some))
        for run, parent in connection.execute(query.order_by(t.parents.c.position)):
            parents[run].append(parent)
        query = sa.select(t.statistics.c.run, t.statistics.c.name, t.statistics.c.mean)
        query = query.where(t.statistics.c.run.in_(some)).order_by(t.statistics.c.position)
        for run, name, mean in connection.execute(query):
            means[run][name] = unreal(mean)
    for some in batches(sorted({row.configuration for row in rows.values()})):
        query = sa.select(t.configurations.c.digest, t.configurations.c.tree)
        for digest, tree in connection.execute(query.where(t.configurations.c.digest.in_(some))):
            trees[digest] = document(tree, f"configuration {digest[:12]}")
    for row in rows.values():
        if row.status not in NEXT:
            raise WrongValue(f"run {row.id[:12]} has the status {row.status[:40]!r}, which no run has")
        if row.configuration not in trees:
            raise WrongValue(f"the configuration of run {row.id[:12]} is missing")
    return [
        RunRecord(
            id=row.id, experiment=row.experiment, status=row.status, reason=row.reason, done=row.done, total=row.total,
            created=row.created, started=row.started, ended=row.ended, host=row.host, process=row.process,
            environment=document(row.environment, f"environment of run {row.id[:12]}"),
            configuration=trees[row.configuration],
            parents=tuple(parents[row.id]), statistics=means[row.id],
        )
        for row in (rows[identity] for identity in identities if identity in rows)
    ]  # fmt: skip


def batches(values: Iterable[str]) -> Iterator[list[str]]:
    """Yield values in lists that are short enough for one statement."""
    listed = list(values)
    for begin in range(0, len(listed), _AT_ONCE):
        yield listed[begin : begin + _AT_ONCE]
