"""Leases are renewed while their holders work, all by one thread."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

from nnpipe.searching.trial_store import LeaseLost, MemoryTrials, TrialLease
from nnpipe.workflows.workers.machine_turns import LeaseRenewal


class Watched(MemoryTrials):
    def __init__(self) -> None:
        super().__init__(seconds=0.02, clock=lambda: 0.0)
        self.renewed: set[int] = set()
        self.all_renewed = threading.Event()

    def renew(self, lease: TrialLease) -> None:
        self.renewed.add(lease.trial.number)
        if self.renewed == {0, 1}:
            self.all_renewed.set()
        raise LeaseLost  # of one trial, which does not end the renewal of others


def test_one_thread_renews_the_leases_of_all_running_trials_until_it_is_closed() -> None:
    store = Watched()
    leases: list[Any] = []
    for x in (0, 1):
        store.enqueue({"x": x})
        leases.append(store.lease(f"worker {x}", lambda number: None, 0))
    before = threading.active_count()
    renewal = LeaseRenewal(store.seconds)
    one, other = (partial(store.renew, lease) for lease in leases)
    with renewal.renew_lease("one", one), renewal.renew_lease("other", other):
        assert threading.active_count() == before + 1
        assert store.all_renewed.wait(60)
    renewal.close()
    assert threading.active_count() == before
