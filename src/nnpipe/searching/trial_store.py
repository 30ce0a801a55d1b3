"""Where the trials of a search are kept."""

from __future__ import annotations

import bisect
import json
import math
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError

TrialState = Literal["waiting", "running", "finished", "failed", "pruned"]

ENDED: tuple[TrialState, ...] = ("finished", "failed", "pruned")


class LeaseLost(Exception):
    """A worker wrote to a trial that is no longer its own: its lease expired, and another worker
    may have the trial.
    """


@dataclass(frozen=True, kw_only=True)
class SearchTrial:
    """A trial as it was when the store was read.

    Parameters
    ----------
    number
        Its number within the search, from 0.
    configuration
        The values of the parameters that exist in this trial, by name; ``None`` while none has been
        proposed.
    state
        ``waiting`` (for a worker), ``running``, ``finished``, ``failed`` or ``pruned``.
    values
        The value of each objective, by name; those of a pruned trial are the last known ones, if
        there are any.
    reports
        Intermediate values as pairs of step and value, in the order of their steps.
    notes
        What the sampler stored with the trial, in the form of JSON.
    intervals
        The ends of the interval of each value that was measured with uncertainty, by name.
    files
        The SHA-256 of the list of files that belong to it in a storage; empty without any.
    seconds
        The time from the start of its last attempt to its end; ``None`` before the end.
    message
        Why it failed, or what else there is to say about its end.
    worker
        The name of the worker that has or had it.
    fence
        How many leases have been given for this trial.  A worker may write to it only with the last
        one.
    origin
        Where it was taken over from, such as an earlier run; empty for a trial of this search.
    version
        The version of the store in which the trial changed last.
    """

    number: int
    configuration: Mapping[str, Any] | None
    state: TrialState = "waiting"
    values: Mapping[str, float] = field(default_factory=dict)
    reports: tuple[tuple[int, float], ...] = ()
    notes: Mapping[str, Any] = field(default_factory=dict)
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    files: str = ""
    seconds: float | None = None
    message: str = ""
    worker: str = ""
    fence: int = 0
    origin: str = ""
    version: int = 0

    @property
    def ended(self) -> bool:
        """Whether the trial has ended, in any way."""
        return self.state in ENDED


@dataclass(frozen=True)
class TrialResult:
    """What a trial gave: ``values``, ``intervals`` and ``files`` as in :class:`SearchTrial`."""

    values: Mapping[str, float]
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    files: str = ""


@dataclass(frozen=True)
class Proposal:
    """The configuration for a trial, and what the sampler notes with it, in the form of JSON."""

    configuration: Mapping[str, Any]
    notes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class EarlierTrial:
    """A configuration that was tried before a search, and the values that it gave."""

    configuration: Mapping[str, Any]
    values: Mapping[str, float]
    origin: str


@dataclass(frozen=True)
class TrialLease:
    """The right of one worker to carry out a trial until ``expires``, in seconds since 1970 UTC."""

    trial: SearchTrial
    worker: str
    fence: int
    expires: float


@dataclass(frozen=True)
class TrialChanges:
    """The trials that changed after a version of the store, and its version now."""

    version: int
    trials: tuple[SearchTrial, ...]


def build_configuration_key(configuration: Mapping[str, Any]) -> str:
    """Return a text that is equal for equal configurations only, whatever the order of their
    names.
    """
    return json.dumps(dict(configuration), sort_keys=True, separators=(",", ":"))


Propose = Callable[[int], Proposal | None]
"""Returns the configuration for the trial of a number; ``None`` if every configuration has been
tried.
"""

LEASE_SECONDS = 60.0


