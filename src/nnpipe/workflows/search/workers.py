"""Carrying out the trials of a search, one after the other or in several threads."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from nnpipe.core.errors import ConfigError
from nnpipe.core.files import find_full_disk_error
from nnpipe.searching.engine import SearchEngine
from nnpipe.searching.trial_store import LeaseLost, SearchTrial, TrialLease, TrialResult
from nnpipe.workflows.search.subjects import TrialPruned, TrialReport
from nnpipe.workflows.workers.machine_turns import LeaseRenewal

log = logging.getLogger("nnpipe")

Evaluate = Callable[[SearchTrial, Mapping[str, Any], TrialReport], Any]
"""Carries out a trial, given its arguments; returns the value of the objective, values by name,
or a result.
"""
Watch = Callable[[SearchTrial], None]
"""Is told each trial that has ended."""

_ALL_FAILED = 5
_WAIT = 0.5  # seconds between two looks at the trials of others


def format_worker_name(name: str, number: int) -> str:
    """Return what the worker of a number, from 0, is called in the store, by the name of its
    process.
    """
    return f"{name}-{number}"


class SearchWorkers:
    """The workers of one process.

    Parameters
    ----------
    engine
        Chooses configurations, and writes to the store.
    evaluate
        Carries out a trial.
    trials
        The greatest number of trials, those of other processes included.
    watch
        Is told each trial that has ended, one at a time.
    name
        The name of this process in the store; its workers are numbered.
    """

    def __init__(
        self, engine: SearchEngine, evaluate: Evaluate, trials: int, watch: Watch, name: str
    ) -> None:
        self.engine, self.store = engine, engine.store
        self._evaluate, self._limit, self._watch, self._name = evaluate, trials, watch, name
        self._lock = threading.Lock()
        self._renewal = LeaseRenewal(self.store.seconds)
        self._failed_first = 0
        self._succeeded = any(
            trial.state in ("finished", "pruned") for trial in self.store.trials()
        )
        self._error: BaseException | None = None
        self._stop = threading.Event()

    def run(self, workers: int) -> None:
        """Carry out trials until all have ended.

        Raises
        ------
        ConfigError
            If the first trials all fail, or a value is not as declared.
        """
        threads = [
            threading.Thread(
                target=self._run_worker, args=(format_worker_name(self._name, number),), daemon=True
            )
            for number in range(1, workers)
        ]
        for thread in threads:
            thread.start()
        try:
            self._run_worker(format_worker_name(self._name, 0))
        finally:
            self._stop.set()
            for thread in threads:
                thread.join()
            self._renewal.close()
        if self._error is not None:
            raise self._error

    def _run_worker(self, worker: str) -> None:
        try:
            while not self._stop.is_set():
                lease = self.store.lease(worker, self.engine.propose, self._limit)
                if lease is not None:
                    self._run_lease(lease)
                elif self._has_other_trials():
                    time.sleep(_WAIT)
                else:
                    return
        except Exception as error:
            with self._lock:
                self._error = self._error or error
            self._stop.set()

    def _has_other_trials(self) -> bool:
        """Return whether trials of other processes run, which would come here if their leases
        expired.
        """
        return math.isfinite(self.store.seconds) and bool(self.store.list_unended())

    def _run_lease(self, lease: TrialLease) -> None:
        report = TrialReport(self.engine, lease)
        arguments = self.engine.space.arguments(lease.trial.configuration or {})
        try:
            with self._renewal.renew_lease(
                f"trial {lease.trial.number}", lambda: self.store.renew(lease)
            ):
                try:
                    result = self._build_result(self._evaluate(lease.trial, arguments, report))
                except TrialPruned:
                    last = {} if report.last is None else {self.engine.prune_by: report.last}
                    ended = self.store.prune(lease, last)
                except LeaseLost:
                    raise
                except Exception as error:
                    # this says nothing about the trial, which is carried out again
                    if find_full_disk_error(error) is not None:
                        raise
                    ended = self.store.fail(
                        lease, " ".join(f"{type(error).__name__}: {error}".split())[:500]
                    )
                    log.debug("trial %d failed", lease.trial.number, exc_info=True)
                else:
                    ended = self.store.finish(lease, result)
        except LeaseLost:
            log.warning(
                "trial %d was given to another worker, because this one was not heard of",
                lease.trial.number,
            )
            return
        self._report_trial(replace(ended, reports=tuple(sorted(report.values.items()))))

    def _build_result(self, returned: Any) -> TrialResult:
        known = returned if isinstance(returned, TrialResult) else None
        values = self.engine.objectives.values(returned if known is None else known.values)
        if known is None:
            return TrialResult(values)
        return replace(
            known,
            values=values,
            intervals={name: known.intervals[name] for name in values if name in known.intervals},
        )

    def _report_trial(self, trial: SearchTrial) -> None:
        with self._lock:
            self._watch(trial)
            self._succeeded = self._succeeded or trial.state != "failed"
            self._failed_first += not self._succeeded
            if not self._succeeded and self._failed_first >= min(_ALL_FAILED, self._limit):
                raise ConfigError(
                    f"the first {self._failed_first} trials failed, the last one with "
                    f"{trial.message}"
                )
