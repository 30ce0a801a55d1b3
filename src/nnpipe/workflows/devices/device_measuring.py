"""Measuring on one device: one measurement at a time, and again if the device goes away
meanwhile.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import getpass
import logging
import os
import platform
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TypeVar

from nnpipe.core.closing import Closing
from nnpipe.core.errors import (
    AuthenticationError,
    NNPipeError,
    RemoteProtocolError,
    TargetError,
    TransportError,
)
from nnpipe.experiment.database.database import RunDatabase
from nnpipe.experiment.database.device_queues import DeviceTicket
from nnpipe.workflows.candidates.deployment import Deployment
from nnpipe.workflows.candidates.measure import create_device_worker
from nnpipe.workflows.devices.device import Device, Fleet
from nnpipe.workflows.devices.inspection import FAILED, fetch_state
from nnpipe.workflows.isolation.subprocess_worker import Worker
from nnpipe.workflows.isolation.worker_template import WorkerTemplate
from nnpipe.workflows.journal import get_error_message
from nnpipe.workflows.workers.machine_turns import LeaseRenewal

log = logging.getLogger("nnpipe")

LEASE_SECONDS = 60.0
_SHORTEST_TURN_PAUSE, _LONGEST_TURN_PAUSE = 0.05, 1.0  # seconds between two looks at a queue


class DeviceLeaseLost(NNPipeError):
    """The lease of a device expired during a measurement, which does not count then."""


class DeviceTurns(Closing):
    """The turns of one process on shared devices; used in a ``with`` block.

    A turn is for one measurement, and who comes first gets the next one, so two sweeps on one
    device take turns.  A process that is killed loses its turn and its place when its leases
    expire.

    Parameters
    ----------
    address
        The run database, as for :class:`~nnpipe.experiment.database.database.RunDatabase`.
    purpose
        What devices are used for, for others who wait.
    seconds
        For how long a lease is valid unless it is renewed, as is done while the process lives.
    """

    def __init__(self, address: str, purpose: str, *, seconds: float = LEASE_SECONDS) -> None:
        self._database = RunDatabase(address)
        self._purpose, self._seconds = purpose, seconds
        self._renewal = LeaseRenewal(seconds)
        self._held: set[int] = set()
        self._over = threading.Event()

    def close(self) -> None:
        """Release all devices, and close the database; those who wait in other threads stop
        waiting.
        """
        self._over.set()
        self._renewal.close()
        for number in list(self._held):
            with contextlib.suppress(NNPipeError):
                self._database.devices.release(number)
        self._database.close()

    @contextmanager
    def lock_device(self, device: Device) -> Iterator[None]:
        """Wait for a device, and hold it in the block.

        Raises
        ------
        DeviceLeaseLost
            At the end of the block, if the lease expired in it.
        NNPipeError
            If the database cannot be used, or the turns are closed by another thread.
        """
        queues = self._database.devices
        number = queues.ask(device.name, describe_process(), self._purpose, self._seconds)
        self._held.add(number)
        try:
            with self._renewal.renew_lease(
                device.name, lambda: queues.advance(number, self._seconds)
            ):
                self._wait(device, number)
                yield
        except BaseException:
            self._release_lease(number)
            raise
        if not self._release_lease(number):
            raise DeviceLeaseLost(f"{device.name}: its lease expired while it was used")

    def _release_lease(self, number: int) -> bool:
        self._held.discard(number)
        return self._database.devices.release(number)

    def _wait(self, device: Device, number: int) -> None:
        queues, pause, shown = self._database.devices, _SHORTEST_TURN_PAUSE, ""
        while True:
            tickets = queues.list_tickets(
                device.name
            )  # only who is the first has something to write
            if number not in [each.number for each in tickets]:
                raise DeviceLeaseLost(f"{device.name}: its lease expired while it was waited for")
            if tickets[0].number == number and queues.advance(number, self._seconds):
                return
            told = describe_queue(tickets)
            if told != shown and tickets[0].granted is not None:
                log.info("%s is %s", device.name, told)
                shown = told
            if self._over.wait(pause):
                raise NNPipeError(f"{device.name}: nobody waits for it any more")
            pause = min(2 * pause, _LONGEST_TURN_PAUSE)


def describe_process() -> str:
    """Return the user, the machine and the process, as others who wait for a device are told."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a user ID without a name
        user = str(os.getuid()) if hasattr(os, "getuid") else "somebody"
    return f"{user}@{platform.node()} (process {os.getpid()})"


