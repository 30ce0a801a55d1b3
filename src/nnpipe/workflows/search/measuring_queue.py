"""Trials of a pipeline that are trained on one machine and measured on another, of the kind that a search names."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from nnpipe.core.errors import ConfigError, NNPipeError
from nnpipe.searching.database_trials import DatabaseTrials
from nnpipe.searching.space import SearchSpace
from nnpipe.searching.trial import LeaseLost, SearchTrial, TrialLease, configuration_key
from nnpipe.storage.content import get_files, put_files
from nnpipe.storage.storage import Storage
from nnpipe.workflows.journal import said
from nnpipe.workflows.search.searched_pipeline import SearchedPipeline
from nnpipe.workflows.search.workers import renewed

_PAUSE = 0.5
_PATIENCE = 900.0  # seconds for which a trained trial waits while no machine of the kind measures anything


class MeasuringQueue:
    """Trained trials that wait for a machine of the kind.

    Parameters
    ----------
    store
        Where they wait: a search of its own, whose values are those of the trials.
    storage
        Passes trained models from one machine to the other.
    kind
        The kind of the machines that measure.
    """

    def __init__(self, store: DatabaseTrials, storage: Storage, kind: str) -> None:
        self._store, self._storage, self._kind = store, storage, kind

    def trained_here(
        self, subject: SearchedPipeline, trial: SearchTrial, arguments: Mapping[str, Any]
    ) -> dict[str, float]:
        """Train the model of a trial here, and return the metrics that another machine measures.

        Raises
        ------
        NNPipeError
            If the training or the measurement fails, or no machine of the kind measures.
        """
        asked = {"trial": trial.number, "configuration": dict(trial.configuration or {})}
        for known in self._store.trials():  # of an earlier attempt, whose worker died
            before = known.configuration or {}
            if known.state == "finished" and all(before.get(name) == value for name, value in asked.items()):
                return dict(known.values)
        files = {str(path.relative_to(subject.output)): path for path in subject.trained(trial, arguments)}
        work = asked | {"files": put_files(self._storage, files)}
        self._store.enqueue(work)
        measured = self._wait(configuration_key(work), trial.number)
        if measured.state != "finished":
            raise NNPipeError(measured.message)
        return dict(measured.values)

    @contextmanager
    def serving(self, subject: SearchedPipeline, space: SearchSpace, worker: str) -> Iterator[None]:
        """Measure what waits, in a thread of this process, while the block runs."""
        over = threading.Event()

        def serve() -> None:
            while not over.is_set():
                lease = self._store.lease(worker, lambda number: None, 0)
                if lease is None:
                    over.wait(_PAUSE)
                else:
                    self._measure(subject, space, lease)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _measure(self, subject: SearchedPipeline, space: SearchSpace, lease: TrialLease) -> None:
        work = dict(lease.trial.configuration or {})
        try:
            with renewed(self._store, lease):
                try:
                    get_files(self._storage, work["files"], subject.output)
                    trial = SearchTrial(number=work["trial"], configuration=work["configuration"])
                    values = subject.measured(trial, space.arguments(work["configuration"]))
                except NNPipeError as error:
                    self._store.fail(lease, said(error)[:500])
                else:
                    self._store.finish(lease, values)
        except LeaseLost:
            return  # another machine measures it

    def _wait(self, key: str, number: int) -> SearchTrial:
        version, since = 0, time.monotonic()
        while True:
            changes = self._store.since(version)
            version = changes.version
            for trial in changes.trials:
                if trial.ended and trial.configuration is not None and configuration_key(trial.configuration) == key:
                    return trial
            if any(trial.state != "waiting" for trial in (*changes.trials, *self._store.unended())):
                since = time.monotonic()
            if time.monotonic() > since + _PATIENCE:
                raise ConfigError(
                    f"trial {number} is trained, but no machine of the kind {self._kind!r} has measured anything for "
                    f"{_PATIENCE / 60:g} minutes; give a place that has one, with --on"
                )
            time.sleep(_PAUSE)
