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


def sortable(field: QueryField) -> Any:
    """Return the expression to sort runs by: a number, or else a text."""
    import sqlalchemy as sa

    t = tables()
    if field.group == "statistics":
        query = sa.select(t.statistics.c.mean).where(_belongs(t.statistics.c.run), t.statistics.c.name == field.name)
    elif field.group == "configuration":
        query = sa.select(t.settings.c.number).where(_configures(), t.settings.c.path == field.name)
    elif field.group == "parent":
        query = sa.select(sa.func.min(t.parents.c.parent)).where(_belongs(t.parents.c.run))
    else:
        return _column(field)
    return query.correlate(t.runs).scalar_subquery()


def _comparison(comparison: FieldComparison, postgresql: bool) -> Any:
    import sqlalchemy as sa

    t, field = tables(), comparison.field
    sign, value = comparison.sign, comparison.value
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
