"""Trials in the run database, for workers in any number of processes and on any number of
machines.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from nnpipe.experiment.database.database import RunDatabase
from nnpipe.searching.trial_store import (
    LEASE_SECONDS,
    EarlierTrial,
    Proposal,
    SearchTrial,
    TrialChanges,
    TrialLease,
    TrialResult,
    TrialState,
    TrialStore,
    build_configuration_key,
    check_owned,
)


class DatabaseTrials(TrialStore):
    """The trials of a search in the run database.

    ::

        with RunDatabase("runs.sqlite") as database:
            search = database.searches.open("widths", {"accuracy": "maximize"})
            trials = DatabaseTrials(database, search)

    A worker that is killed loses nothing but its attempt: when its lease expires, or when
    :meth:`release` says that the worker is dead, its trial is carried out by another worker.
    Leases are judged by the clock of PostgreSQL, or of the one machine that uses a file.

    Parameters
    ----------
    database
        The run database.
    search
        The identity of the search's run, from
        :meth:`~nnpipe.experiment.database.searches.Searches.open`.
    seconds, repeats
        As for :class:`TrialStore`.
    clock
        Returns the time in seconds since 1970 UTC, instead of the usual clock.
    """

    def __init__(
        self,
        database: RunDatabase,
        search: str,
        *,
        seconds: float = LEASE_SECONDS,
        repeats: bool = False,
        clock: Callable[[], float] | None = None,
    ) -> None:
        super().__init__(seconds=seconds, repeats=repeats)
        self._rows = database.searches.trials(search, clock)

    def renew(self, lease: TrialLease) -> None:
        """Extend a lease by ``seconds`` from now."""
        check_owned(lease, self._rows.renew(lease.trial.number, lease.fence, self.seconds))

    def list_changes(self, version: int) -> TrialChanges:
        """Return the trials that changed after a version, in the order of their changes."""
        now, found = self._rows.read_changes(version)
        return TrialChanges(now, tuple(SearchTrial(**fields) for fields in found))

    def list_unended(self) -> tuple[SearchTrial, ...]:
        """Return the trials that have not ended, by number and without their reports."""
        return tuple(SearchTrial(**fields) for fields in self._rows.read_unfinished())

    def enqueue(self, configuration: Mapping[str, Any]) -> bool:
        """Add a waiting trial; return whether it was added, and not known already."""
        return bool(
            self._rows.add([(configuration, self._build_key(configuration), {})], counted=True)
        )

    def enqueue_all(self, configurations: Iterable[Mapping[str, Any]]) -> int:
        """Add waiting trials in one transaction; return how many were added, and not known
        already.
        """
        return self._rows.add(
            [(each, self._build_key(each), {}) for each in configurations], counted=True
        )

    def take_over(self, trials: Iterable[EarlierTrial]) -> int:
        """Add finished trials from elsewhere; return how many."""
        rows = [
            (
                each.configuration,
                self._build_key(each.configuration),
                {
                    "state": "finished",
                    "results": json.dumps(dict(each.values)),
                    "origin": each.origin,
                    "expires": None,
                },
            )
            for each in trials
        ]
        return self._rows.add(rows, counted=False)

    def release(self, worker: str) -> int:
        """End the leases of a worker that is known to be dead; return how many."""
        return self._rows.release(worker)

    def _take(self, worker: str, limit: int) -> TrialLease | None:
        taken = self._rows.take(worker, self.seconds, limit)
        if taken is None:
            return None
        fields, expires = taken
        trial = SearchTrial(**fields)
        return TrialLease(trial, worker, trial.fence, expires)

    def _configure(self, lease: TrialLease, proposal: Proposal) -> TrialLease | None:
        configuration, notes = dict(proposal.configuration), dict(proposal.notes)
        number, key = lease.trial.number, self._build_key(configuration)
        valid, version = self._rows.configure(number, lease.fence, configuration, notes, key)
        check_owned(lease, valid)
        if version is None:
            return None
        return replace(
            lease,
            trial=replace(lease.trial, configuration=configuration, notes=notes, version=version),
        )

    def _withdraw(self, lease: TrialLease) -> None:
        check_owned(lease, self._rows.withdraw(lease.trial.number, lease.fence))

    def _report(self, lease: TrialLease, step: int, value: float) -> None:
        check_owned(
            lease, self._rows.report(lease.trial.number, lease.fence, step, value, self.seconds)
        )

    def _end(
        self, lease: TrialLease, state: TrialState, result: TrialResult, message: str
    ) -> SearchTrial:
        number, given = lease.trial.number, vars(result)
        ended = self._rows.end(number, lease.fence, state, message, given)
        check_owned(lease, ended is not None)
        assert ended is not None
        seconds, version = ended
        return replace(
            lease.trial, state=state, message=message, seconds=seconds, version=version, **given
        )

    def _build_key(self, configuration: Mapping[str, Any]) -> str | None:
        return None if self.repeats else build_configuration_key(configuration)
