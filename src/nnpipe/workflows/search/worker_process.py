"""A worker of a search in a process of its own, on this machine or another."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from nnpipe.searching.database_trials import DatabaseTrials
from nnpipe.searching.trial_store import SearchTrial, TrialResult
from nnpipe.storage.storage import Storage, open_storage, put_files
from nnpipe.workflows.search.file import SearchSettings
from nnpipe.workflows.search.measured_subject import MeasuredSubject
from nnpipe.workflows.search.measuring_queue import (
    FINALS,
    Finals,
    MeasuringQueue,
    count_failures,
    map_relative_paths,
)
from nnpipe.workflows.search.search import run_trials
from nnpipe.workflows.search.subjects import TrialReport
from nnpipe.workflows.search.workers import Evaluate, format_worker_name
from nnpipe.workflows.workers.machine_turns import MachineTurns, is_of_kind
from nnpipe.workflows.workers.worker_process import WorkerTask


def work(task: WorkerTask, settings: Mapping[str, Any], folder: Path) -> None:
    """Carry out trials until all have ended, and on a machine of the kind that is named, measure
    the best ones in full.

    Raises
    ------
    NNPipeError
        If the settings do not fit this machine, the database cannot be reached, or the first trials
        all fail.
    """
    turns = MachineTurns()
    with turns.acquire_shared():  # models may be made ready for this
        search = SearchSettings.from_settings(settings["search"])
    subject, kind = search.subject, settings["measure_on"]
    with task.database() as database, ExitStack() as stack:
        trials = DatabaseTrials(database, task.search, repeats=search.repeats)
        evaluate: Evaluate = subject.evaluate
        finish: Callable[[], None] | None = None
        if isinstance(subject, MeasuredSubject):
            stack.callback(subject.close)
            subject.turns = turns
            storage = open_storage(task.storage) if settings["exchanges"] else None
            if storage is not None:
                evaluate = partial(_run_and_send, subject, storage)
            if kind and storage is not None:
                queue = MeasuringQueue(
                    DatabaseTrials(database, settings["measuring"]), storage, kind
                )
                if is_of_kind(kind):
                    finals = Finals(
                        subject, search.space, search.seed, settings["command"], settings["search"]
                    )
                    measurer = _Measurer(
                        trials, queue, finals, storage, count_failures(queue.store.trials())
                    )
                    stack.enter_context(
                        queue.run_in_thread(
                            measurer.measure_work, format_worker_name(task.worker, 0)
                        )
                    )
                    finish = measurer.finish
                else:
                    subject.elsewhere = partial(queue.prepare_here, subject)
        run_trials(
            evaluate,
            search.space,
            search.objectives,
            trials=search.trials,
            sampler=search.sampler,
            pruner=search.pruner,
            prune_by=search.prune_by,
            seed=search.seed,
            workers=1,
            watch=_print_trial,
            store=trials,
            name=task.worker,
        )
        if finish is not None:
            finish()


@dataclass(frozen=True)
class _Measurer:
    """Carries out what waits for a machine of the kind: trials, and once they have ended the
    best ones in full.
    """

    trials: DatabaseTrials
    queue: MeasuringQueue
    finals: Finals
    storage: Storage
    attempt: int

    def measure_work(self, work: Mapping[str, Any]) -> TrialResult:
        if FINALS in work:
            return self.finals.measure_and_send(self.trials.trials(), self.storage)
        return self.queue.measure_work(work, self.finals.subject, self.finals.space)

    def finish(self) -> None:
        """See that one of the machines of the kind measures the best trials in full."""
        ended = self.trials.trials()
        if any(trial.state == "finished" for trial in ended):
            self.queue.run_work(
                self.finals.build_work(ended, self.attempt), "all trials have ended"
            )


def _run_and_send(
    subject: MeasuredSubject,
    storage: Storage,
    trial: SearchTrial,
    arguments: Mapping[str, Any],
    report: TrialReport,
) -> TrialResult:
    """Carry out a trial, and send the files that the final measurements need."""
    result = subject.evaluate(trial, arguments, report)
    kept = subject.list_kept_files(trial, arguments)
    return (
        replace(result, files=put_files(storage, map_relative_paths(kept, subject.output)))
        if kept
        else result
    )


def _print_trial(trial: SearchTrial) -> None:
    print(f"trial {trial.number}: {trial.state} {trial.message}".rstrip(), flush=True)  # noqa: T201 - the job's log
