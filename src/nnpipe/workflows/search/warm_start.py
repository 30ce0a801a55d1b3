"""What earlier runs and searches of a database know about a search that begins."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from nnpipe.core.errors import ConfigError
from nnpipe.experiment.database.database import RunDatabase
from nnpipe.experiment.database.query import parse_condition
from nnpipe.experiment.database.records import RunRecord
from nnpipe.searching.database_trials import DatabaseTrials
from nnpipe.searching.objectives import Objectives
from nnpipe.searching.space import SearchSpace
from nnpipe.searching.trial import EarlierTrial


def check_query(query: str) -> str:
    """Return a condition on runs; raise :class:`ConfigError` if it cannot be read."""
    try:
        parse_condition(query)
    except ConfigError as error:
        raise ConfigError(f"warm_start: {error}") from None
    return query


def warm_start(
    database: RunDatabase, search: str, store: DatabaseTrials, query: str, space: SearchSpace, objectives: Objectives
) -> int:
    """Take over what the runs that fulfil a condition found, as finished trials that do not count.

    Of a search these are its finished trials, of another run its configuration with its statistics.  Those that are not
    of the space, or lack an objective, are left out, as are those that were taken over before.

    Parameters
    ----------
    database
        Where the runs are.
    search, store
        The search that begins, and its trials.
    query
        A condition on runs, such as ``experiment = widths and created > 2026-11-01``.
    space, objectives
        What is searched, and what for.

    Returns
    -------
    int
        How many trials were taken over.
    """
    found = [run for run in database.runs.find(query, order="created") if run.id != search]
    searches = database.searches.among([run.id for run in found])
    known = {trial.origin for trial in store.trials()}
    earlier: list[EarlierTrial] = []
    for run in found:
        each = _of_search(database, run) if run.id in searches else _of_run(run, space)
        earlier += [trial for trial in each if trial.origin not in known and _fits(trial, space, objectives)]
    return store.take_over(
        EarlierTrial(trial.configuration, {name: trial.values[name] for name in objectives.names}, trial.origin)
        for trial in earlier
    )


def _of_search(database: RunDatabase, run: RunRecord) -> Iterator[EarlierTrial]:
    for trial in DatabaseTrials(database, run.id).trials():
        # What that search took over itself is found where it came from.
        if trial.state == "finished" and trial.configuration is not None and not trial.origin:
            yield EarlierTrial(trial.configuration, trial.values, f"trial {trial.number} of search {run.id[:12]}")


def _of_run(run: RunRecord, space: SearchSpace) -> Iterator[EarlierTrial]:
    values = {name: _at(run.configuration, name) for name in space.parameters}
    present = {name: value for name, value in values.items() if value is not None}
    yield EarlierTrial(present, run.statistics, f"run {run.id[:12]}")


def _fits(trial: EarlierTrial, space: SearchSpace, objectives: Objectives) -> bool:
    values = [trial.values.get(name, math.nan) for name in objectives.names]
    return all(map(math.isfinite, values)) and space.fits(trial.configuration)


def _at(tree: Mapping[str, Any], path: str) -> Any:
    """Return the value at a path such as ``optimiser.rate``; ``None`` if there is none."""
    found: Any = tree
    for name in path.split("."):
        if isinstance(found, list) and name.isdigit() and int(name) < len(found):
            found = found[int(name)]
        elif isinstance(found, Mapping):
            found = found.get(name)
        else:
            return None
    return found
