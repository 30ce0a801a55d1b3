"""Conditions as SQL; every value is a bound parameter."""

from __future__ import annotations

from typing import Any

from nnpipe.experiment.database._tables import BOOLEAN, FLOAT, INTEGER, tables
from nnpipe.experiment.database.query import Condition, FieldComparison, Junction, Negation, QueryField, Sign, Value


def clause(condition: Condition, *, postgresql: bool) -> Any:
    """Return a condition as a clause on the table of runs that is true or false, never NULL."""
    import sqlalchemy as sa

    if isinstance(condition, Junction):
        parts = [clause(part, postgresql=postgresql) for part in condition.parts]
        return sa.and_(*parts) if condition.word == "and" else sa.or_(*parts)
    if isinstance(condition, Negation):
        return sa.not_(clause(condition.part, postgresql=postgresql))
    return _comparison(condition, postgresql)


def sortable(field: QueryField, *, postgresql: bool) -> Any:
    """Return the expression to sort runs by: a number, or else a text."""
    import sqlalchemy as sa

    t = tables()
    if field.group == "statistics":
        query = sa.select(t.statistics.c.mean).where(_belongs(t.statistics.c.run), t.statistics.c.name == field.name)
    elif field.group == "configuration":
        query = sa.select(t.settings.c.number).where(_configures(), t.settings.c.path == field.name)
    elif field.group in ("best", "trials"):
        return _of_search(field, postgresql)
    elif field.group == "parent":
        query = sa.select(sa.func.min(t.parents.c.parent)).where(_belongs(t.parents.c.run))
    else:
        return _column(field)
    return query.correlate(t.runs).scalar_subquery()


def _comparison(comparison: FieldComparison, postgresql: bool) -> Any:
    import sqlalchemy as sa

    t, field = tables(), comparison.field
    sign, value = comparison.sign, comparison.value
    if field.group in ("best", "trials"):
        found = _of_search(field, postgresql)
        if value is None:
            return found.is_(None) if sign == "=" else found.is_not(None)
        return sa.func.coalesce(_held(found, sign, value, postgresql), sa.false())
    if value is None:
        there = _there(field)
        return sa.not_(there) if sign == "=" else there
    if field.group == "statistics":
        held = _held(t.statistics.c.mean, sign, value, postgresql)
        return _exists(_belongs(t.statistics.c.run), t.statistics.c.name == field.name, held)
    if field.group == "configuration":
        return _exists(_configures(), t.settings.c.path == field.name, _setting(sign, value, postgresql))
    if field.group == "parent":
        return _exists(_belongs(t.parents.c.run), _held(t.parents.c.parent, sign, value, postgresql))
    column = _column(field)
    held = _held(column, sign, value, postgresql)
    # Only a plain comparison can use an index.
    return sa.func.coalesce(held, sa.false()) if getattr(column, "nullable", True) else held


def _there(field: QueryField) -> Any:
    t = tables()
    if field.group == "statistics":
        return _exists(
            _belongs(t.statistics.c.run), t.statistics.c.name == field.name, t.statistics.c.mean.is_not(None)
        )
    if field.group == "configuration":
        held = t.settings.c.number.is_not(None) | t.settings.c.text.is_not(None)
        return _exists(_configures(), t.settings.c.path == field.name, held)
    if field.group == "parent":
        return _exists(_belongs(t.parents.c.run))
    return _column(field).is_not(None)


def best_value(name: str, postgresql: bool) -> Any:
    """Return the best value of an objective among some rows of trials, as an aggregate; NULL without a value."""
    import sqlalchemy as sa

    t = tables()
    value: Any = sa.cast(json_text(t.trials.c.results, name, postgresql), sa.Double())
    way = sa.func.min(json_text(t.searches.c.objectives, name, postgresql))
    return sa.case((way == "maximize", sa.func.max(value)), (way == "minimize", sa.func.min(value)))


def json_text(column: Any, name: str, postgresql: bool) -> Any:
    """Return the value of a name in a column of JSON objects as text; NULL where there are infinite values or NaN."""
    import sqlalchemy as sa

    if postgresql:
        found = sa.cast(column, sa.JSON)[name].as_string()
    else:
        # A path cannot name every key: SQLite knows no escapes within its quotes.
        each = sa.func.json_each(column).table_valued("key", "value")
        chosen = sa.select(each.c.value).where(each.c.key == sa.bindparam(None, name, sa.Text(), unique=True))
        found = chosen.correlate(column.table).scalar_subquery()
    # Python writes these as words that are no JSON, and a cast of them is an error.
    words = [column.contains(f": {word}") for word in ("NaN", "Infinity", "-Infinity")]
    return sa.case((sa.not_(sa.or_(*words)), found))


def _of_search(field: QueryField, postgresql: bool) -> Any:
    """Return the best value of a search's objective, or how many of its trials are in a state; NULL for other runs."""
    import sqlalchemy as sa

    t = tables()
    state = "finished" if field.group == "best" else field.name
    joined = t.searches.outerjoin(t.trials, (t.trials.c.search == t.searches.c.run) & (t.trials.c.state == state))
    found = best_value(field.name, postgresql) if field.group == "best" else sa.func.count(t.trials.c.number)
    query = sa.select(found).select_from(joined).where(_belongs(t.searches.c.run)).group_by(t.searches.c.run)
    return query.correlate(t.runs).scalar_subquery()


def _setting(sign: Sign, value: Value, postgresql: bool) -> Any:
    """Return the comparison of a setting with a value of the same kind: 1, true and "1" are different."""
    import sqlalchemy as sa

    settings = tables().settings
    if isinstance(value, str):
        return _held(settings.c.text, sign, value, postgresql)
    kinds = (BOOLEAN,) if isinstance(value, bool) else (INTEGER, FLOAT)
    return sa.and_(settings.c.kind.in_(kinds), _held(settings.c.number, sign, value, postgresql))


def _held(column: Any, sign: Sign, value: Value, postgresql: bool) -> Any:
    import sqlalchemy as sa

    if sign == "~":
        find = sa.func.strpos if postgresql else sa.func.instr
        return find(column, sa.bindparam(None, value, sa.Text(), unique=True)) > 0
    if isinstance(value, bool):
        value = float(value)
    kind = sa.Double() if isinstance(value, float) else sa.Text()
    return column.op(sign, is_comparison=True)(sa.bindparam(None, value, kind, unique=True))


def _column(field: QueryField) -> Any:
    runs = tables().runs
    if field.group == "duration":
        return runs.c.ended - runs.c.started
    return runs.c[field.group]


def _exists(*conditions: Any) -> Any:
    import sqlalchemy as sa

    return sa.exists().where(*conditions).correlate(tables().runs)


def _belongs(column: Any) -> Any:
    return column == tables().runs.c.id


def _configures() -> Any:
    return tables().settings.c.configuration == tables().runs.c.configuration
