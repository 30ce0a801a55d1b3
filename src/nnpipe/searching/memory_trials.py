"""Trials that are kept in memory."""

from __future__ import annotations

import bisect
import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from nnpipe.searching.trial import (
    EarlierTrial,
    Proposal,
    SearchTrial,
    TrialChanges,
    TrialLease,
    TrialResult,
    TrialState,
    configuration_key,
)
from nnpipe.searching.trial_store import TrialStore, check_owned


class MemoryTrials(TrialStore):
    """Trials that are kept in memory, for the threads of one process.

    Parameters
    ----------
    seconds, repeats
        As for :class:`~nnpipe.searching.trial_store.TrialStore`; by default leases never expire, for a thread does
        not die by itself.
    clock
        Returns the time in seconds since 1970 UTC.
    """

    def __init__(
        self, *, seconds: float = math.inf, repeats: bool = False, clock: Callable[[], float] = time.time
    ) -> None:
        super().__init__(seconds=seconds, repeats=repeats)
        self._clock = clock
        self._lock = threading.RLock()
        self._trials: dict[int, SearchTrial] = {}
        self._by_version: dict[int, int] = {}  # the number of a trial by its version, in the order of versions
        self._keys: set[str] = set()
        self._open: list[int] = []  # the numbers of the trials that have not ended
        self._expires: dict[int, float] = {}
        self._started: dict[int, float] = {}
        self._version = 0
        self._taken_over = 0

    def renew(self, lease: TrialLease) -> None:
        """Extend a lease by ``seconds`` from now."""
        with self._lock:
            self._owned(lease)
            self._expires[lease.trial.number] = self._clock() + self.seconds

    def since(self, version: int) -> TrialChanges:
        """Return the trials that changed after a version, in the order of their changes."""
        with self._lock:
            found: list[SearchTrial] = []
            for changed in reversed(self._by_version):
                if changed <= version:
                    break
                found.append(self._trials[self._by_version[changed]])
            return TrialChanges(self._version, tuple(reversed(found)))

    def unended(self) -> tuple[SearchTrial, ...]:
        """Return the trials that have not ended, by number."""
        with self._lock:
            return tuple(self._trials[number] for number in self._open)

    def enqueue(self, configuration: Mapping[str, Any]) -> bool:
        """Add a waiting trial; return whether it was added, and not known already."""
        with self._lock:
            if not self._claim(configuration):
                return False
            self._put(SearchTrial(number=self._next(), configuration=dict(configuration)))
            return True

    def take_over(self, trials: Iterable[EarlierTrial]) -> int:
        """Add finished trials from elsewhere; return how many."""
        with self._lock:
            new = [each for each in trials if self._claim(each.configuration)]
            for each in new:
                trial = SearchTrial(
                    number=self._next(), configuration=dict(each.configuration), state="finished",
                    values=dict(each.values), origin=each.origin,
                )  # fmt: skip
                self._open.remove(self._put(trial).number)
            self._taken_over += len(new)
            return len(new)

    def release(self, worker: str) -> int:
        """End the leases of a worker that is known to be dead; return how many."""
        with self._lock:
            held = [number for number in self._open if self._trials[number].worker == worker]
            self._expires |= dict.fromkeys(held, -math.inf)
            return len(held)

    def _take(self, worker: str, limit: int) -> TrialLease | None:
        with self._lock:
            now = self._clock()
            for number in self._open:
                trial = self._trials[number]
                if trial.state == "waiting" or self._expires[number] <= now:
                    return self._leased(trial, worker, now)
            if len(self._trials) - self._taken_over >= limit:
                return None
            return self._leased(SearchTrial(number=self._next(), configuration=None), worker, now)

    def _configure(self, lease: TrialLease, proposal: Proposal) -> TrialLease | None:
        with self._lock:
            trial = self._owned(lease)
            if not self._claim(proposal.configuration):
                return None
            changed = replace(trial, configuration=dict(proposal.configuration), notes=dict(proposal.notes))
            return replace(lease, trial=self._put(changed))

    def _withdraw(self, lease: TrialLease) -> None:
        with self._lock:
            trial = self._owned(lease)
            del self._trials[trial.number], self._by_version[trial.version]
            self._open.remove(trial.number)

    def _report(self, lease: TrialLease, step: int, value: float) -> None:
        with self._lock:
            trial = self._owned(lease)
            reports = tuple(sorted({**dict(trial.reports), step: value}.items()))
            self._put(replace(trial, reports=reports))
            self._expires[trial.number] = self._clock() + self.seconds

    def _end(self, lease: TrialLease, state: TrialState, result: TrialResult, message: str) -> SearchTrial:
        with self._lock:
            trial = self._owned(lease)
            seconds = self._clock() - self._started[trial.number]
            ended = replace(trial, state=state, seconds=seconds, message=message)
            self._open.remove(trial.number)
            return self._put(replace(ended, values=result.values, intervals=result.intervals, files=result.files))

    def _leased(self, trial: SearchTrial, worker: str, now: float) -> TrialLease:
        number = trial.number
        given = self._put(replace(trial, state="running", worker=worker, fence=trial.fence + 1, reports=()))
        self._expires[number], self._started[number] = now + self.seconds, now
        return TrialLease(given, worker, given.fence, self._expires[number])

    def _owned(self, lease: TrialLease) -> SearchTrial:
        trial = self._trials.get(lease.trial.number)
        check_owned(lease, trial is not None and trial.state == "running" and trial.fence == lease.fence)
        return self._trials[lease.trial.number]

    def _claim(self, configuration: Mapping[str, Any]) -> bool:
        key = configuration_key(configuration)
        if key in self._keys and not self.repeats:
            return False
        self._keys.add(key)
        return True

    def _next(self) -> int:
        return next(reversed(self._trials), -1) + 1

    def _put(self, trial: SearchTrial) -> SearchTrial:
        self._version += 1
        if trial.number in self._trials:
            del self._by_version[trial.version]
        else:
            bisect.insort(self._open, trial.number)
        self._trials[trial.number] = replace(trial, version=self._version)
        self._by_version[self._version] = trial.number
        return self._trials[trial.number]
