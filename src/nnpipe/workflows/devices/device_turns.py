"""Turns on devices that several people share, by leases in a run database that all of them use."""

from __future__ import annotations

import contextlib
import datetime
import getpass
import logging
import os
import platform
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from nnpipe.core.closing import Closing
from nnpipe.core.errors import NNPipeError
from nnpipe.experiment.database.database import RunDatabase
from nnpipe.experiment.database.device_queues import DeviceTicket
from nnpipe.workflows.devices.device import Device
from nnpipe.workflows.devices.device_file import Fleet
from nnpipe.workflows.workers.lease_renewal import LeaseRenewal

log = logging.getLogger("nnpipe")

LEASE_SECONDS = 60.0
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0  # seconds between two looks at a queue


class DeviceLeaseLost(NNPipeError):
    """The lease of a device expired during a measurement, which does not count then."""


class DeviceTurns(Closing):
    """The turns of one process on shared devices; used in a ``with`` block.

    A turn is for one measurement, and who comes first gets the next one, so two sweeps on one device take turns.  A
    process that is killed loses its turn and its place when its leases expire.

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
        """Release all devices, and close the database; those who wait in other threads stop waiting."""
        self._over.set()
        self._renewal.close()
        for number in list(self._held):
            with contextlib.suppress(NNPipeError):
                self._database.devices.give_back(number)
        self._database.close()

    @contextmanager
    def turn(self, device: Device) -> Iterator[None]:
        """Wait for a device, and hold it in the block.

        Raises
        ------
        DeviceLeaseLost
            At the end of the block, if the lease expired in it.
        NNPipeError
            If the database cannot be used, or the turns are closed by another thread.
        """
        queues = self._database.devices
        number = queues.ask(device.name, who(), self._purpose, self._seconds)
        self._held.add(number)
        try:
            with self._renewal.of(device.name, lambda: queues.advance(number, self._seconds)):
                self._wait(device, number)
                yield
        except BaseException:
            self._give_back(number)
            raise
        if not self._give_back(number):
            raise DeviceLeaseLost(f"{device.name}: its lease expired while it was used")

    def _give_back(self, number: int) -> bool:
        self._held.discard(number)
        return self._database.devices.give_back(number)

    def _wait(self, device: Device, number: int) -> None:
        queues, pause, shown = self._database.devices, _SHORTEST_PAUSE, ""
        while True:
            tickets = queues.tickets(device.name)  # only who is the first has something to write
            if number not in [each.number for each in tickets]:
                raise DeviceLeaseLost(f"{device.name}: its lease expired while it was waited for")
            if tickets[0].number == number and queues.advance(number, self._seconds):
                return
            told = in_use(tickets)
            if told != shown and tickets[0].granted is not None:
                log.info("%s is %s", device.name, told)
                shown = told
            if self._over.wait(pause):
                raise NNPipeError(f"{device.name}: nobody waits for it any more")
            pause = min(2 * pause, _LONGEST_PAUSE)


def who() -> str:
    """Return the user, the machine and the process, as others who wait for a device are told."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a user ID without a name
        user = str(os.getuid()) if hasattr(os, "getuid") else "somebody"
    return f"{user}@{platform.node()} (process {os.getpid()})"


def in_use(tickets: Sequence[DeviceTicket]) -> str:
    """Return who holds a device since when, and how many wait, as text."""
    if not tickets:
        return "free"
    first, waiting = tickets[0], len(tickets) - 1
    if first.granted is None:
        return f"free, with {len(tickets)} in the queue"
    since = datetime.datetime.fromtimestamp(first.granted, datetime.timezone.utc).strftime("%Y-%m-%d %H:%M:%S")
    queue = f", with {waiting} in the queue" if waiting else ""
    return f"held by {first.holder} since {since} UTC for {first.purpose}{queue}"


def users_of(fleet: Fleet) -> dict[str, str]:
    """Return who holds which device since when, and how many wait, by the device's name; without leases, nothing.

    Raises
    ------
    NNPipeError
        If the database of the leases cannot be opened.
    """
    if not fleet.leases:
        return {}
    with RunDatabase(fleet.leases) as database:
        tickets = database.devices.tickets()
    return {each.name: in_use([t for t in tickets if t.device == each.name]) for each in fleet.devices}
