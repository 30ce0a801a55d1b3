"""Comparing candidates on several devices: each candidate on each device, in turns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace

from nnpipe.core.closing import Closing
from nnpipe.core.errors import ConfigError
from nnpipe.measuring.run import Run
from nnpipe.workflows.candidates.measure import Verification
from nnpipe.workflows.candidates.spec import CandidateSpec
from nnpipe.workflows.devices.device import Device
from nnpipe.workflows.devices.device_file import Fleet
from nnpipe.workflows.devices.fleet_measuring import FleetMeasuring
from nnpipe.workflows.isolation.subprocess_worker import Worker

Entry = tuple[CandidateSpec, "Verification | None"]


@dataclass(frozen=True)
class OnTargets:
    """The candidates of a comparison on devices.

    Parameters
    ----------
    candidates
        Each candidate on each device, with its source's outputs.
    devices
        The device of each, by its title; those of this machine are missing.
    impossible
        The reasons why others cannot be, by title.
    """

    candidates: tuple[Entry, ...]
    devices: dict[str, Device] = field(default_factory=dict)
    impossible: dict[str, str] = field(default_factory=dict)


def on_targets(candidates: Sequence[Entry], fleet: Fleet | None, *, files: bool = False) -> OnTargets:
    """Return every candidate on every device of a fleet; without one, the candidates as they are.

    Parameters
    ----------
    candidates
        The candidates on this machine.
    fleet
        The devices.
    files
        Whether the model files themselves are sent to devices, instead of what was compiled from them.  Otherwise,
        models that run in their own framework stay on this machine.

    Raises
    ------
    ConfigError
        If a candidate has a target of its own.
    """
    if fleet is None:
        return OnTargets(tuple(candidates))
    found = OnTargets(tuple(each for each in candidates if each[0].runtime is None and not files))
    entries = list(found.candidates)
    for device in fleet.devices:
        for spec, verification in candidates:
            if spec.deployment is not None:
                raise ConfigError(f"{spec.title}: has a protocol of its own; leave that out, or the targets")
            if spec.runtime is None and not files:
                continue
            title = f"{device.name}: {spec.title}"
            refusal = "" if spec.runtime is None else device.refusal(type(spec.runtime))
            if refusal:
                found.impossible[title] = refusal
                continue
            deployment = next(iter(device.deployments().values()), None)
            if spec.runtime is not None:
                deployment = device.deployment(type(spec.runtime))
            entries.append((replace(spec, title=title, deployment=deployment), verification))
            if deployment is not None:
                found.devices[title] = device
    return replace(found, candidates=tuple(entries))


class TargetTurns(Closing):
    """How a comparison uses devices; used in a ``with`` block.

    Parameters
    ----------
    devices
        The device of each candidate, by its title; those of this machine are missing.
    leases
        The run database in which people take turns on devices; empty if nobody else uses them.
    title
        What the devices are used for.
    """

    def __init__(self, devices: dict[str, Device], leases: str, title: str) -> None:
        self._devices = devices
        self._fleet = FleetMeasuring(list({each.name: each for each in devices.values()}.values()), leases, title)

    def close(self) -> None:
        """End the processes of devices, and release the devices."""
        self._fleet.close()

    def alone(self, spec: CandidateSpec, measure: Callable[[Worker | None], Run]) -> Run:
        """Return what a candidate's measurement returns; on a device, it is repeated if that goes away meanwhile.

        Raises
        ------
        NNPipeError
            If it cannot be measured.
        """
        device = self._devices.get(spec.title)
        if device is None or spec.deployment is None:
            return measure(None)
        return self._fleet.on(device).measure(spec.deployment, measure)

    @contextmanager
    def together(self, specs: Sequence[CandidateSpec]) -> Iterator[None]:
        """Hold the devices of candidates in a block."""
        with ExitStack() as stack:
            names = {each.name: each for spec in specs if (each := self._devices.get(spec.title)) is not None}
            for name in sorted(names):  # in one order, so that two comparisons never wait for each other
                stack.enter_context(self._fleet.turn(names[name]))
            yield
