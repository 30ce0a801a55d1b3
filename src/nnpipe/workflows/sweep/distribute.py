"""A sweep by workers in processes of their own: what to do is in the run database, files pass
through the storage.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nnpipe.core.artifact import get_sidecar_path
from nnpipe.core.closing import Closing
from nnpipe.core.errors import ConfigError, NNPipeError
from nnpipe.core.secret import Variables
from nnpipe.experiment.database.database import RunDatabase
from nnpipe.measuring.run import Run
from nnpipe.searching.database_trials import DatabaseTrials
from nnpipe.searching.trial_store import SearchTrial, build_configuration_key
from nnpipe.storage.storage import get_files, open_storage, put_files
from nnpipe.workflows.candidates.stages import is_trained, record_training, train_once
from nnpipe.workflows.journal import Outcome, compute_digest
from nnpipe.workflows.pipeline.file import make_file_name
from nnpipe.workflows.search.workers import format_worker_name
from nnpipe.workflows.sweep.file import Sweep
from nnpipe.workflows.sweep.points import Model, Point
from nnpipe.workflows.sweep.run import FinishedPoint, PointMeasurer
from nnpipe.workflows.sweep.worker_process import (
    ARTIFACT,
    DESCRIPTION,
    FETCHED,
    RESULT,
    list_weight_files,
    move_artifact,
)
from nnpipe.workflows.workers.worker_jobs import WorkerJobs, WorkerProgram, end_leases
from nnpipe.workflows.workers.worker_options import WorkerOptions
from nnpipe.workflows.workers.worker_process import SETTINGS, WorkerTask, write_script

log = logging.getLogger("nnpipe")

_PAUSE = 0.25
_GOAL = {"seconds": "minimize"}  # a queue of work is a search whose trials take time

Handle = Callable[[SearchTrial], None]


@dataclass
class _Queue:
    """Work that workers lease, with what is done when each piece has ended."""

    store: DatabaseTrials
    version: int = 0
    waiting: dict[str, Handle] = field(default_factory=dict)
    known: dict[str, SearchTrial] = field(default_factory=dict)

    def add(self, work: Sequence[tuple[Mapping[str, Any], Handle]]) -> None:
        self.store.enqueue_all(configuration for configuration, _ in work)
        for configuration, handle in work:
            self.waiting[build_configuration_key(configuration)] = handle

    def look(self) -> int:
        """Handle what has ended, now or in an earlier start of the sweep; return how much."""
        changes = self.store.list_changes(self.version)
        self.version = changes.version
        for trial in changes.trials:
            if trial.ended and trial.configuration is not None:
                self.known[build_configuration_key(trial.configuration)] = trial
        ended = [key for key in self.waiting if key in self.known]
        for key in ended:
            self.waiting.pop(key)(self.known[key])
        return len(ended)


class SweepWorkers(Closing):
    """The workers of a sweep, and what they have to do; used in a ``with`` block.

    Parameters
    ----------
    sweep, content
        The sweep, and the content of its file.
    command
        The command line for the result files.
    database
        Holds what is to be done.
    options
        Where the workers run.
    retrain, retry
        As for :class:`~nnpipe.workflows.sweep.run.PointMeasurer`.

    Raises
    ------
    NNPipeError
        If workers cannot reach the database or the storage, or one cannot be started.
    """

    def __init__(
        self,
        sweep: Sweep,
        content: Mapping[str, Any],
        command: Sequence[str],
        database: RunDatabase,
        options: WorkerOptions,
        *,
        retrain: bool,
        retry: bool,
    ) -> None:
        options.check(database)
        if sweep.budget is not None:
            raise ConfigError(
                "budget: is for one machine, where candidates can be compared while they are "
                "measured"
            )
        if options.elsewhere and not options.storage:
            raise ConfigError(
                "--storage: workers on other machines exchange files through one: name it"
            )
        self._sweep, self._database = sweep, database
        self._location = options.storage or str((sweep.output / "storage").absolute())
        self._storage = open_storage(self._location)
        self._again = {"at": time.time()} if retrain else {}
        self._retry = {"at": time.time()} if retry else {}
        self._weights: dict[str, str] = {}
        self._queues: dict[str, _Queue] = {}
        self._runs: dict[str, str] = {}
        for name in ("trainings", "points"):
            self._runs[name] = database.searches.open(f"{sweep.title}: {name}", _GOAL)
            self._queues[name] = _Queue(DatabaseTrials(database, self._runs[name]))
        self._stack = ExitStack()
        self._measurer = self._stack.enter_context(
            PointMeasurer(sweep, command, retrain=False, retry=retry)
        )
        try:
            self._jobs = self._stack.enter_context(self._start_workers(content, command, options))
            self._jobs.start()
        except BaseException:
            self.close()
            raise

    def run_points(self) -> tuple[FinishedPoint, ...]:
        """Let every point be carried out that has not been, and return all in the order of the
        file.
        """
        by_model: dict[str, list[Point]] = defaultdict(list)
        for point in self._sweep.points:
            by_model[point.model.title].append(point)
        done: dict[str, FinishedPoint] = {}
        for model in self._sweep.models:
            self._train(model, lambda model: self._begin(by_model[model.title], model, done))
        while len(done) < len(self._sweep.points):
            self._check_queues()
        return tuple(done[point.title] for point in self._sweep.points)

    def measure_again(self, done: FinishedPoint) -> Outcome:
        """Let a point be measured a second time, with the same compiled model."""
        found: list[Outcome] = []
        configuration = self._build_work(done.point) | {"again": self._get_files_hash(done)}
        self._queues["points"].add(
            [(configuration, lambda trial: found.append(self._fetch_outcome(trial)[0]))]
        )
        while not found:
            self._check_queues()
        return found[0]

    def close(self) -> None:
        """End the workers."""
        for run in self._runs.values():
            if self._database.runs.get(run).status == "running":
                self._database.runs.enter(
                    run, "paused" if self._has_unfinished_work() else "completed"
                )
        self._stack.close()
        shutil.rmtree(self._sweep.output / FETCHED, ignore_errors=True)

    def _has_unfinished_work(self) -> bool:
        return any(queue.waiting for queue in self._queues.values())

    def _start_workers(
        self, content: Mapping[str, Any], command: Sequence[str], options: WorkerOptions
    ) -> WorkerJobs:
        address, artifacts = self._database.opened_by
        run = self._runs["trainings"]

        def build_environment(name: str, here: bool) -> Variables:
            directory = str(Path.cwd()) if here else ""
            task = WorkerTask(name, address, artifacts, run, directory, self._location)
            return {**options.environment, **task.to_environment()}

        def release_leases(worker: str) -> None:
            for queue in self._queues.values():
                end_leases(queue.store, format_worker_name(worker, 0))

        weights = [
            {"name": model.path.name, "files": "" if model.training else self._put_weights(model)}
            for model in self._sweep.models
        ]
        settings = {
            "sweep": {key: value for key, value in content.items() if key != "budget"},
            "weights": weights,
            "points": self._runs["points"],
            "measure_on": options.measure_on,
            "command": list(command),
        }
        folder = options.folder.absolute() / run
        script = write_script(folder, "nnpipe.workflows.sweep.worker_process", settings)
        program = WorkerProgram(
            script, [folder / SETTINGS, *options.send], build_environment, options.python
        )
        return WorkerJobs(
            self._database, self._sweep.title, options.places, program, folder, release_leases
        )

    def _train(self, model: Model, then: Callable[[Model], None]) -> None:
        """Let a model be trained unless that has been done, and go on with it."""
        record = self._sweep.output / "trained" / f"{make_file_name(model.title)}.training.json"
        options, dataset = model.training, self._sweep.dataset
        if options is None or (
            not self._again and is_trained(model.wrapper, dataset, options, model.path, record)
        ):
            self._weights[model.title] = self._put_weights(model)
            then(model)
            return

        def handle_training(trial: SearchTrial) -> None:
            if trial.state != "finished":
                raise NNPipeError(f"{model.title}: {trial.message}")
            get_files(self._storage, trial.message, model.path.parent)
            record_training(model.wrapper, dataset, options, record)
            self._weights[model.title] = trial.message
            then(model)

        described = {
            "wrapper": model.wrapper.describe(),
            "dataset": dataset.describe(),
            "training": options.to_json(),
        }
        work = {
            "train": model.title,
            "of": compute_digest(described),
            **({"again": self._again} if self._again else {}),
        }
        self._queues["trainings"].add([(work, handle_training)])

    def _put_weights(self, model: Model) -> str:
        if model.training is None:
            train_once(
                model.wrapper,
                self._sweep.dataset,
                None,
                model.path,
                record=Path(),
                makes=model.makes_weights,
            )
        return put_files(self._storage, list_weight_files(model.path))

    def _begin(self, points: Sequence[Point], model: Model, done: dict[str, FinishedPoint]) -> None:
        """Queue the points of a model that have not been done."""
        verify, work = self._sweep.verify, []
        for point in points:
            if (known := self._measurer.find_finished(point, verify)) is not None:
                done[point.title] = known
            else:
                work.append(
                    (self._build_work(point) | self._retry, self._make_handler(point, done))
                )
        if len(work) < len(points):
            log.info(
                "%s: %d of %d points are done already",
                model.title,
                len(points) - len(work),
                len(points),
            )
        self._queues["points"].add(work)

    def _build_work(self, point: Point) -> dict[str, Any]:
        key = self._measurer.key(point, self._sweep.verify)
        return {"point": point.title, "key": key, "weights": self._weights[point.model.title]}

    def _make_handler(self, point: Point, done: dict[str, FinishedPoint]) -> Handle:
        def handle(trial: SearchTrial) -> None:
            outcome, files = self._fetch_outcome(trial)
            path = self._measurer.get_artifact_path(point)
            if path is not None and ARTIFACT in files:
                move_artifact(files, path)
            self._measurer.add(point, self._sweep.verify, outcome)
            known = self._measurer.find_finished(point, self._sweep.verify)
            assert known is not None
            done[point.title] = known
            log.info(
                "[%d/%d] %s%s",
                len(done),
                len(self._sweep.points),
                point.title,
                _format_outcome(outcome),
            )

        return handle

    def _fetch_outcome(self, trial: SearchTrial) -> tuple[Outcome, Mapping[str, Path]]:
        if trial.state != "finished":
            return Outcome(None, trial.message), {}
        folder = self._sweep.output / FETCHED
        files = get_files(self._storage, trial.message, folder)
        return Outcome(Run.read(files[RESULT])), files

    def _get_files_hash(self, done: FinishedPoint) -> str:
        """Return the hash of the files of a measured point."""
        if done.artifact is None:
            return put_files(self._storage, {})
        return put_files(
            self._storage, {ARTIFACT: done.artifact, DESCRIPTION: get_sidecar_path(done.artifact)}
        )

    def _check_queues(self) -> None:
        time.sleep(_PAUSE)
        ended = sum(queue.look() for queue in list(self._queues.values()))
        self._jobs.look(bool(ended))


def _format_outcome(outcome: Outcome) -> str:
    return "" if outcome.run is not None else f" failed: {outcome.reason}"
