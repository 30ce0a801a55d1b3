"""Measuring on one device: one measurement at a time, and again if the device goes away meanwhile."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TypeVar

from nnpipe.core.closing import Closing
from nnpipe.core.errors import (
    AuthenticationError,
    NNPipeError,
    RemoteProtocolError,
    TargetError,
    TransportError,
)
from nnpipe.workflows.candidates.deployment import Deployment
from nnpipe.workflows.candidates.measure import device_worker
from nnpipe.workflows.devices.device_turns import DeviceLeaseLost
from nnpipe.workflows.devices.inspection import FAILED, state_of
from nnpipe.workflows.isolation.subprocess_worker import Worker
from nnpipe.workflows.isolation.worker_template import WorkerTemplate
from nnpipe.workflows.journal import said

log = logging.getLogger("nnpipe")

T = TypeVar("T")

PATIENCE = 60.0
"""How long, in seconds, a device that has gone away is waited for, by default."""

MOST_LOSSES = 3
"""How often a device may be lost during one measurement."""

_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0  # seconds between two looks at a device that does not answer, or is busy


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

    A device that is busy with somebody else is waited for.  One that is lost is waited for, too, for ``patience``
    seconds and as long as others measure anyway; then what was being measured is measured again.

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
        self, name: str, patience: float, working: WorkingDevices, turn: Callable[[], AbstractContextManager[object]],
        template: WorkerTemplate | None = None,
    ) -> None:  # fmt: skip
        self._name, self._patience, self._working, self._turn = name, patience, working, turn
        self._worker = device_worker(template)
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
                    raise DeviceAway(f"{self._name}: {said(error)}") from None
                if _is_busy(error):
                    log.info("%s is busy: %s", self._name, said(error))
                    self._stop.wait(pause * random.uniform(0.5, 1.0))  # so that two who wait do not knock together
                    pause = min(2 * pause, _LONGEST_PAUSE)
                    continue
                if isinstance(error, DeviceLeaseLost):  # somebody else may have used it meanwhile
                    log.warning("%s, so that is measured again", said(error))
                    continue
                if not _is_loss(error):
                    raise
                losses += 1
                if losses >= MOST_LOSSES:
                    text = f"{self._name} was lost in each of {losses} attempts, the last time: {said(error)}"
                    raise NNPipeError(text) from None
                log.warning("%s was lost: %s", self._name, said(error))
                self._wait_for(deployment, error)

    def _wait_for(self, deployment: Deployment, error: NNPipeError) -> None:
        """Wait until the device answers."""
        begin, pause = time.monotonic(), _SHORTEST_PAUSE
        reason = said(error)
        self._working.end(self._name)
        try:
            while True:
                state, told = state_of(deployment)
                if state != FAILED:
                    log.info("%s is back after %.1f s", self._name, time.monotonic() - begin)
                    return
                reason = told
                if self._stop.is_set() or (time.monotonic() > begin + self._patience and not self._working.any):
                    waited = time.monotonic() - begin
                    raise DeviceAway(f"{self._name} went away and was waited for for {waited:.0f} s: {reason}")
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
