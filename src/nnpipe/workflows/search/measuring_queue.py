"""Work of a search that is measured on machines of the kind that it names: trials made elsewhere, and the finals."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from nnpipe.core.errors import ConfigError, NNPipeError
from nnpipe.searching.database_trials import DatabaseTrials
from nnpipe.searching.space import SearchSpace
from nnpipe.searching.trial import LeaseLost, SearchTrial, TrialLease, TrialResult, configuration_key
from nnpipe.storage.content import get_files, put_files
from nnpipe.storage.storage import Storage
from nnpipe.workflows.journal import said
from nnpipe.workflows.search.finals_elsewhere import named
from nnpipe.workflows.search.measured_subject import MeasuredSubject
from nnpipe.workflows.workers.lease_renewal import renewed

log = logging.getLogger("nnpipe")

_PAUSE = 0.5
_PATIENCE = 900.0  # seconds for which work waits while no machine of the kind measures anything

Measure = Callable[[Mapping[str, Any]], TrialResult]
"""Carries out a piece of work."""


class MeasuringQueue:
    """Work that waits for a machine of the kind.

    Parameters
    ----------
    store
        Where it waits: a search of its own, whose values are those of the trials.
    storage
        Passes files from one machine to the other.
    kind
        The kind of the machines that measure.
    """

    def __init__(self, store: DatabaseTrials, storage: Storage, kind: str) -> None:
        self.store, self._storage, self._kind = store, storage, kind

    def made_here(self, subject: MeasuredSubject, trial: SearchTrial, arguments: Mapping[str, Any]) -> TrialResult:
        """Do for a trial here what any machine can, and return the metrics that another machine measures.

        Raises
        ------
        NNPipeError
            If that or the measurement fails, or no machine of the kind measures.
        """
        wanted = {"trial": trial.number, "configuration": dict(trial.configuration or {})}
        for known in self.store.trials():  # of an earlier attempt, whose worker died
            before = known.configuration or {}
            if known.state == "finished" and all(before.get(name) == value for name, value in wanted.items()):
                return _result(known)
        made = named(subject.made(trial, arguments), subject.output)
        work = wanted | {"files": put_files(self._storage, made)}
        ended = self.ended(work, f"trial {trial.number} is made")
        if ended.state != "finished":
            raise NNPipeError(ended.message)
        return _result(ended)

    def ended(self, work: Mapping[str, Any], until_here: str) -> SearchTrial:
        """Queue a piece of work unless it is known, wait for its end, and return its trial.

        Parameters
        ----------
        work
            The work.
        until_here
            What has been done so far, for the message if no machine of the kind measures.

        Raises
        ------
        ConfigError
            If no machine of the kind measures.
        """
        self.store.enqueue(work)
        key = configuration_key(work)
        version, since = 0, time.monotonic()
        while True:
            changes = self.store.since(version)
            version = changes.version
            for trial in changes.trials:
                if trial.ended and trial.configuration is not None and configuration_key(trial.configuration) == key:
                    return trial
            if any(trial.state != "waiting" for trial in (*changes.trials, *self.store.unended())):
                since = time.monotonic()
            if time.monotonic() > since + _PATIENCE:
                raise ConfigError(
                    f"{until_here}, but no machine of the kind {self._kind!r} has measured anything for "
                    f"{_PATIENCE / 60:g} minutes; give a place that has one, with --on"
                )
            time.sleep(_PAUSE)

    def measured(self, work: Mapping[str, Any], subject: MeasuredSubject, space: SearchSpace) -> TrialResult:
        """Measure a trial that was made on another machine."""
        get_files(self._storage, work["files"], subject.output)
        trial = SearchTrial(number=work["trial"], configuration=work["configuration"])
        return subject.measured(trial, space.arguments(work["configuration"]))

    @contextmanager
    def serving(self, measure: Measure, worker: str) -> Iterator[None]:
        """Carry out what waits, in a thread of this process, while the block runs."""
        over = threading.Event()

        def serve() -> None:
            while not over.is_set():
                lease = self.store.lease(worker, lambda number: None, 0)
                if lease is None:
                    over.wait(_PAUSE)
                else:
                    self._carry_out(measure, lease)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _carry_out(self, measure: Measure, lease: TrialLease) -> None:
        try:
            with renewed(self.store, lease):
                try:
                    result = measure(lease.trial.configuration or {})
                except NNPipeError as error:
                    self.store.fail(lease, said(error)[:500])
                except Exception as error:
                    log.warning("%s", lease.trial.configuration, exc_info=True)
                    self.store.fail(lease, f"{type(error).__name__}: {error}"[:500])
                else:
                    self.store.finish(lease, result)
        except LeaseLost:
            return  # another machine does it


def _result(trial: SearchTrial) -> TrialResult:
    return TrialResult(trial.values, trial.intervals, trial.files)
