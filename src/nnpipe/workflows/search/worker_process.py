"""A worker of a search in a process of its own, on this machine or another."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from nnpipe.experiment.database.database import RunDatabase
from nnpipe.searching.database_trials import DatabaseTrials
from nnpipe.searching.trial import SearchTrial
from nnpipe.storage.storage import open_storage
from nnpipe.workflows.search.file import SearchSettings
from nnpipe.workflows.search.measuring_queue import MeasuringQueue
from nnpipe.workflows.search.search import searched
from nnpipe.workflows.search.searched_pipeline import SearchedPipeline
from nnpipe.workflows.search.workers import worker_name
from nnpipe.workflows.workers.machine_turns import MachineTurns, is_of_kind
from nnpipe.workflows.workers.worker_process import WorkerTask


def work(task: WorkerTask, settings: Mapping[str, Any], folder: Path) -> None:
    """Carry out trials until all have ended.

    Raises
    ------
    NNPipeError
        If the settings do not fit this machine, the database cannot be reached, or the first trials all fail.
    """
    found = SearchSettings.from_settings(settings["search"])
    with task.database() as database, ExitStack() as stack:
        if isinstance(found.subject, SearchedPipeline):
            _take_turns(found, found.subject, task, database, settings, stack)
        searched(
            found.subject.evaluate, found.space, found.objectives, trials=found.trials, sampler=found.sampler,
            pruner=found.pruner, prune_by=found.prune_by, seed=found.seed, workers=1, watch=_told,
            store=DatabaseTrials(database, task.search, repeats=found.repeats), name=task.worker,
        )  # fmt: skip


def _take_turns(
    search: SearchSettings, subject: SearchedPipeline, task: WorkerTask, database: RunDatabase,
    settings: Mapping[str, Any], stack: ExitStack,
) -> None:  # fmt: skip
    """Let a pipeline measure alone on this machine, and only if this is one of the kind."""
    kind, subject.turns = settings["measure_on"], MachineTurns()
    if not kind:
        return
    queue = MeasuringQueue(DatabaseTrials(database, settings["measuring"]), open_storage(task.storage), kind)
    if is_of_kind(kind):
        stack.enter_context(queue.serving(subject, search.space, worker_name(task.worker, 0)))
    else:
        subject.elsewhere = partial(queue.trained_here, subject)


def _told(trial: SearchTrial) -> None:
    print(f"trial {trial.number}: {trial.state} {trial.message}".rstrip(), flush=True)  # noqa: T201 - the job's log
