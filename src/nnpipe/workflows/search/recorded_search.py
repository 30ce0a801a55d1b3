"""A search as the run database has it, without its file, and also while it runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nnpipe.core.errors import ConfigError
from nnpipe.experiment.database.database import RunDatabase
from nnpipe.searching.database_trials import DatabaseTrials
from nnpipe.searching.objectives import Objectives
from nnpipe.searching.pruners import pruner_from_json
from nnpipe.searching.samplers import sampler_from_json
from nnpipe.searching.space import SearchSpace
from nnpipe.workflows.search.file import facts_of
from nnpipe.workflows.search.result import SearchResult


def recorded_search(database: RunDatabase, run: str) -> SearchResult:
    """Return a search with the trials that it has now.

    Parameters
    ----------
    database
        The run database.
    run
        The identity of the search's run, the beginning of one, or its name.

    Raises
    ------
    ConfigError
        If there is no such run, it is no search, or its space was not stored.
    """
    search = database.searches.get(run)
    configuration: Mapping[str, Any] = search.run.configuration
    try:
        space = SearchSpace.from_json(configuration["space"]["parameters"], configuration["space"]["constraints"])
        sampler, pruner = sampler_from_json(configuration["sampler"]), configuration["pruner"]
        facts = facts_of(
            sampler, None if pruner is None else pruner_from_json(pruner), configuration["trials"],
            configuration["seed"], configuration["repeats"],
        )  # fmt: skip
    except (KeyError, TypeError) as error:
        raise ConfigError(f"search {search.run.experiment}: its space was not stored ({error} is missing)") from None
    trials = DatabaseTrials(database, search.run.id).trials()
    subject = {"Function": str(configuration["function"])} if configuration.get("function") else {}
    return SearchResult(space, Objectives(search.objectives), trials, search.run.experiment, {**subject, **facts})
