"""A worker of a search in a process of its own, on this machine or another."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nnpipe.searching.database_trials import DatabaseTrials
from nnpipe.searching.trial import SearchTrial
from nnpipe.workflows.search.file import SearchSettings
from nnpipe.workflows.search.search import searched
from nnpipe.workflows.workers.worker_process import WorkerTask


def work(task: WorkerTask, settings: Mapping[str, Any], folder: Path) -> None:
    """Carry out trials until all have ended.

    Raises
    ------
    NNPipeError
        If the settings do not fit this machine, the database cannot be reached, or the first trials all fail.
    """
    found = SearchSettings.from_settings(settings)
    with task.database() as database:
        searched(
            found.subject.evaluate, found.space, found.objectives, trials=found.trials, sampler=found.sampler,
            pruner=found.pruner, prune_by=found.prune_by, seed=found.seed, workers=1, watch=_told,
            store=DatabaseTrials(database, task.search, repeats=found.repeats), name=task.worker,
        )  # fmt: skip


def _told(trial: SearchTrial) -> None:
    print(f"trial {trial.number}: {trial.state} {trial.message}".rstrip(), flush=True)  # noqa: T201 - the job's log
