"""Carrying out a search file with its trials in the run database, so that it goes on after any
interruption.
"""

from __future__ import annotations

import importlib
import inspect
import re
import socket
import sysconfig
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError
from nnpipe.core.secret import Variables
from nnpipe.experiment.configuration import Configuration
from nnpipe.experiment.database.database import RunDatabase
from nnpipe.experiment.settings import read_settings
from nnpipe.searching.database_trials import DatabaseTrials
from nnpipe.searching.objectives import Objectives
from nnpipe.searching.pruners import parse_pruner
from nnpipe.searching.samplers import parse_sampler
from nnpipe.searching.space import SearchSpace
from nnpipe.searching.trial_store import SearchTrial
from nnpipe.storage.storage import Storage, open_storage
from nnpipe.workflows.pipeline.entries import build_from_settings
from nnpipe.workflows.search.file import SearchSettings, describe_search, warm_start
from nnpipe.workflows.search.measured_subject import MeasuredSubject
from nnpipe.workflows.search.measuring_queue import Finals
from nnpipe.workflows.search.result import SearchResult
from nnpipe.workflows.search.search import run_trials
from nnpipe.workflows.search.subjects import SearchedFunction
from nnpipe.workflows.search.workers import Watch, format_worker_name
from nnpipe.workflows.workers.machine_turns import MachineTurns
from nnpipe.workflows.workers.worker_jobs import WorkerJobs, WorkerProgram, end_leases
from nnpipe.workflows.workers.worker_options import WorkerOptions
from nnpipe.workflows.workers.worker_process import SETTINGS, WorkerTask, write_script

_PAUSE = 0.25


@dataclass(frozen=True)
class CoordinationResult:
    """What workers have left.

    Parameters
    ----------
    storage
        The storage with files of trials that were carried out on other machines; None if no machine
        needs them.
    queue
        What machines of the kind have measured, the best trials in full among it; None if all
        machines measure.
    """

    storage: Storage | None = None
    queue: DatabaseTrials | None = None


def coordinate(
    settings: SearchSettings,
    database: RunDatabase,
    search: str,
    store: DatabaseTrials,
    options: WorkerOptions,
    watch: Watch,
    command: Sequence[str] = (),
) -> CoordinationResult:
    """Let workers carry out all trials of a search, and measure its best ones if only some machines
    may.

    ``command`` is the command line, for the result files.

    Raises
    ------
    NNPipeError
        If a worker cannot be started, or meets an error that the user can mend.
    """
    address, artifacts = database.opened_by
    _check_places(settings, options)
    exchanges = isinstance(settings.subject, MeasuredSubject) and bool(
        options.elsewhere or options.measure_on
    )
    location = options.storage or str((options.folder / "storage").absolute())
    measuring, queue = "", None
    if options.measure_on:
        measuring = database.searches.open(
            f"{settings.title}: measuring", settings.objectives.by_name
        )
        queue = DatabaseTrials(database, measuring)

    def build_environment(name: str, here: bool) -> Variables:
        directory = str(Path.cwd()) if here else ""
        task = WorkerTask(name, address, artifacts, search, directory, location)
        return {**options.environment, **task.to_environment()}

    folder = options.folder.absolute() / search
    script = write_script(
        folder,
        "nnpipe.workflows.search.worker_process",
        {
            "search": embed_pipeline(settings),
            "measuring": measuring,
            "measure_on": options.measure_on,
            "exchanges": exchanges,
            "command": list(command),
        },
    )
    send = [folder / SETTINGS, *_list_modules(settings), *options.send]
    program = WorkerProgram(script, send, build_environment, options.python)

    def release_leases(worker: str) -> None:
        for each in (store, queue):
            if each is not None:
                end_leases(each, format_worker_name(worker, 0))

    version = store.list_changes(0).version
    with WorkerJobs(
        database, settings.title, options.places, program, folder, release_leases
    ) as workers:
        workers.start()
        alive = True
        while alive:
            time.sleep(_PAUSE)
            changes = store.list_changes(version)
            version = changes.version
            ended = [trial for trial in changes.trials if trial.ended]
            for trial in ended:
                watch(trial)
            alive = workers.look(bool(ended))
    if measuring:
        database.runs.enter(measuring, "completed")
    return CoordinationResult(open_storage(location) if exchanges else None, queue)


def _check_places(settings: SearchSettings, options: WorkerOptions) -> None:
    if not isinstance(settings.subject, MeasuredSubject):
        if options.measure_on:
            raise ConfigError("--measure-on: is for models; a function trains and measures in one")
    elif options.elsewhere:
        settings.subject.check_elsewhere()
        if not options.storage:
            raise ConfigError(
                "--storage: workers on other machines exchange files through one: name it"
            )


