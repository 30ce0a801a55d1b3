"""A worker of a sweep in a process of its own, on this machine or another: it trains, compiles
and measures.
"""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from nnpipe.core.artifact import Artifact, get_sidecar_path
from nnpipe.core.closing import Closing
from nnpipe.core.errors import ConfigError, NNPipeError
from nnpipe.searching.database_trials import DatabaseTrials
from nnpipe.searching.trial_store import LeaseLost, TrialLease
from nnpipe.storage.storage import Storage, get_files, open_storage, put_files
from nnpipe.workflows.candidates.stages import prepare_dataset, train_once
from nnpipe.workflows.journal import get_error_message
from nnpipe.workflows.search.workers import format_worker_name
from nnpipe.workflows.sweep.file import Sweep
from nnpipe.workflows.sweep.points import Model
from nnpipe.workflows.sweep.run import PointMeasurer
from nnpipe.workflows.workers.machine_turns import MachineTurns, is_of_kind, renew_trial_lease
from nnpipe.workflows.workers.worker_process import WorkerTask

RESULT, ARTIFACT, DESCRIPTION = "result.json", "artifact", "description.json"
"""The files of a measured point: its result, and the compiled model with its description."""

FETCHED = "fetched"
"""The folder, below that of the results, for files on their way from the storage; removed after
use.
"""

_PAUSE = 0.25
_LONGEST_IDLE = 3600.0  # seconds after which a worker ends by itself


def work(task: WorkerTask, settings: Mapping[str, Any], folder: Path) -> None:
    """Carry out trainings and points until the sweep has ended.

    Raises
    ------
    NNPipeError
        If the settings do not fit this machine, or the database or the storage cannot be reached.
    """
    scratch = folder / f"scratch-{hashlib.sha256(task.worker.encode()).hexdigest()[:8]}"
    storage = open_storage(task.storage)
    wanted = _prepare_sweep(settings, scratch, storage)
    name = format_worker_name(task.worker, 0)
    measures = is_of_kind(settings["measure_on"])
    with task.database() as database, _PointWorker(wanted, storage, settings["command"]) as worker:
        trainings = DatabaseTrials(database, task.search)
        points = DatabaseTrials(database, settings["points"])
        idle = time.monotonic()
        while time.monotonic() < idle + _LONGEST_IDLE:
            for store in (points, trainings) if measures else (trainings,):
                lease = store.lease(name, lambda number: None, 0)
                if lease is not None:
                    worker.run_lease(store, lease)
                    idle = time.monotonic()
                    break
            else:
                if database.runs.get(task.search).status != "running":
                    return
                time.sleep(_PAUSE)


def _prepare_sweep(settings: Mapping[str, Any], scratch: Path, storage: Storage) -> Sweep:
    """Return the sweep with its files on this machine; those of models that are not trained are
    fetched.
    """
    content = dict(settings["sweep"])
    models = []
    for place, (entry, weights) in enumerate(
        zip(content["models"], settings["weights"], strict=True)
    ):
        path = scratch / "weights" / str(place) / weights["name"]
        if weights["files"]:
            get_files(storage, weights["files"], path.parent)
        entry = {**entry, "path": str(path)}
        if "model_path" in (entry.get("arguments") or {}):
            entry["arguments"] = {**entry["arguments"], "model_path": str(path)}
        models.append(entry)
    found = Sweep.from_settings({**content, "models": models, "output": str(scratch)})
    prepare_dataset(found.dataset)
    return found.with_task(found.dataset.task)


