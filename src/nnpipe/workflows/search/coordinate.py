"""A search by workers in processes of their own: it is watched from here, and the dead are replaced."""

from __future__ import annotations

import importlib
import inspect
import sysconfig
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nnpipe.core.errors import ConfigError
from nnpipe.core.secret import Variables
from nnpipe.experiment.database.database import RunDatabase
from nnpipe.experiment.settings import read_settings
from nnpipe.searching.database_trials import DatabaseTrials
from nnpipe.storage.storage import Storage, open_storage
from nnpipe.workflows.search.file import SearchSettings
from nnpipe.workflows.search.measured_subject import MeasuredSubject
from nnpipe.workflows.search.subjects import SearchedFunction
from nnpipe.workflows.search.workers import Watch, worker_name
from nnpipe.workflows.workers.worker_jobs import WorkerJobs, WorkerProgram, end_leases
from nnpipe.workflows.workers.worker_options import WorkerOptions
from nnpipe.workflows.workers.worker_process import SETTINGS, WorkerTask, write_script

_PAUSE = 0.25


@dataclass(frozen=True)
class Coordinated:
    """What workers have left.

    Parameters
    ----------
    storage
        The storage with files of trials that were carried out on other machines; None if no machine needs them.
    queue
        What machines of the kind have measured, the best trials in full among it; None if all machines measure.
    """

    storage: Storage | None = None
    queue: DatabaseTrials | None = None


def coordinate(
    settings: SearchSettings, database: RunDatabase, search: str, store: DatabaseTrials, options: WorkerOptions,
    watch: Watch, command: Sequence[str] = (),
) -> Coordinated:  # fmt: skip
    """Let workers carry out all trials of a search, and measure its best ones if only some machines may.

    ``command`` is the command line, for the result files.

    Raises
    ------
    NNPipeError
        If a worker cannot be started, or meets an error that the user can mend.
    """
    address, artifacts = database.opened_by
    _check_places(settings, options)
    exchanges = isinstance(settings.subject, MeasuredSubject) and bool(options.elsewhere or options.measure_on)
    location = options.storage or str((options.folder / "storage").absolute())
    measuring, queue = "", None
    if options.measure_on:
        measuring = database.searches.open(f"{settings.title}: measuring", settings.objectives.by_name)
        queue = DatabaseTrials(database, measuring)

    def environment(name: str, here: bool) -> Variables:
        directory = str(Path.cwd()) if here else ""
        task = WorkerTask(name, address, artifacts, search, directory, location)
        return {**options.environment, **task.environment()}

    folder = options.folder.absolute() / search
    script = write_script(
        folder, "nnpipe.workflows.search.worker_process",
        {
            "search": self_contained(settings), "measuring": measuring, "measure_on": options.measure_on,
            "exchanges": exchanges, "command": list(command),
        },
    )  # fmt: skip
    send = [folder / SETTINGS, *_modules(settings), *options.send]
    program = WorkerProgram(script, send, environment, options.python)

    def died(worker: str) -> None:
        for each in (store, queue):
            if each is not None:
                end_leases(each, worker_name(worker, 0))

    version = store.since(0).version
    with WorkerJobs(database, settings.title, options.places, program, folder, died) as workers:
        workers.start()
        alive = True
        while alive:
            time.sleep(_PAUSE)
            changes = store.since(version)
            version = changes.version
            ended = [trial for trial in changes.trials if trial.ended]
            for trial in ended:
                watch(trial)
            alive = workers.look(bool(ended))
    if measuring:
        database.runs.enter(measuring, "completed")
    return Coordinated(open_storage(location) if exchanges else None, queue)


def _check_places(settings: SearchSettings, options: WorkerOptions) -> None:
    if not isinstance(settings.subject, MeasuredSubject):
        if options.measure_on:
            raise ConfigError("--measure-on: is for models; a function trains and measures in one")
    elif options.elsewhere:
        settings.subject.check_elsewhere()
        if not options.storage:
            raise ConfigError("--storage: workers on other machines exchange files through one: name it")


def self_contained(settings: SearchSettings) -> dict[str, Any]:
    """Return the content of the search file with the pipeline in it, whose file other machines lack."""
    found = dict(settings.given)
    if isinstance(found.get("pipeline"), str):
        found["pipeline"] = read_settings(Path(found["pipeline"]))
    return found


def _modules(settings: SearchSettings) -> list[Path]:
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