def embed_pipeline(settings: SearchSettings) -> dict[str, Any]:
    """Return the content of the search file with the pipeline in it, whose file other machines
    lack.
    """
    found = dict(settings.given)
    if isinstance(found.get("pipeline"), str):
        found["pipeline"] = read_settings(Path(found["pipeline"]))
    return found


def _list_modules(settings: SearchSettings) -> list[Path]:
    """Return the file or the package of a searched function, unless it is installed."""
    subject = settings.subject
    if not isinstance(subject, SearchedFunction):
        return []
    module = importlib.import_module(subject.path.partition(".")[0])
    file = inspect.getsourcefile(module)
    paths = sysconfig.get_paths()
    if file is None or module.__name__ == "nnpipe":
        return []
    path = Path(file).resolve()
    installed = [Path(paths[name]).resolve() for name in ("purelib", "platlib", "stdlib")]
    if any(each in path.parents for each in installed):
        return []
    return [path.parent if path.name == "__init__.py" else path]


_OF_SUBJECT = ("function", "arguments", "pipeline", "candidate", "architecture", "compress")


def read_search(
    settings: str | Path | Mapping[str, Any], changes: Sequence[str] = ()
) -> SearchSettings:
    """Return the search of a file, or of its content, with some settings changed.

    Raises
    ------
    NNPipeError
        If a setting is wrong; the message names the file and the place in it.
    """
    check_call(read_search, locals())
    return build_from_settings(settings, changes, SearchSettings.from_settings)


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

    Several processes may carry out the same search.  Trials of processes of this machine that have
    died are carried out again at once, those of other machines when their leases expire.

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
    search = database.searches.open(
        settings.title, settings.objectives.by_name, Configuration(described)
    )
    store = DatabaseTrials(database, search, repeats=settings.repeats)
    _release_dead(store)
    if settings.warm_start:
        warm_start(
            database, search, store, settings.warm_start, settings.space, settings.objectives
        )
    if begin is not None:
        begin(store.trials())
    subject, left = settings.subject, CoordinationResult()
    try:
        if isinstance(subject, MeasuredSubject) and not store.trials():
            for configuration in subject.first()[: settings.trials]:
                store.enqueue(configuration)
        if workers is not None:
            left = coordinate(
                settings, database, search, store, workers, watch or (lambda trial: None), command
            )
            found = SearchResult(settings.space, settings.objectives, store.trials())
        else:
            found = run_trials(
                subject.evaluate,
                settings.space,
                settings.objectives,
                trials=settings.trials,
                sampler=settings.sampler,
                pruner=settings.pruner,
                prune_by=settings.prune_by,
                seed=settings.seed,
                workers=1,
                store=store,
                watch=watch,
            )
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
    finals = Finals(subject, settings.space, settings.seed, command, embed_pipeline(settings))
    if left.queue is None or left.storage is None:
        return replace(found, final=finals.measure_finalists(found.trials, left.storage))
    return replace(found, final=finals.receive_result(found.trials, left.queue, left.storage))


def _check_same(database: RunDatabase, title: str, described: Mapping[str, Any]) -> None:
    """Raise an error if the search of a title is one of another function or pipeline."""
    found = [run for run in database.runs.find() if run.experiment == title]
    known = database.searches.select_searches([run.id for run in found])
    newest = max(
        (run for run in found if run.id in known), key=lambda run: run.created, default=None
    )
    before = None if newest is None else newest.configuration
    if before and any(before.get(key) != described.get(key) for key in _OF_SUBJECT):
        raise ConfigError(
            f"title: {database.shown} has a search {title!r} of another function, pipeline or "
            f"arguments; "
            "give this one another title"
        )


def _release_dead(store: DatabaseTrials) -> None:
    """End the leases of workers of this machine whose process is gone."""
    import psutil

    own = re.compile(re.escape(socket.gethostname()) + r"-(\d+)-\d+")
    for trial in store.list_unended():
        worker = own.fullmatch(trial.worker) if trial.state == "running" else None
        if worker and not psutil.pid_exists(int(worker[1])):
            store.release(trial.worker)


def load_search(database: RunDatabase, run: str) -> SearchResult:
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
        space = SearchSpace.from_json(
            configuration["space"]["parameters"], configuration["space"]["constraints"]
        )
        sampler, pruner = parse_sampler(configuration["sampler"]), configuration["pruner"]
        facts = describe_search(
            sampler,
            None if pruner is None else parse_pruner(pruner),
            configuration["trials"],
            configuration["seed"],
            configuration["repeats"],
        )
    except (KeyError, TypeError) as error:
        raise ConfigError(
            f"search {search.run.experiment}: its space was not stored ({error} is missing)"
        ) from None
    trials = DatabaseTrials(database, search.run.id).trials()
    subject = {"Function": str(configuration["function"])} if configuration.get("function") else {}
    return SearchResult(
        space, Objectives(search.objectives), trials, search.run.experiment, {**subject, **facts}
    )
