"""Reading many runs at a time."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from nnpipe.core.errors import ConfigError
from nnpipe.core.messages import suggest_name
from nnpipe.experiment.database._tables import BOOLEAN, FLOAT, INTEGER, WrongValue, get_tables
from nnpipe.experiment.database._values import decode_double, parse_object
from nnpipe.experiment.database.query import (
    Condition,
    FieldComparison,
    Junction,
    Negation,
    QueryField,
    Sign,
    Value,
    parse_condition,
    parse_order,
)
from nnpipe.experiment.database.records import RunRecord
from nnpipe.experiment.status import NEXT


def build_clause(condition: Condition, *, postgresql: bool) -> Any:
    """Return a condition as a clause on the table of runs that is true or false, never NULL."""
    import sqlalchemy as sa

    if isinstance(condition, Junction):
        parts = [build_clause(part, postgresql=postgresql) for part in condition.parts]
        return sa.and_(*parts) if condition.word == "and" else sa.or_(*parts)
    if isinstance(condition, Negation):
        return sa.not_(build_clause(condition.part, postgresql=postgresql))
    return _build_comparison(condition, postgresql)


def build_sort_key(field: QueryField, *, postgresql: bool) -> Any:
    """Return the expression to sort runs by: a number, or else a text."""
    import sqlalchemy as sa

    t = get_tables()
    if field.group == "statistics":
        query = sa.select(t.statistics.c.mean).where(
            _match_run(t.statistics.c.run), t.statistics.c.name == field.name
        )
    elif field.group == "configuration":
        query = sa.select(t.settings.c.number).where(
            _match_configuration(), t.settings.c.path == field.name
        )
    elif field.group in ("best", "trials"):
        return _build_search_value(field, postgresql)
    elif field.group == "parent":
        query = sa.select(sa.func.min(t.parents.c.parent)).where(_match_run(t.parents.c.run))
    else:
        return _get_column(field)
    return query.correlate(t.runs).scalar_subquery()


def _build_comparison(comparison: FieldComparison, postgresql: bool) -> Any:
    import sqlalchemy as sa

    t, field = get_tables(), comparison.field
    sign, value = comparison.sign, comparison.value
    if field.group in ("best", "trials"):
        found = _build_search_value(field, postgresql)
        if value is None:
            return found.is_(None) if sign == "=" else found.is_not(None)
        return sa.func.coalesce(_compare_column(found, sign, value, postgresql), sa.false())
    if value is None:
        there = _build_presence_test(field)
        return sa.not_(there) if sign == "=" else there
    if field.group == "statistics":
        held = _compare_column(t.statistics.c.mean, sign, value, postgresql)
        return _build_exists(
            _match_run(t.statistics.c.run), t.statistics.c.name == field.name, held
        )
    if field.group == "configuration":
        return _build_exists(
            _match_configuration(),
            t.settings.c.path == field.name,
            _compare_setting(sign, value, postgresql),
        )
    if field.group == "parent":
        return _build_exists(
            _match_run(t.parents.c.run),
            _compare_column(t.parents.c.parent, sign, value, postgresql),
        )
    column = _get_column(field)
    held = _compare_column(column, sign, value, postgresql)
    # Only a plain comparison can use an index.
    return sa.func.coalesce(held, sa.false()) if getattr(column, "nullable", True) else held


def _build_presence_test(field: QueryField) -> Any:
    t = get_tables()
    if field.group == "statistics":
        return _build_exists(
            _match_run(t.statistics.c.run),
            t.statistics.c.name == field.name,
            t.statistics.c.mean.is_not(None),
        )
    if field.group == "configuration":
        held = t.settings.c.number.is_not(None) | t.settings.c.text.is_not(None)
        return _build_exists(_match_configuration(), t.settings.c.path == field.name, held)
    if field.group == "parent":
        return _build_exists(_match_run(t.parents.c.run))
    return _get_column(field).is_not(None)


def build_best_value(name: str, postgresql: bool) -> Any:
    """Return the best value of an objective among some rows of trials, as an aggregate; NULL
    without a value.
    """
    import sqlalchemy as sa

    t = get_tables()
    value: Any = sa.cast(build_json_text(t.trials.c.results, name, postgresql), sa.Double())
    way = sa.func.min(build_json_text(t.searches.c.objectives, name, postgresql))
    return sa.case((way == "maximize", sa.func.max(value)), (way == "minimize", sa.func.min(value)))


def build_json_text(column: Any, name: str, postgresql: bool) -> Any:
    """Return the value of a name in a column of JSON objects as text; NULL where there are
    infinite values or NaN.
    """
    import sqlalchemy as sa

    if postgresql:
        found = sa.cast(column, sa.JSON)[name].as_string()
    else:
        # A path cannot name every key: SQLite knows no escapes within its quotes.
        each = sa.func.json_each(column).table_valued("key", "value")
        chosen = sa.select(each.c.value).where(
            each.c.key == sa.bindparam(None, name, sa.Text(), unique=True)
        )
        found = chosen.correlate(column.table).scalar_subquery()
    # Python writes these as words that are no JSON, and a cast of them is an error.
    words = [column.contains(f": {word}") for word in ("NaN", "Infinity", "-Infinity")]
    return sa.case((sa.not_(sa.or_(*words)), found))


def _build_search_value(field: QueryField, postgresql: bool) -> Any:
    """Return the best value of a search's objective, or how many of its trials are in a state;
    NULL for other runs.
    """
    import sqlalchemy as sa

    t = get_tables()
    state = "finished" if field.group == "best" else field.name
    joined = t.searches.outerjoin(
        t.trials, (t.trials.c.search == t.searches.c.run) & (t.trials.c.state == state)
    )
    found = (
        build_best_value(field.name, postgresql)
        if field.group == "best"
        else sa.func.count(t.trials.c.number)
    )
    query = (
        sa.select(found)
        .select_from(joined)
        .where(_match_run(t.searches.c.run))
        .group_by(t.searches.c.run)
    )
    return query.correlate(t.runs).scalar_subquery()


def _compare_setting(sign: Sign, value: Value, postgresql: bool) -> Any:
    """Return the comparison of a setting with a value of the same kind: 1, true and "1" are
    different.
    """
    import sqlalchemy as sa

    settings = get_tables().settings
    if isinstance(value, str):
        return _compare_column(settings.c.text, sign, value, postgresql)
    kinds = (BOOLEAN,) if isinstance(value, bool) else (INTEGER, FLOAT)
    return sa.and_(
        settings.c.kind.in_(kinds), _compare_column(settings.c.number, sign, value, postgresql)
    )


def _compare_column(column: Any, sign: Sign, value: Value, postgresql: bool) -> Any:
    import sqlalchemy as sa

    if sign == "~":
        find = sa.func.strpos if postgresql else sa.func.instr
        return find(column, sa.bindparam(None, value, sa.Text(), unique=True)) > 0
    if isinstance(value, bool):
        value = float(value)
    kind = sa.Double() if isinstance(value, float) else sa.Text()
    return column.op(sign, is_comparison=True)(sa.bindparam(None, value, kind, unique=True))


def _get_column(field: QueryField) -> Any:
    runs = get_tables().runs
    if field.group == "duration":
        return runs.c.ended - runs.c.started
    return runs.c[field.group]


def _build_exists(*conditions: Any) -> Any:
    import sqlalchemy as sa

    return sa.exists().where(*conditions).correlate(get_tables().runs)


def _match_run(column: Any) -> Any:
    return column == get_tables().runs.c.id


def _match_configuration() -> Any:
    return get_tables().settings.c.configuration == get_tables().runs.c.configuration


# Common statements, built once: building one takes longer than executing it.
#
# The parameter ``of`` names the run, history or configuration.


@functools.cache
def insert(table: str) -> Any:
    """Return the statement that inserts rows; the columns follow from the parameters."""
    return getattr(get_tables(), table).insert()


@functools.cache
def update(table: str) -> Any:
    """Return the statement that updates the row of an identity; the columns follow from the
    parameters.
    """
    import sqlalchemy as sa

    changed = getattr(get_tables(), table)
    return changed.update().where(changed.c.id == sa.bindparam("of"))


@functools.cache
def select(table: str, by: str, *columns: str) -> Any:
    """Return the statement that selects columns of the rows with a given value in the column
    ``by``.
    """
    import sqlalchemy as sa

    read = getattr(get_tables(), table)
    return sa.select(*(read.c[column] for column in columns)).where(
        read.c[by] == sa.bindparam("of")
    )


SEEN = "nnpipe runs seen"
"""The key under which a connection caches identities found in its transaction."""

_AT_ONCE = 500  # values bound in a statement; SQLite and PostgreSQL take several thousand at least
_DIGITS = frozenset("0123456789abcdef")


def find_identity(connection: Any, run: str) -> str:
    """Return the full identity of a run; see :meth:`nnpipe.experiment.database.runs.Runs.get`.

    Raises
    ------
    ConfigError
        If there is no such run, or several identities begin so.
    """
    import sqlalchemy as sa

    table = get_tables().runs
    if not isinstance(run, str) or not run or "\0" in run or not run.isprintable():
        raise ConfigError(f"no run is called {str(run)[:40]!r}")
    whole = len(run) == 32 and set(run) <= _DIGITS
    seen: set[str] = connection.info.setdefault(SEEN, set())
    if run in seen:
        return run
    if whole and connection.scalar(select("runs", "id", "id"), {"of": run}) is not None:
        seen.add(run)
        return run
    newest = sa.select(table.c.id).where(table.c.experiment == run)
    found = connection.scalar(newest.order_by(table.c.created.desc(), table.c.id).limit(1))
    if found is not None:
        return str(found)
    if set(run) <= _DIGITS and len(run) < 32:
        above = run[:-1] + chr(ord(run[-1]) + 1)  # both backends compare texts by character
        query = (
            sa.select(table.c.id)
            .where(table.c.id >= run, table.c.id < above)
            .order_by(table.c.id)
            .limit(2)
        )
        begin = connection.scalars(query).all()
        if len(begin) > 1:
            raise ConfigError(
                f"several runs begin with {run}: {begin[0][:12]}, {begin[1][:12]}, ..."
            )
        if begin:
            return str(begin[0])
    names = connection.scalars(sa.select(table.c.experiment).distinct().limit(1000)).all()
    raise ConfigError(f"no run or experiment is called {run[:80]!r}{suggest_name(run[:80], names)}")


def find_runs(
    connection: Any, where: str, order: str, limit: int | None, *, postgresql: bool
) -> list[str]:
    """Return the identities of the runs for which a condition holds, in order."""
    import sqlalchemy as sa

    table = get_tables().runs
    field, descending = parse_order(order)
    column = build_sort_key(field, postgresql=postgresql)
    query = sa.select(table.c.id)
    if where.strip():
        query = query.where(build_clause(parse_condition(where), postgresql=postgresql))
    ordered = column.desc() if descending else column.asc()
    query = query.order_by(ordered.nulls_last(), table.c.created.desc(), table.c.id)
    if limit is not None:
        if not 0 <= limit < 1 << 31:
            raise ConfigError(f"limit: expected 0 or more runs, not {limit}")
        query = query.limit(limit)
    return list(connection.scalars(query))


def read_records(connection: Any, identities: Sequence[str]) -> list[RunRecord]:
    """Return the runs of these identities, in their order."""
    import sqlalchemy as sa

    t = get_tables()
    rows: dict[str, Any] = {}
    parents: dict[str, list[str]] = defaultdict(list)
    means: dict[str, dict[str, float]] = defaultdict(dict)
    trees: dict[str, Any] = {}
    for some in split_batches(identities):
        rows |= {
            row.id: row
            for row in connection.execute(sa.select(t.runs).where(t.runs.c.id.in_(some)))
        }
        query = sa.select(t.parents.c.run, t.parents.c.parent).where(t.parents.c.run.in_(some))
        for run, parent in connection.execute(query.order_by(t.parents.c.position)):
            parents[run].append(parent)
        query = sa.select(t.statistics.c.run, t.statistics.c.name, t.statistics.c.mean)
        query = query.where(t.statistics.c.run.in_(some)).order_by(t.statistics.c.position)
        for run, name, mean in connection.execute(query):
            means[run][name] = decode_double(mean)
    for some in split_batches(sorted({row.configuration for row in rows.values()})):
        query = sa.select(t.configurations.c.digest, t.configurations.c.tree)
        for digest, tree in connection.execute(query.where(t.configurations.c.digest.in_(some))):
            trees[digest] = parse_object(tree, f"configuration {digest[:12]}")
    for row in rows.values():
        if row.status not in NEXT:
            raise WrongValue(
                f"run {row.id[:12]} has the status {row.status[:40]!r}, which no run has"
            )
        if row.configuration not in trees:
            raise WrongValue(f"the configuration of run {row.id[:12]} is missing")
    return [
        RunRecord(
            id=row.id,
            experiment=row.experiment,
            status=row.status,
            reason=row.reason,
            done=row.done,
            total=row.total,
            created=row.created,
            started=row.started,
            ended=row.ended,
            host=row.host,
            process=row.process,
            environment=parse_object(row.environment, f"environment of run {row.id[:12]}"),
            configuration=trees[row.configuration],
            parents=tuple(parents[row.id]),
            statistics=means[row.id],
        )
        for row in (rows[identity] for identity in identities if identity in rows)
    ]


def split_batches(values: Iterable[str]) -> Iterator[list[str]]:
    """Yield values in lists that are short enough for one statement."""
    listed = list(values)
    for begin in range(0, len(listed), _AT_ONCE):
        yield listed[begin : begin + _AT_ONCE]
