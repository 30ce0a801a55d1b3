"""Measuring on several devices, which other people may be using, too."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

from nnpipe.core.closing import Closing
from nnpipe.workflows.devices.device import Device
from nnpipe.workflows.devices.device_measuring import PATIENCE, DeviceMeasuring, WorkingDevices
from nnpipe.workflows.devices.device_turns import DeviceTurns
from nnpipe.workflows.isolation.worker_template import WorkerTemplate


class FleetMeasuring(Closing):
    """Measures on devices, one measurement at a time on each; used in a ``with`` block, by a thread for each device.

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
        self, devices: Sequence[Device], leases: str, purpose: str, *, patience: float = PATIENCE,
        template: WorkerTemplate | None = None,
    ) -> None:  # fmt: skip
        self.working = WorkingDevices()
        self._turns = DeviceTurns(leases, purpose) if leases and devices else None
        self._measuring = {
            each.name: DeviceMeasuring(
                each.name, patience, self.working, functools.partial(self.turn, each), template
            )
            for each in devices
        }  # fmt: skip

    def close(self) -> None:
        """End the processes of all devices, and release the devices."""
        for each in self._measuring.values():
            each.close()
        if self._turns is not None:
            self._turns.close()

    def on(self, device: Device) -> DeviceMeasuring:
        """Return what carries out measurements on one of the devices."""
        return self._measuring[device.name]

    def turn(self, device: Device) -> AbstractContextManager[object]:
        """Return the turn of one measurement on a device."""
        return nullcontext() if self._turns is None else self._turns.turn(device)
