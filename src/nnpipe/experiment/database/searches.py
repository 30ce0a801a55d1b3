"""Searches: runs whose trials are rows."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError
from nnpipe.experiment.configuration import Configuration
from nnpipe.experiment.database import _run_lookup
from nnpipe.experiment.database._run_lookup import build_best_value
from nnpipe.experiment.database._tables import get_tables
from nnpipe.experiment.database._values import parse_object
from nnpipe.experiment.database.connections import Connections
from nnpipe.experiment.database.records import RunRecord
from nnpipe.experiment.database.runs import get_owner_columns, insert, store_configuration
from nnpipe.experiment.database.trials import TrialRows


@dataclass(frozen=True, kw_only=True)
class SearchRecord:
    """A search as it was when the database was read.

    Parameters
    ----------
    run
        The search's run.
    objectives
        ``minimize`` or ``maximize``, by the name of each value.
    counts
        The number of trials by state.
    taken_over
        How many of them were taken over from elsewhere.
    best
        The best value of each objective among the finished trials; without those that have none.
    """

    run: RunRecord
    objectives: Mapping[str, str]
    counts: Mapping[str, int]
    taken_over: int
    best: Mapping[str, float]


class Searches:
    """The searches of a database."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def open(
        self,
        name: str,
        objectives: Mapping[str, str],
        configuration: Configuration | None = None,
        *,
        environment: Mapping[str, Any] | None = None,
    ) -> str:
        """Go on with the newest search of a name, or create it; its status becomes ``running``.

        Parameters
        ----------
        name
            The name of the search.
        objectives
            ``minimize`` or ``maximize``, by the name of each value.
        configuration
            What is searched and how.  It replaces an earlier one, so that choices may grow.
        environment
            The environment as JSON can hold it.

        Returns
        -------
        str
            The identity of the search's run.

        Raises
        ------
        ConfigError
            If the search was begun with other objectives, or a text cannot be stored.
        """
        check_call(Searches.open, locals())
        import sqlalchemy as sa

        runs, searches = get_tables().runs, get_tables().searches
        described = json.dumps(dict(objectives))
        with self._connections.begin_write() as connection:
            newest = sa.select(runs.c.id, searches.c.objectives).join(
                searches, searches.c.run == runs.c.id
            )
            newest = (
                newest.where(runs.c.experiment == name)
                .order_by(runs.c.created.desc(), runs.c.id)
                .limit(1)
            )
            found = connection.execute(newest).first()
            if found is None:
                run = insert(connection, name, configuration, (), environment)
                row = {"run": run, "objectives": described, "version": 0, "next": 0, "trials": 0}
                connection.execute(searches.insert(), row)
            elif parse_object(found.objectives, f"search {name}") != dict(objectives):
                raise ConfigError(
                    f"search {name} was begun with the objectives {found.objectives}, not "
                    f"{described}; "
                    "take another name for this one"
                )
            else:
                run = found.id
            values = {
                **get_owner_columns(),
                "status": "running",
                "reason": "",
                "started": time.time(),
                "ended": None,
            }
            if configuration is not None:
                values["configuration"] = store_configuration(connection, configuration)
            connection.execute(runs.update().where(runs.c.id == run).values(**values))
            return str(run)

    def trials(self, search: str, clock: Callable[[], float] | None = None) -> TrialRows:
        """Return the rows of a search's trials; see
        :class:`~nnpipe.searching.database_trials.DatabaseTrials`.

        Raises
        ------
        ConfigError
            If there is no such run, or it is not a search.
        """
        return TrialRows(self._connections, self.get(search).run.id, clock)

    def get(self, search: str) -> SearchRecord:
        """Return a search by the identity of its run, the beginning of one, or its name.

        Raises
        ------
        ConfigError
            If there is no such run, or it is not a search.
        """
        with self._connections.reading() as connection:
            identity = _run_lookup.find_identity(connection, search)
            found = self._read_records(connection, [identity])
        if not found:
            raise ConfigError(f"run {identity[:12]} is no search")
        return found[identity]

    def select_searches(self, runs: Iterable[str]) -> dict[str, SearchRecord]:
        """Return those of the runs that are searches, by identity."""
        with self._connections.reading() as connection:
            return self._read_records(connection, list(runs))

    def _read_records(self, connection: Any, identities: list[str]) -> dict[str, SearchRecord]:
        import sqlalchemy as sa

        t, searches = get_tables().trials, get_tables().searches
        objectives: dict[str, Any] = {}
        counts: dict[str, dict[str, int]] = defaultdict(dict)
        taken_over: dict[str, int] = defaultdict(int)
        for some in _run_lookup.split_batches(identities):
            query = sa.select(searches.c.run, searches.c.objectives).where(searches.c.run.in_(some))
            objectives |= {
                row.run: parse_object(row.objectives, f"search {row.run[:12]}")
                for row in connection.execute(query)
            }
            elsewhere = sa.func.sum(sa.case((t.c.origin != "", 1), else_=0))
            found = sa.select(t.c.search, t.c.state, sa.func.count(), elsewhere).where(
                t.c.search.in_(some)
            )
            for search, state, count, taken in connection.execute(
                found.group_by(t.c.search, t.c.state)
            ):
                counts[search][state] = count
                taken_over[search] += taken
        best = self._read_best_values(connection, objectives)
        return {
            run.id: SearchRecord(
                run=run,
                objectives=objectives[run.id],
                counts=counts[run.id],
                taken_over=taken_over[run.id],
                best=best[run.id],
            )
            for run in _run_lookup.read_records(connection, list(objectives))
        }

    def _read_best_values(
        self, connection: Any, objectives: Mapping[str, Mapping[str, str]]
    ) -> dict[str, dict[str, float]]:
        import sqlalchemy as sa

        t = get_tables()
        found: dict[str, dict[str, float]] = {search: {} for search in objectives}
        by_name: dict[str, list[str]] = defaultdict(list)
        for search, ways in objectives.items():
            for name in ways:
                by_name[name].append(search)
        joined = t.trials.join(t.searches, t.trials.c.search == t.searches.c.run)
        for name, searches in by_name.items():
            value = build_best_value(name, self._connections.postgresql)
            for some in _run_lookup.split_batches(searches):
                query = sa.select(t.trials.c.search, value).select_from(joined)
                query = query.where(t.trials.c.search.in_(some), t.trials.c.state == "finished")
                for search, best in connection.execute(query.group_by(t.trials.c.search)):
                    if best is not None:
                        found[search][name] = float(best)
        return {
            search: {name: best[name] for name in objectives[search] if name in best}
            for search, best in found.items()
        }
