"""Renewing leases while their holders work."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from nnpipe.searching.trial import LeaseLost, TrialLease
from nnpipe.searching.trial_store import TrialStore

log = logging.getLogger("nnpipe")

_RENEWALS = 4  # in the time for which a lease is valid


class LeaseRenewal:
    """Renews leases again and again, all in one thread, which starts with the first of them.

    Parameters
    ----------
    seconds
        For how long a lease is valid unless it is renewed; if that is infinite, none is renewed.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        self._leases: dict[object, tuple[str, Callable[[], object]]] = {}
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    @contextmanager
    def of(self, name: str, renew: Callable[[], object]) -> Iterator[None]:
        """Renew a lease with this function while the block runs; ``name`` says in warnings what the lease is of."""
        key = object()
        with self._lock:
            self._leases[key] = name, renew
            if self._thread is None and math.isfinite(self._seconds):
                self._thread = threading.Thread(target=self._renew, daemon=True)
                self._thread.start()
        try:
            yield
        finally:
            with self._lock:
                self._leases.pop(key, None)

    def close(self) -> None:
        """End the thread."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def _renew(self) -> None:
        while not self._over.wait(self._seconds / _RENEWALS):
            with self._lock:
                leases = list(self._leases.values())
            for name, renew in leases:
                try:
                    renew()
                except LeaseLost:
                    pass  # the work has ended, or its own next write says so
                except Exception as error:
                    log.warning("%s: its lease could not be renewed: %s", name, error)


@contextmanager
def renewed(store: TrialStore, lease: TrialLease) -> Iterator[None]:
    """Renew the lease of a trial again and again while the block runs."""
    renewal = LeaseRenewal(store.seconds)
    try:
        with renewal.of(f"trial {lease.trial.number}", lambda: store.renew(lease)):
            yield
    finally:
        renewal.close()