def describe_queue(tickets: Sequence[DeviceTicket]) -> str:
    """Return who holds a device since when, and how many wait, as text."""
    if not tickets:
        return "free"
    first, waiting = tickets[0], len(tickets) - 1
    if first.granted is None:
        return f"free, with {len(tickets)} in the queue"
    since = datetime.datetime.fromtimestamp(first.granted, datetime.timezone.utc).strftime(
        "%Y-%m-%d %H:%M:%S"
    )
    queue = f", with {waiting} in the queue" if waiting else ""
    return f"held by {first.holder} since {since} UTC for {first.purpose}{queue}"


def list_device_users(fleet: Fleet) -> dict[str, str]:
    """Return who holds which device since when, and how many wait, by the device's name; without
    leases, nothing.

    Raises
    ------
    NNPipeError
        If the database of the leases cannot be opened.
    """
    if not fleet.leases:
        return {}
    with RunDatabase(fleet.leases) as database:
        tickets = database.devices.list_tickets()
    return {
        each.name: describe_queue([t for t in tickets if t.device == each.name])
        for each in fleet.devices
    }


T = TypeVar("T")

PATIENCE = 60.0
"""How long, in seconds, a device that has gone away is waited for, by default."""

MOST_LOSSES = 3
"""How often a device may be lost during one measurement."""

# seconds between two looks at a device that does not answer, or is busy
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0


class DeviceAway(NNPipeError):
    """A device does not answer, and was waited for long enough, or it lets nobody in."""


