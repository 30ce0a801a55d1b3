"""Whose turn it is on a machine: workers train side by side, but each measures alone."""

from __future__ import annotations

import logging
import math
import os
import platform
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from nnpipe.core.leases import get_shared_temporary_folder
from nnpipe.measuring.host import read_host_facts
from nnpipe.searching.trial_store import LeaseLost, TrialLease, TrialStore

try:
    import fcntl
except ImportError:  # Windows: workers need Unix
    fcntl = None  # type: ignore[assignment]


class MachineTurns:
    """Turns of the workers of one user on a machine.

    Any number of workers may be :meth:`acquire_shared` at a time, or one :meth:`acquire_exclusive`
    alone.  A worker that waits to measure lets no other begin to work, so it does not wait for
    ever.  The system ends the turns of a killed process.

    Parameters
    ----------
    folder
        Holds the locks; the same one for all workers of the machine.
    """

    def __init__(self, folder: Path | None = None) -> None:
        if folder is None:
            folder = (
                get_shared_temporary_folder()
                / f"nnpipe-turns-{os.getuid() if hasattr(os, 'getuid') else 0}"
            )
        self._folder = folder

    @contextmanager
    def acquire_shared(self) -> Iterator[None]:
        """Hold a turn beside other workers, for instance to train."""
        with self._lock("room", alone=False):
            yield

    @contextmanager
    def acquire_exclusive(self) -> Iterator[None]:
        """Hold a turn alone, to measure times."""
        with self._lock("room", alone=True):
            yield

    @contextmanager
    def _lock(self, name: str, *, alone: bool) -> Iterator[None]:
        if fcntl is None:
            yield
            return
        self._folder.mkdir(mode=0o700, exist_ok=True)
        with open(self._folder / name, "ab") as room:
            # Everybody passes the door one by one; who waits for the room alone stands in it.
            with open(self._folder / "door", "ab") as door:
                fcntl.flock(door, fcntl.LOCK_EX)
                fcntl.flock(room, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
            yield


def acquire_turn(
    turns: MachineTurns | None, *, alone: bool = False
) -> AbstractContextManager[None]:
    """Return a turn beside others, or alone; one that needs no waiting if nobody else works on
    this machine.
    """
    if turns is None:
        return nullcontext()
    return turns.acquire_exclusive() if alone else turns.acquire_shared()


def is_of_kind(kind: str, facts: dict[str, Any] | None = None, name: str | None = None) -> bool:
    """Return whether this machine is of a kind: a part of the name of its processor, board, GPU or
    of its own name.

    Parameters
    ----------
    kind
        The text, in any case; every machine is of the empty kind.
    facts, name
        Facts about the machine, and its name; by default of this one.
    """
    if not kind:
        return True
    facts = read_host_facts() if facts is None else facts
    names = [
        platform.node() if name is None else name,
        facts.get("cpu", {}).get("model"),
        facts.get("board"),
        platform.machine(),
        *(gpu.get("name") for gpu in facts.get("gpus", [])),
    ]
    return any(kind.casefold() in str(each).casefold() for each in names if each)


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
    def renew_lease(self, name: str, renew: Callable[[], object]) -> Iterator[None]:
        """Renew a lease with this function while the block runs; ``name`` says in warnings what
        the lease is of.
        """
        key = object()
        with self._lock:
            self._leases[key] = name, renew
            if self._thread is None and math.isfinite(self._seconds):
                self._thread = threading.Thread(target=self._renew_all, daemon=True)
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

    def _renew_all(self) -> None:
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
def renew_trial_lease(store: TrialStore, lease: TrialLease) -> Iterator[None]:
    """Renew the lease of a trial again and again while the block runs."""
    renewal = LeaseRenewal(store.seconds)
    try:
        with renewal.renew_lease(f"trial {lease.trial.number}", lambda: store.renew(lease)):
            yield
    finally:
        renewal.close()