class TrialStore(ABC):
    """The trials of one search, shared by all its workers.

    A worker leases a trial, reports intermediate values, and ends it::

        while lease := store.lease("worker 1", propose, limit=100):
            store.finish(lease, {"accuracy": train(lease.trial.configuration)})

    A lease expires after ``seconds`` unless :meth:`report` or :meth:`renew` extends it.  The trial
    of an expired lease is given to the next worker that asks, with the same configuration and the
    next fencing number.  A worker that writes with an older number gets
    :class:`~nnpipe.searching.trial_store.LeaseLost`, and nothing is written.

    Every private method below is one transaction.  A trial is first reserved without a
    configuration, so that a slow proposal holds no lock: it is made between two transactions, from
    what :meth:`list_changes` returns.  No two trials have the same configuration unless ``repeats``
    says so.

    All methods may be called by several threads and processes at the same time.

    Parameters
    ----------
    seconds
        For how long a lease is valid.
    repeats
        Whether several trials may have the same configuration, for objectives with noise.
    """

    def __init__(self, *, seconds: float = LEASE_SECONDS, repeats: bool = False) -> None:
        check_call(TrialStore, locals())
        if not seconds > 0:
            raise ConfigError(f"a lease is valid for more than 0 seconds, not {seconds}")
        self.seconds = seconds
        self.repeats = repeats

    def lease(self, worker: str, propose: Propose, limit: int) -> TrialLease | None:
        """Return a trial to carry out; ``None`` if there is nothing to do now.

        A waiting trial, or one whose lease has expired, comes first, by number.  Otherwise a new
        one is made if there are fewer than ``limit``, in whatever state.

        Parameters
        ----------
        worker
            The name of the worker.
        propose
            Is called with the number of a trial that has no configuration yet, outside of any
            transaction; again if another worker has taken the configuration in the meantime.
        limit
            The greatest number of trials, without those that were taken over.
        """
        check_call(TrialStore.lease, locals())
        lease = self._take(worker, limit)
        while lease is not None and lease.trial.configuration is None:
            proposal = propose(lease.trial.number)
            if proposal is None:
                self._withdraw(lease)
                return None
            lease = self._configure(lease, proposal) or lease
        return lease

    def report(self, lease: TrialLease, step: int, value: float) -> None:
        """Store an intermediate value, which replaces an earlier one of the same step, and renew
        the lease.
        """
        check_call(TrialStore.report, locals())
        self._report(lease, step, float(value))

    def finish(
        self, lease: TrialLease, values: Mapping[str, float] | TrialResult, message: str = ""
    ) -> SearchTrial:
        """End a trial with the value of each objective; ``message`` is what else there is to say.

        This, :meth:`prune` and :meth:`fail` return the trial as it has ended, possibly without its
        reports.
        """
        return self._end(lease, "finished", _convert_to_floats(values), message)

    def prune(self, lease: TrialLease, values: Mapping[str, float] | None = None) -> SearchTrial:
        """End a trial that is not worth going on with; ``values`` are the last known ones."""
        return self._end(lease, "pruned", _convert_to_floats(values or {}), "")

    def fail(self, lease: TrialLease, message: str) -> SearchTrial:
        """End a trial that failed."""
        return self._end(lease, "failed", TrialResult({}), message)

    def trials(self) -> tuple[SearchTrial, ...]:
        """Return all trials by number."""
        return tuple(sorted(self.list_changes(0).trials, key=lambda trial: trial.number))

    @abstractmethod
    def renew(self, lease: TrialLease) -> None:
        """Extend a lease by ``seconds`` from now."""

    @abstractmethod
    def list_changes(self, version: int) -> TrialChanges:
        """Return the trials that changed after a version, in the order of their changes; 0 is
        before all changes.
        """

    @abstractmethod
    def list_unended(self) -> tuple[SearchTrial, ...]:
        """Return the trials that have not ended, by number and without their reports."""

    @abstractmethod
    def enqueue(self, configuration: Mapping[str, Any]) -> bool:
        """Add a waiting trial; return whether it was added, and not known already."""

    @abstractmethod
    def take_over(self, trials: Iterable[EarlierTrial]) -> int:
        """Add finished trials from elsewhere; return how many: those whose configuration was not
        known.
        """

    @abstractmethod
    def release(self, worker: str) -> int:
        """End the leases of a worker that is known to be dead, so that nobody waits for them;
        return how many.
        """

    @abstractmethod
    def _take(self, worker: str, limit: int) -> TrialLease | None:
        """Lease the first waiting or expired trial, or a new one without configuration below the
        limit.
        """

    @abstractmethod
    def _configure(self, lease: TrialLease, proposal: Proposal) -> TrialLease | None:
        """Store the configuration of a reserved trial; return ``None`` if another trial has it
        and may not.
        """

    @abstractmethod
    def _withdraw(self, lease: TrialLease) -> None:
        """Remove a reserved trial for which there is no configuration."""

    @abstractmethod
    def _report(self, lease: TrialLease, step: int, value: float) -> None:
        """Store an intermediate value and renew the lease."""

    @abstractmethod
    def _end(
        self, lease: TrialLease, state: TrialState, result: TrialResult, message: str
    ) -> SearchTrial:
        """End a trial, and return it."""


