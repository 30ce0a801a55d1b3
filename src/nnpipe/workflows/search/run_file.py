"""Carrying out a search file with its trials in the run database, so that it goes on after any interruption."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError
from nnpipe.experiment.configuration import Configuration
from nnpipe.experiment.database.database import RunDatabase
from nnpipe.searching.database_trials import DatabaseTrials
from nnpipe.searching.trial import SearchTrial
from nnpipe.workflows.pipeline.entries import made_from
from nnpipe.workflows.search.coordinate import Coordinated, coordinate, self_contained
from nnpipe.workflows.search.file import SearchSettings
from nnpipe.workflows.search.finals_elsewhere import Finals
from nnpipe.workflows.search.measured_subject import MeasuredSubject
from nnpipe.workflows.search.result import SearchResult
from nnpipe.workflows.search.search import searched
from nnpipe.workflows.search.warm_start import warm_start
from nnpipe.workflows.search.workers import Watch
from nnpipe.workflows.workers.machine_turns import MachineTurns
from nnpipe.workflows.workers.worker_options import WorkerOptions

_OF_SUBJECT = ("function", "arguments", "pipeline", "candidate", "architecture", "compress")


def read_search(settings: str | Path | Mapping[str, Any], changes: Sequence[str] = ()) -> SearchSettings:
    """Return the search of a file, or of its content, with some settings changed.

    Raises
    ------
    NNPipeError
        If a setting is wrong; the message names the file and the place in it.
    """
    check_call(read_search, locals())
    return made_from(settings, changes, SearchSettings.from_settings)


def run_search(
    settings: SearchSettings,
    database: RunDatabase,
    *,
    workers: WorkerOptions | None = None,
    begin: Callable[[Sequence[SearchTrial]], None] | None = None,
    watch: Watch | None = None,
    command: Sequence[str] = (),
) -> SearchResult:
    """Carry out a search, or go on with the one of its title in a database.

    Several processes may carry out the same search.  Trials of processes of this machine that have died are carried out
    again at once, those of other machines when their leases expire.

    Parameters
    ----------
    settings
        The search.
    database
        Where its trials are.
    workers
        Where processes that carry out trials are started; by default this one carries them out.
    begin
        Is called once with the trials that there are already.
    watch
        Is called with each trial that has ended here.
    command
        The command line, for the result files of the final measurements.

    Raises
    ------
    ConfigError
        If the database has a search of this title of something else, or the first trials all fail.
    """
    if workers is not None:
        workers.check(database)
    described = settings.to_json()
    _check_same(database, settings.title, described)
    search = database.searches.open(settings.title, settings.objectives.by_name, Configuration(described))
    store = DatabaseTrials(database, search, repeats=settings.repeats)
    _release_dead(store)
    if settings.warm_start:
        warm_start(database, search, store, settings.warm_start, settings.space, settings.objectives)
    if begin is not None:
        begin(store.trials())
    subject, left = settings.subject, Coordinated()
    try:
        if isinstance(subject, MeasuredSubject) and not store.trials():
            for configuration in subject.first()[: settings.trials]:
                store.enqueue(configuration)
        if workers is not None:
            left = coordinate(settings, database, search, store, workers, watch or (lambda trial: None), command)
            found = SearchResult(settings.space, settings.objectives, store.trials())
        else:
            found = searched(
                subject.evaluate, settings.space, settings.objectives, trials=settings.trials,
                sampler=settings.sampler, pruner=settings.pruner, prune_by=settings.prune_by, seed=settings.seed,
                workers=1, store=store, watch=watch,
            )  # fmt: skip
    except ConfigError as error:
        database.runs.enter(search, "failed", str(error)[:500])
        raise
    except KeyboardInterrupt:
        database.runs.enter(search, "paused", "interrupted")
        raise
    finally:
        if isinstance(subject, MeasuredSubject):
            subject.close()
    if all(trial.ended for trial in found.trials) and database.runs.get(search).status == "running":
        database.runs.enter(search, "completed")
    found = replace(found, title=settings.title, facts=settings.facts)
    if not isinstance(subject, MeasuredSubject):
        return found
    if workers is not None:
        subject.turns = MachineTurns()
    finals = Finals(subject, settings.space, settings.seed, command, self_contained(settings))
    if left.queue is None or left.storage is None:
        return replace(found, final=finals.measured(found.trials, left.storage))
    return replace(found, final=finals.received(found.trials, left.queue, left.storage))


def _check_same(database: RunDatabase, title: str, described: Mapping[str, Any]) -> None:
    """Raise an error if the search of a title is one of another function or pipeline."""
    found = [run for run in database.runs.find() if run.experiment == title]
    known = database.searches.among([run.id for run in found])
    newest = max((run for run in found if run.id in known), key=lambda run: run.created, default=None)
    before = None if newest is None else newest.configuration
    if before and any(before.get(key) != described.get(key) for key in _OF_SUBJECT):
        raise ConfigError(
            f"title: {database.shown} has a search {title!r} of another function, pipeline or arguments; "
            "give this one another title"
        )


def _release_dead(store: DatabaseTrials) -> None:
    """End the leases of workers of this machine whose process is gone."""
    import psutil

    own = re.compile(re.escape(socket.gethostname()) + r"-(\d+)-\d+")
    for trial in store.unended():
        worker = own.fullmatch(trial.worker) if trial.state == "running" else None
        if worker and not psutil.pid_exists(int(worker[1])):
            store.release(trial.worker)