class _PointWorker(Closing):
    """Carries out leased trainings and points.

    Parameters
    ----------
    sweep
        The sweep, with paths of this machine.
    storage
        Where files come from and go to.
    command
        The command line for the result files.
    """

    def __init__(self, sweep: Sweep, storage: Storage, command: list[str]) -> None:
        self._sweep, self._storage, self._command = sweep, storage, command
        self._points = {point.title: point for point in sweep.points}
        self._turns = MachineTurns()
        self._measurer: PointMeasurer | None = None
        self._of: tuple[str, str] = ("", "")

    def close(self) -> None:
        """End the processes of the present model."""
        if self._measurer is not None:
            self._measurer.close()
        self._measurer = None

    def run_lease(self, store: DatabaseTrials, lease: TrialLease) -> None:
        """Carry out one training or point, and end its trial with the hash of its files."""
        configuration = dict(lease.trial.configuration or {})
        begin = time.monotonic()
        try:
            with renew_trial_lease(store, lease):
                try:
                    files = (
                        self._train_model(configuration)
                        if "train" in configuration
                        else self._measure_point(configuration)
                    )
                except NNPipeError as error:
                    store.fail(lease, get_error_message(error)[:2000])
                else:
                    store.finish(
                        lease,
                        {"seconds": time.monotonic() - begin},
                        put_files(self._storage, files),
                    )
        except LeaseLost:
            return  # another worker does it

    def _train_model(self, configuration: Mapping[str, Any]) -> dict[str, Path]:
        (model,) = [each for each in self._sweep.models if each.title == configuration["train"]]
        record = model.path.with_name(f"{model.path.name}.training.json")
        with self._turns.acquire_shared():
            train_once(
                model.wrapper,
                self._sweep.dataset,
                model.training,
                model.path,
                record=record,
                retrain=bool(configuration.get("again")),
            )
        return list_weight_files(model.path)

    def _measure_point(self, configuration: Mapping[str, Any]) -> dict[str, Path]:
        point = self._points.get(configuration["point"])
        if point is None:
            raise ConfigError(f"{configuration['point']} is not possible on this machine")
        measurer = self._get_measurer(point.model, configuration["weights"])
        (point,) = [each for each in measurer.points if each.title == point.title]
        path = measurer.get_artifact_path(point)
        if configuration.get("again"):
            if path is not None:
                self._fetch(configuration["again"], path)
            outcome = measurer.remeasure_point(point)
        else:
            outcome = measurer.run_point(point, self._sweep.verify).outcome
        if outcome.run is None:
            raise NNPipeError(outcome.reason)
        result = self._sweep.output / RESULT
        outcome.run.write(result)
        files = {RESULT: result}
        if path is not None:
            files |= {ARTIFACT: path, DESCRIPTION: get_sidecar_path(path)}
        return files

    def _get_measurer(self, model: Model, weights: str) -> PointMeasurer:
        """Return what measures the points of a model whose weights have this hash; that of
        another one is closed.
        """
        if self._measurer is None or self._of != (model.title, weights):
            self.close()
            get_files(self._storage, weights, model.path.parent)
            known = replace(model, training=None, makes_weights=False)
            points = tuple(
                replace(each, model=known)
                for each in self._sweep.points
                if each.model.title == model.title
            )
            self._measurer = PointMeasurer(
                replace(self._sweep, models=(known,), points=points),
                self._command,
                retrain=False,
                retry=True,
                turns=self._turns,
            )
            self._of = (model.title, weights)
        return self._measurer

    def _fetch(self, files: str, path: Path) -> None:
        """Fetch the compiled model of the first measurement, unless it is here."""
        folder = self._sweep.output / FETCHED
        move_artifact(get_files(self._storage, files, folder), path)
        shutil.rmtree(folder, ignore_errors=True)


def list_weight_files(path: Path) -> dict[str, Path]:
    """Return the file of a model's weights, its description and the files with weights beside
    it, by name.
    """
    from nnpipe.workflows.pipeline.run import list_weight_paths

    return {each.name: each for each in list_weight_paths(path)}


def move_artifact(files: Mapping[str, Path], path: Path) -> None:
    """Move the compiled model of a point's files to a path, with its description."""
    path.parent.mkdir(parents=True, exist_ok=True)
    files[DESCRIPTION].replace(get_sidecar_path(path))
    files[ARTIFACT].replace(path)
    Artifact.read(path)
