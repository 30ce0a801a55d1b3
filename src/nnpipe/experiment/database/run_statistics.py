"""Statistics and histories of runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from nnpipe.core.errors import ConfigError
from nnpipe.experiment.database import _run_lookup
from nnpipe.experiment.database._tables import WrongValue, get_tables
from nnpipe.experiment.database._values import (
    check_text,
    decode_double,
    decode_number,
    encode_double,
    encode_number,
)
from nnpipe.experiment.database.connections import Connections
from nnpipe.experiment.history import History, Statistic, Statistics

_FIELDS = ("weight", "mean", "spread", "least", "greatest")
_AT_ONCE = 20_000  # values sent in one statement
_MOST_EMPTY = 1 << 20  # rows without a value


class RunFigures:
    """The statistics and histories of a database's runs."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def put_statistics(
        self, run: str, values: Mapping[str, float | Statistic] | Statistics
    ) -> None:
        """Store statistics; they replace those of the same names.

        Parameters
        ----------
        run
            The run.
        values
            Statistics by name; a number stands for the statistic of one value.

        Raises
        ------
        ConfigError
            If a value is not a number; nothing is stored then.
        """
        rows = build_statistic_rows(values)
        with self._connections.begin_write() as connection:
            insert_statistics(connection, _run_lookup.find_identity(connection, run), rows)

    def statistics(self, run: str) -> dict[str, Statistic]:
        """Return the statistics of a run by name, in the order in which the names were first
        stored.
        """
        import sqlalchemy as sa

        table = get_tables().statistics
        with self._connections.reading() as connection:
            query = sa.select(table).where(
                table.c.run == _run_lookup.find_identity(connection, run)
            )
            return {
                row.name: Statistic(
                    row.count, *(decode_double(getattr(row, name)) for name in _FIELDS)
                )
                for row in connection.execute(query.order_by(table.c.position))
            }

    def put_history(
        self, run: str, name: str, rows: Iterable[Mapping[str, Any]], *, at: int | None = None
    ) -> int:
        """Store rows of a history.

        Parameters
        ----------
        run
            The run.
        name
            The name of the history, such as ``"training"``.
        rows
            Numbers by name.
        at
            The number of the first of these rows.  Stored rows from this number on are
            replaced, as is necessary after a resume from a checkpoint.  By default rows are
            appended.

        Returns
        -------
        int
            The number of rows that the history has now.

        Raises
        ------
        ConfigError
            If a value is not a number, or ``at`` leaves a gap; nothing is stored then.
        """
        listed = [
            {
                check_text(key, name): encode_number(value, f"{name}.{key}")
                for key, value in row.items()
            }
            for row in rows
        ]
        check_text(name, "history")
        with self._connections.begin_write() as connection:
            identity = _run_lookup.find_identity(connection, run)
            history, count = self._find_history(connection, identity, name)
            begin = count if at is None else at
            if not 0 <= begin <= count:
                raise ConfigError(
                    f"{name}: row {begin} does not follow the {count} rows that are stored"
                )
            known = self._remove_rows(connection, history, begin) if count else {}
            self._insert(connection, history, known, listed, begin)
            total = begin + len(listed)
            connection.execute(_run_lookup.update("histories"), {"of": history, "rows": total})
            return total

    def history(self, run: str, name: str) -> History:
        """Return a history.

        Raises
        ------
        ConfigError
            If the run has no history of this name.
        """
        import sqlalchemy as sa

        t = get_tables()
        with self._connections.reading() as connection:
            identity = _run_lookup.find_identity(connection, run)
            query = sa.select(t.histories.c.id, t.histories.c.rows)
            found = connection.execute(
                query.where(t.histories.c.run == identity, t.histories.c.name == name)
            ).first()
            if found is None:
                raise ConfigError(f"run {identity[:12]} has no history {name[:80]!r}")
            points = sa.select(sa.func.count()).select_from(
                t.points.join(t.series, t.series.c.id == t.points.c.series)
            )
            stored = connection.scalar(points.where(t.series.c.history == found.id))
            # Rows may be empty, but a few bytes must not claim the memory of billions.
            if not 0 <= found.rows <= stored + _MOST_EMPTY:
                raise WrongValue(
                    f"history {name[:80]!r} claims {found.rows:,} rows, of which it holds "
                    f"{stored:,} values"
                )
            rows: list[dict[str, Any]] = [{} for _ in range(found.rows)]
            query = sa.select(t.points.c.row, t.series.c.name, t.points.c.kind, t.points.c.value)
            query = query.join(t.series, t.series.c.id == t.points.c.series).where(
                t.series.c.history == found.id
            )
            for row, key, kind, value in connection.execute(
                query.order_by(t.series.c.id, t.points.c.row)
            ):
                if not 0 <= row < found.rows:
                    raise WrongValue(
                        f"history {name[:80]!r} has row {row}, but {found.rows:,} rows"
                    )
                rows[row][key] = decode_number(kind, value)
        history = History()
        history.load_state_dict({"rows": rows})
        return history

    def histories(self, run: str) -> dict[str, int]:
        """Return the numbers of rows of a run's histories, by name."""
        import sqlalchemy as sa

        table = get_tables().histories
        with self._connections.reading() as connection:
            query = sa.select(table.c.name, table.c.rows).where(
                table.c.run == _run_lookup.find_identity(connection, run)
            )
            return dict(tuple(row) for row in connection.execute(query.order_by(table.c.id)))

    def _find_history(self, connection: Any, run: str, name: str) -> tuple[int, int]:
        for found in connection.execute(
            _run_lookup.select("histories", "run", "id", "name", "rows"), {"of": run}
        ):
            if found.name == name:
                return found.id, found.rows
        made = connection.execute(
            _run_lookup.insert("histories"), {"run": run, "name": name, "rows": 0}
        )
        return made.inserted_primary_key[0], 0

    def _remove_rows(self, connection: Any, history: int, begin: int) -> dict[str, int]:
        """Remove the rows from a number on; return the remaining names with their series."""
        import sqlalchemy as sa

        t = get_tables()
        query = sa.select(t.series.c.name, t.series.c.id).where(t.series.c.history == history)
        known: dict[str, int] = dict(tuple(row) for row in connection.execute(query))
        for name, series in list(known.items()):
            connection.execute(
                t.points.delete().where(t.points.c.series == series, t.points.c.row >= begin)
            )
            if (
                connection.scalar(
                    sa.select(t.points.c.row).where(t.points.c.series == series).limit(1)
                )
                is None
            ):
                connection.execute(t.series.delete().where(t.series.c.id == series))
                del known[name]
        return known

    def _insert(
        self,
        connection: Any,
        history: int,
        known: dict[str, int],
        rows: list[dict[str, tuple[int, float | None]]],
        begin: int,
    ) -> None:
        lacking = dict.fromkeys(name for row in rows for name in row if name not in known)
        if lacking:
            connection.execute(
                _run_lookup.insert("series"),
                [{"history": history, "name": name} for name in lacking],
            )
            query = _run_lookup.select("series", "history", "name", "id")
            known = dict(tuple(row) for row in connection.execute(query, {"of": history}))
        points = [
            {"series": known[name], "row": place, "kind": kind, "value": value}
            for place, row in enumerate(rows, begin)
            for name, (kind, value) in row.items()
        ]
        for first in range(0, len(points), _AT_ONCE):
            connection.execute(_run_lookup.insert("points"), points[first : first + _AT_ONCE])


