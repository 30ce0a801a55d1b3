"""Where the trials of a search are kept."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError
from nnpipe.searching.trial import (
    EarlierTrial,
    LeaseLost,
    Proposal,
    SearchTrial,
    TrialChanges,
    TrialLease,
    TrialResult,
    TrialState,
)

Propose = Callable[[int], Proposal | None]
"""Returns the configuration for the trial of a number; ``None`` if every configuration has been tried."""

LEASE_SECONDS = 60.0


class TrialStore(ABC):
    """The trials of one search, shared by all its workers.

    A worker leases a trial, reports intermediate values, and ends it::

        while lease := store.lease("worker 1", propose, limit=100):
            store.finish(lease, {"accuracy": train(lease.trial.configuration)})

    A lease expires after ``seconds`` unless :meth:`report` or :meth:`renew` extends it.  The trial of an expired lease
    is given to the next worker that asks, with the same configuration and the next fencing number.  A worker that
    writes with an older number gets :class:`~nnpipe.searching.trial.LeaseLost`, and nothing is written.

    Every private method below is one transaction.  A trial is first reserved without a configuration, so that a
    slow proposal holds no lock: it is made between two transactions, from what :meth:`since` returns.  No two trials
    have the same configuration unless ``repeats`` says so.

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

        A waiting trial, or one whose lease has expired, comes first, by number.  Otherwise a new one is made if there
        are fewer than ``limit``, in whatever state.

        Parameters
        ----------
        worker
            The name of the worker.
        propose
            Is called with the number of a trial that has no configuration yet, outside of any transaction; again if
            another worker has taken the configuration in the meantime.
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
        """Store an intermediate value, which replaces an earlier one of the same step, and renew the lease."""
        check_call(TrialStore.report, locals())
        self._report(lease, step, float(value))

    def finish(self, lease: TrialLease, values: Mapping[str, float] | TrialResult, message: str = "") -> SearchTrial:
        """End a trial with the value of each objective; ``message`` is what else there is to say.

        This, :meth:`prune` and :meth:`fail` return the trial as it has ended, possibly without its reports.
        """
        return self._end(lease, "finished", _floats(values), message)

    def prune(self, lease: TrialLease, values: Mapping[str, float] | None = None) -> SearchTrial:
        """End a trial that is not worth going on with; ``values`` are the last known ones."""
        return self._end(lease, "pruned", _floats(values or {}), "")

    def fail(self, lease: TrialLease, message: str) -> SearchTrial:
        """End a trial that failed."""
        return self._end(lease, "failed", TrialResult({}), message)

    def trials(self) -> tuple[SearchTrial, ...]:
        """Return all trials by number."""
        return tuple(sorted(self.since(0).trials, key=lambda trial: trial.number))

    @abstractmethod
    def renew(self, lease: TrialLease) -> None:
        """Extend a lease by ``seconds`` from now."""

    @abstractmethod
    def since(self, version: int) -> TrialChanges:
        """Return the trials that changed after a version, in the order of their changes; 0 is before all changes."""

    @abstractmethod
    def unended(self) -> tuple[SearchTrial, ...]:
        """Return the trials that have not ended, by number and without their reports."""

    @abstractmethod
    def enqueue(self, configuration: Mapping[str, Any]) -> bool:
        """Add a waiting trial; return whether it was added, and not known already."""

    @abstractmethod
    def take_over(self, trials: Iterable[EarlierTrial]) -> int:
        """Add finished trials from elsewhere; return how many: those whose configuration was not known."""

    @abstractmethod
    def release(self, worker: str) -> int:
        """End the leases of a worker that is known to be dead, so that nobody waits for them; return how many."""

    @abstractmethod
    def _take(self, worker: str, limit: int) -> TrialLease | None:
        """Lease the first waiting or expired trial, or a new one without configuration below the limit."""

    @abstractmethod
    def _configure(self, lease: TrialLease, proposal: Proposal) -> TrialLease | None:
        """Store the configuration of a reserved trial; return ``None`` if another trial has it and may not."""

    @abstractmethod
    def _withdraw(self, lease: TrialLease) -> None:
        """Remove a reserved trial for which there is no configuration."""

    @abstractmethod
    def _report(self, lease: TrialLease, step: int, value: float) -> None:
        """Store an intermediate value and renew the lease."""

    @abstractmethod
    def _end(self, lease: TrialLease, state: TrialState, result: TrialResult, message: str) -> SearchTrial:
        """End a trial, and return it."""


def _floats(given: Mapping[str, float] | TrialResult) -> TrialResult:
    found = given if isinstance(given, TrialResult) else TrialResult(given)
    intervals = {name: (float(low), float(high)) for name, (low, high) in found.intervals.items()}
    return TrialResult({name: float(value) for name, value in found.values.items()}, intervals, found.files)


def check_owned(lease: TrialLease, valid: bool) -> None:
    """Raise :class:`~nnpipe.searching.trial.LeaseLost` unless a lease is valid."""
    if not valid:
        raise LeaseLost(f"trial {lease.trial.number} is no longer leased to {lease.worker}")