class WorkingDevices:
    """The devices of a sweep that are measuring, and so not waited for in vain."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._lock = threading.Lock()

    def begin(self, name: str) -> None:
        """Note that a device measures."""
        with self._lock:
            self._names.add(name)

    def end(self, name: str) -> None:
        """Note that a device has been done, or is being waited for."""
        with self._lock:
            self._names.discard(name)

    @contextmanager
    def one(self, name: str) -> Iterator[None]:
        """Note that a device measures while the block runs."""
        self.begin(name)
        try:
            yield
        finally:
            self.end(name)

    @property
    def any(self) -> bool:
        """Whether any of them measures."""
        return bool(self._names)


class DeviceMeasuring(Closing):
    """Carries out measurements on one device, in a subprocess that it keeps.

    A device that is busy with somebody else is waited for.  One that is lost is waited for, too,
    for ``patience`` seconds and as long as others measure anyway; then what was being measured is
    measured again.

    Parameters
    ----------
    name
        The name of the device.
    patience
        How long the device is waited for when it does not answer, in seconds.
    working
        The devices that measure, of which it is one.
    turn
        Returns the turn of one measurement on the device, which other people may be using.
    template
        Forks the subprocess; by default, it is a new one.
    """

    def __init__(
        self,
        name: str,
        patience: float,
        working: WorkingDevices,
        turn: Callable[[], AbstractContextManager[object]],
        template: WorkerTemplate | None = None,
    ) -> None:
        self._name, self._patience, self._working, self._turn = name, patience, working, turn
        self._worker = create_device_worker(template)
        self._stop = threading.Event()

    def close(self) -> None:
        """End the subprocess, and whatever another thread measures in it."""
        self._stop.set()
        self._worker.close()

    def measure(self, deployment: Deployment, work: Callable[[Worker], T]) -> T:
        """Return what a measurement returns that is given the subprocess.

        Raises
        ------
        DeviceAway
            If the device does not come back, or lets nobody in.
        NNPipeError
            If the measurement fails for another reason, or loses the device again and again.
        """
        losses, pause = 0, _SHORTEST_PAUSE
        while True:
            try:
                with self._turn():
                    return work(self._worker)
            except NNPipeError as error:
                if self._stop.is_set():
                    raise DeviceAway(f"{self._name}: the sweep was stopped") from None
                if isinstance(error, AuthenticationError):
                    raise DeviceAway(f"{self._name}: {get_error_message(error)}") from None
                if _is_busy(error):
                    log.info("%s is busy: %s", self._name, get_error_message(error))
                    # so that two who wait do not knock together
                    self._stop.wait(pause * random.uniform(0.5, 1.0))
                    pause = min(2 * pause, _LONGEST_PAUSE)
                    continue
                if isinstance(error, DeviceLeaseLost):  # somebody else may have used it meanwhile
                    log.warning("%s, so that is measured again", get_error_message(error))
                    continue
                if not _is_loss(error):
                    raise
                losses += 1
                if losses >= MOST_LOSSES:
                    text = (
                        f"{self._name} was lost in each of {losses} attempts, the last time: "
                        f"{get_error_message(error)}"
                    )
                    raise NNPipeError(text) from None
                log.warning("%s was lost: %s", self._name, get_error_message(error))
                self._wait_for(deployment, error)

    def _wait_for(self, deployment: Deployment, error: NNPipeError) -> None:
        """Wait until the device answers."""
        begin, pause = time.monotonic(), _SHORTEST_PAUSE
        reason = get_error_message(error)
        self._working.end(self._name)
        try:
            while True:
                state, told = fetch_state(deployment)
                if state != FAILED:
                    log.info("%s is back after %.1f s", self._name, time.monotonic() - begin)
                    return
                reason = told
                if self._stop.is_set() or (
                    time.monotonic() > begin + self._patience and not self._working.any
                ):
                    waited = time.monotonic() - begin
                    raise DeviceAway(
                        f"{self._name} went away and was waited for for {waited:.0f} s: {reason}"
                    )
                self._stop.wait(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
        finally:
            self._working.begin(self._name)


def _is_busy(error: NNPipeError) -> bool:
    from nnpipe.protocols.conversation.frame import ErrorCode

    return isinstance(error, TargetError) and error.code == ErrorCode.BUSY


def _is_loss(error: NNPipeError) -> bool:
    """Return whether an error is of the device or of the line to it, not of what is measured."""
    from nnpipe.protocols.conversation.frame import ErrorCode

    if isinstance(error, TargetError):
        return error.code == ErrorCode.STOPPING
    return isinstance(error, (TransportError, RemoteProtocolError))


class FleetMeasuring(Closing):
    """Measures on devices, one measurement at a time on each; used in a ``with`` block, by a thread
    for each device.

    Parameters
    ----------
    devices
        The devices other than this machine.
    leases
        The run database in which people take turns on devices; empty if nobody else uses them.
    purpose
        What the devices are used for, for others who wait.
    patience, template
        As for :class:`~nnpipe.workflows.devices.device_measuring.DeviceMeasuring`.

    Raises
    ------
    NNPipeError
        If the database cannot be opened.
    """

    def __init__(
        self,
        devices: Sequence[Device],
        leases: str,
        purpose: str,
        *,
        patience: float = PATIENCE,
        template: WorkerTemplate | None = None,
    ) -> None:
        self.working = WorkingDevices()
        self._turns = DeviceTurns(leases, purpose) if leases and devices else None
        self._measuring = {
            each.name: DeviceMeasuring(
                each.name,
                patience,
                self.working,
                functools.partial(self.lock_device, each),
                template,
            )
            for each in devices
        }

    def close(self) -> None:
        """End the processes of all devices, and release the devices."""
        for each in self._measuring.values():
            each.close()
        if self._turns is not None:
            self._turns.close()

    def on(self, device: Device) -> DeviceMeasuring:
        """Return what carries out measurements on one of the devices."""
        return self._measuring[device.name]

    def lock_device(self, device: Device) -> AbstractContextManager[object]:
        """Return the turn of one measurement on a device."""
        return nullcontext() if self._turns is None else self._turns.lock_device(device)