def build_statistic_rows(
    values: Mapping[str, float | Statistic] | Statistics,
) -> list[dict[str, Any]]:
    """Return statistics as rows for :func:`insert_statistics`; see
    :meth:`RunFigures.put_statistics`.
    """
    return [_build_statistic_row(check_text(name, "statistic"), values[name]) for name in values]


def insert_statistics(
    connection: Any, run: str, rows: list[dict[str, Any]], most: int | None = None
) -> None:
    """Store statistics within a transaction; with ``most``, store at most so many names for the
    run.
    """
    query = _run_lookup.select("statistics", "run", "name", "position")
    places: dict[str, int] = dict(tuple(row) for row in connection.execute(query, {"of": run}))
    following, stored, before = max(places.values(), default=-1) + 1, [], set(places)
    for row in rows:
        if row["name"] not in places:
            if most is not None and len(places) >= most:
                continue
            places[row["name"]], following = following, following + 1
        stored.append(row | {"run": run, "position": places[row["name"]]})
    table = get_tables().statistics
    again = [row["name"] for row in stored if row["name"] in before]
    _delete(connection, table, table.c.run == run, table.c.name, again)
    if stored:
        connection.execute(_run_lookup.insert("statistics"), stored)


def _build_statistic_row(name: str, given: float | Statistic) -> dict[str, Any]:
    if isinstance(given, Statistic):
        statistic = given
    else:
        history = History()
        history.append(value=given)  # also converts scalars of numpy and PyTorch
        value = float(history.last["value"])
        statistic = Statistic(1, 1.0, value, 0.0, value, value)
    return {
        "name": name,
        "count": statistic.count,
        **{field: encode_double(getattr(statistic, field)) for field in _FIELDS},
    }


def _delete(connection: Any, table: Any, mine: Any, column: Any, names: list[str]) -> None:
    for begin in range(0, len(names), 500):
        connection.execute(table.delete().where(mine, column.in_(names[begin : begin + 500])))