def _convert_to_floats(given: Mapping[str, float] | TrialResult) -> TrialResult:
    found = given if isinstance(given, TrialResult) else TrialResult(given)
    intervals = {name: (float(low), float(high)) for name, (low, high) in found.intervals.items()}
    return TrialResult(
        {name: float(value) for name, value in found.values.items()}, intervals, found.files
    )


def check_owned(lease: TrialLease, valid: bool) -> None:
    """Raise :class:`~nnpipe.searching.trial_store.LeaseLost` unless a lease is valid."""
    if not valid:
        raise LeaseLost(f"trial {lease.trial.number} is no longer leased to {lease.worker}")


class MemoryTrials(TrialStore):
    """Trials that are kept in memory, for the threads of one process.

    Parameters
    ----------
    seconds, repeats
        As for :class:`~nnpipe.searching.trial_store.TrialStore`; by default leases never expire,
        for a thread does not die by itself.
    clock
        Returns the time in seconds since 1970 UTC.
    """

    def __init__(
        self,
        *,
        seconds: float = math.inf,
        repeats: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(seconds=seconds, repeats=repeats)
        self._clock = clock
        self._lock = threading.RLock()
        self._trials: dict[int, SearchTrial] = {}
        # the number of a trial by its version, in the order of versions
        self._by_version: dict[int, int] = {}
        self._keys: set[str] = set()
        self._open: list[int] = []  # the numbers of the trials that have not ended
        self._expires: dict[int, float] = {}
        self._started: dict[int, float] = {}
        self._version = 0
        self._taken_over = 0

    def renew(self, lease: TrialLease) -> None:
        """Extend a lease by ``seconds`` from now."""
        with self._lock:
            self._require_owned(lease)
            self._expires[lease.trial.number] = self._clock() + self.seconds

    def list_changes(self, version: int) -> TrialChanges:
        """Return the trials that changed after a version, in the order of their changes."""
        with self._lock:
            found: list[SearchTrial] = []
            for changed in reversed(self._by_version):
                if changed <= version:
                    break
                found.append(self._trials[self._by_version[changed]])
            return TrialChanges(self._version, tuple(reversed(found)))

    def list_unended(self) -> tuple[SearchTrial, ...]:
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
                    number=self._next(),
                    configuration=dict(each.configuration),
                    state="finished",
                    values=dict(each.values),
                    origin=each.origin,
                )
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
                    return self._lease_trial(trial, worker, now)
            if len(self._trials) - self._taken_over >= limit:
                return None
            return self._lease_trial(
                SearchTrial(number=self._next(), configuration=None), worker, now
            )

    def _configure(self, lease: TrialLease, proposal: Proposal) -> TrialLease | None:
        with self._lock:
            trial = self._require_owned(lease)
            if not self._claim(proposal.configuration):
                return None
            changed = replace(
                trial, configuration=dict(proposal.configuration), notes=dict(proposal.notes)
            )
            return replace(lease, trial=self._put(changed))

    def _withdraw(self, lease: TrialLease) -> None:
        with self._lock:
            trial = self._require_owned(lease)
            del self._trials[trial.number], self._by_version[trial.version]
            self._open.remove(trial.number)

    def _report(self, lease: TrialLease, step: int, value: float) -> None:
        with self._lock:
            trial = self._require_owned(lease)
            reports = tuple(sorted({**dict(trial.reports), step: value}.items()))
            self._put(replace(trial, reports=reports))
            self._expires[trial.number] = self._clock() + self.seconds

    def _end(
        self, lease: TrialLease, state: TrialState, result: TrialResult, message: str
    ) -> SearchTrial:
        with self._lock:
            trial = self._require_owned(lease)
            seconds = self._clock() - self._started[trial.number]
            ended = replace(trial, state=state, seconds=seconds, message=message)
            self._open.remove(trial.number)
            return self._put(
                replace(ended, values=result.values, intervals=result.intervals, files=result.files)
            )

    def _lease_trial(self, trial: SearchTrial, worker: str, now: float) -> TrialLease:
        number = trial.number
        given = self._put(
            replace(trial, state="running", worker=worker, fence=trial.fence + 1, reports=())
        )
        self._expires[number], self._started[number] = now + self.seconds, now
        return TrialLease(given, worker, given.fence, self._expires[number])

    def _require_owned(self, lease: TrialLease) -> SearchTrial:
        trial = self._trials.get(lease.trial.number)
        check_owned(
            lease, trial is not None and trial.state == "running" and trial.fence == lease.fence
        )
        return self._trials[lease.trial.number]

    def _claim(self, configuration: Mapping[str, Any]) -> bool:
        key = build_configuration_key(configuration)
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
