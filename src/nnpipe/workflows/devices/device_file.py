"""The file of devices, and the choice of some of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nnpipe.core.argument_checks import check_call
from nnpipe.core.deployment import RemoteOptions
from nnpipe.core.errors import ConfigError, NNPipeError
from nnpipe.core.naming import nearest
from nnpipe.core.runtime import Runtime
from nnpipe.core.runtime_protocol import RuntimeProtocol
from nnpipe.experiment.settings import check_keys
from nnpipe.report.prices import BASES
from nnpipe.workflows.devices.device import ALL, Device
from nnpipe.workflows.pipeline.entries import class_of, component_of, made_from, made_of, part_of, text_of
from nnpipe.workflows.sweep.grid import list_of

USUAL = Path("devices.yaml")
"""Where the file of devices is looked for."""

KEYS = ("currency", "leases", "devices")
DEVICE_KEYS = ("name", "protocol", "remote", "description", *BASES, "tags", "runtimes")


@dataclass(frozen=True)
class Fleet:
    """The devices of a file.

    Parameters
    ----------
    devices
        The devices, in the order of the file.
    currency
        The currency of all costs.
    leases
        The run database in which people who share devices take turns; empty if nobody else uses them.

    Examples
    --------
    >>> fleet = Fleet((Device("laptop", tags=("x86",)),), currency="EUR")
    >>> [device.name for device in fleet.chosen(["x86"])]
    ['laptop']
    """

    devices: tuple[Device, ...]
    currency: str = ""
    leases: str = ""

    def only(self, words: Sequence[str], where: str = "targets") -> Fleet:
        """Return it with the devices of :meth:`chosen` alone."""
        return dataclasses.replace(self, devices=self.chosen(words, where))

    def chosen(self, words: Sequence[str], where: str = "targets") -> tuple[Device, ...]:
        """Return the devices with these names or tags, each once and in the order of the file.

        Parameters
        ----------
        words
            Names and tags; ``all`` stands for all devices.
        where
            The setting that an error names.

        Raises
        ------
        ConfigError
            If a word is neither a name nor a tag.
        """
        known = {ALL, *(each.name for each in self.devices), *(tag for each in self.devices for tag in each.tags)}
        for word in words:
            if word not in known:
                hint = nearest(word, known) or f"; there are: {', '.join(sorted(known - {ALL}))}"
                raise ConfigError(f"{where}: no device has the name or the tag {word!r}{hint}")
        wanted = set(words)
        return tuple(each for each in self.devices if wanted & {ALL, each.name, *each.tags})


def read_devices(settings: str | Path | Mapping[str, Any]) -> Fleet:
    """Return the devices of a file, or of its content.

    Parameters
    ----------
    settings
        The path of a YAML or JSON file, or its content.

    Returns
    -------
    Fleet
        Its ``devices``, the ``currency`` of their costs, and the place of ``leases``.

    Raises
    ------
    NNPipeError
        If a setting is wrong; the message names the place, and the file if there is one.

    Examples
    --------
    >>> fleet = read_devices({
    ...     "devices": [
    ...         {"name": "laptop"},
    ...         {"name": "pi-5", "protocol": "NetworkProtocol", "cost_per_piece": 80, "tags": ["arm"]},
    ...     ]
    ... })
    >>> [device.name for device in fleet.chosen(["arm"])], fleet.devices[0].here
    (['pi-5'], True)
    """
    check_call(read_devices, locals())
    return made_from(settings, (), fleet_of)


def fleet_of(settings: Mapping[str, Any]) -> Fleet:
    """Return the devices of the content of a file.

    Raises
    ------
    NNPipeError
        If a setting is wrong; the message names its place.
    """
    data = check_keys(dict(settings), KEYS, "devices", ("devices",))
    devices = tuple(_device(entry, f"devices.{place}") for place, entry in enumerate(list_of(data, "devices")))
    for place, device in enumerate(devices):
        first = next(n for n, other in enumerate(devices) if other.name == device.name)
        if first != place:
            raise ConfigError(f"devices.{place}: {device.name!r} is the name of devices.{first}, too")
        if device.here and any(other.here for other in devices[:place]):
            raise ConfigError(
                f"devices.{place}: {device.name!r} has no protocol, and one device is this machine already"
            )
    texts = {key: text_of(data[key], key) for key in ("currency", "leases") if data.get(key) is not None}
    return Fleet(devices, **texts)


def _device(entry: Any, where: str) -> Device:
    data = check_keys(entry, DEVICE_KEYS, where, ("name",))
    name = text_of(data["name"], f"{where}.name")
    protocol = None
    if data.get("protocol") is not None:
        protocol = component_of(data["protocol"], RuntimeProtocol, f"{where}.protocol")
        protocol.check_installed()
    elif data.get("remote") is not None:
        raise ConfigError(f"{where}.remote: is for targets; name the way to this one: protocol")
    description = text_of(data["description"], f"{where}.description") if data.get("description") else ""
    tags = tuple(text_of(tag, f"{where}.tags.{place}") for place, tag in enumerate(_tags(data, where)))
    costs = {basis: _cost(data[basis], f"{where}.{basis}") for basis in BASES if data.get(basis) is not None}
    remote = made_of(RemoteOptions, part_of(data, "remote"), f"{where}.remote")
    runtimes = _runtimes(data, protocol, f"{where}.runtimes")
    try:
        return Device(name, protocol, remote, description, tags=tags, runtimes=runtimes, **costs)
    except ConfigError as error:
        raise ConfigError(str(error) if str(error).startswith(where) else f"{where}.{error}") from None


def _tags(data: Mapping[str, Any], where: str) -> list[Any]:
    given = data.get("tags")
    if given is not None and not isinstance(given, list):
        raise ConfigError(f"{where}.tags: expected a list, found {given!r}")
    return given or []


def _cost(given: Any, where: str) -> float:
    if isinstance(given, bool) or not isinstance(given, (int, float)):
        raise ConfigError(f"{where}: expected a number from 0 upwards, found {given!r}")
    return float(given)


def _runtimes(data: Mapping[str, Any], protocol: RuntimeProtocol | None, where: str) -> dict[str, Any]:
    """Return the ways to the servers of a device, by runtime."""
    given = data.get("runtimes")
    if given is None:
        return {}
    if not isinstance(given, (list, dict)) or not given:
        raise ConfigError(f"{where}: expected a list of runtimes, or an object with arguments of the protocol for each")
    found: dict[str, Any] = {}
    for name in given:
        place = f"{where}.{name}" if isinstance(given, dict) else where
        path = class_of({"class": name}, Runtime, place).dotted_path()
        found[path] = protocol
        if isinstance(given, dict) and given[name]:
            if protocol is None:
                raise ConfigError(f"{place}: {given[name]} are arguments of a protocol, and this machine has none")
            check_keys(given[name], [each.name for each in dataclasses.fields(protocol)], place)
            try:
                found[path] = type(protocol).from_json(protocol.to_json() | given[name])
            except NNPipeError as error:
                raise type(error)(f"{place}: {error}") from None
    return found
