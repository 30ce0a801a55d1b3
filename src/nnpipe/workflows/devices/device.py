"""A device: a machine on which candidates are measured, with what it is and what it costs."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError, NNPipeError
from nnpipe.core.messages import suggest_name
from nnpipe.core.runtime import Runtime
from nnpipe.core.runtime_protocol import RemoteOptions, RuntimeProtocol
from nnpipe.experiment.settings import check_keys
from nnpipe.report.formatting import BASES, format_prices
from nnpipe.workflows.candidates.deployment import Deployment
from nnpipe.workflows.pipeline.entries import (
    build_component,
    build_from_settings,
    get_section,
    parse_class,
    parse_component,
    parse_text,
)
from nnpipe.workflows.sweep.grid import describe_component, list_of

ALL = "all"
"""The word that stands for all devices of a file."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,59}")


@dataclass(frozen=True)
class Device:
    """A machine on which candidates are measured: this one, or a target with a server.

    Parameters
    ----------
    name
        Its name, by which results are kept: a new machine deserves a new name.
    protocol
        The way to its server; ``None`` for this machine.
    remote
        How this machine uses it.
    description
        What it is.
    cost_per_hour, cost_per_piece
        What it costs, in a currency that all devices share; ``None`` if that is not known.
    tags
        Words that stand for several devices.
    runtimes
        The runtimes that it serves, by the dotted path of the class, each with its way to the
        server; empty if it is not known which ones it serves, so that all are tried.

    Examples
    --------
    >>> from nnpipe.protocols import NetworkProtocol
    >>> board = Device("pi-5", NetworkProtocol(host="pi-5.lan"), cost_per_piece=80, tags=("arm",))
    >>> board.here, board.address, board.format_price("EUR")
    (False, 'NetworkProtocol(host=pi-5.lan)', '80 EUR a piece')
    """

    name: str
    protocol: RuntimeProtocol | None = None
    remote: RemoteOptions = field(default_factory=RemoteOptions)
    description: str = ""
    cost_per_hour: float | None = None
    cost_per_piece: float | None = None
    tags: tuple[str, ...] = ()
    runtimes: Mapping[str, RuntimeProtocol | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_call(Device, vars(self))
        if not _NAME.fullmatch(self.name):
            raise ConfigError(
                f"name: {self.name!r} should be up to 60 letters, digits, dots, dashes and "
                f"underscores, a letter or a "
                "digit first"
            )
        if ALL in (self.name, *self.tags):
            raise ConfigError(
                f"name: {ALL!r} stands for all devices; give this one another name or tag"
            )
        for basis in BASES:
            cost = getattr(self, basis)
            if cost is not None and not 0 <= cost < math.inf:
                raise ConfigError(f"{basis}: expected a number from 0 upwards, found {cost!r}")

    @property
    def here(self) -> bool:
        """Whether it is this machine."""
        return self.protocol is None

    @property
    def address(self) -> str:
        """The way to it, as text."""
        return "this machine" if self.protocol is None else describe_component(self.protocol)

    def format_price(self, currency: str = "") -> str:
        """Return what it costs, as text; empty if that is not known."""
        return format_prices(self.cost_per_hour, self.cost_per_piece, currency)

    def explain_refusal(self, runtime: type[Runtime]) -> str:
        """Return why it runs nothing of a runtime; empty if it may."""
        if not self.runtimes or runtime.get_dotted_path() in self.runtimes:
            return ""
        served = ", ".join(path.rpartition(".")[2] for path in self.runtimes)
        return f"{self.name} serves {served}, not {runtime.__name__}"

    def get_deployment(self, runtime: type[Runtime]) -> Deployment | None:
        """Return how a runtime's candidates get there; ``None`` for this machine."""
        protocol = self.runtimes.get(runtime.get_dotted_path(), self.protocol)
        return None if protocol is None else Deployment(protocol, self.remote)

    def list_deployments(self) -> dict[str, Deployment]:
        """Return how to get to each of its servers, by the runtimes served there; by an empty
        text if there is one.
        """
        if self.protocol is None:
            return {}
        served: dict[RuntimeProtocol, list[str]] = {}
        for path, protocol in self.runtimes.items():
            served.setdefault(protocol or self.protocol, []).append(path.rpartition(".")[2])
        if len(served) < 2:
            return {"": Deployment(next(iter(served), self.protocol), self.remote)}
        return {
            ", ".join(names): Deployment(protocol, self.remote)
            for protocol, names in served.items()
        }

    def to_json(self) -> dict[str, Any]:
        """Return what results tell about it: no addresses, and no places of tokens."""
        told = {"name": self.name, "here": self.here, "description": self.description}
        costs = {basis: getattr(self, basis) for basis in BASES if getattr(self, basis) is not None}
        return {**told, **costs, "tags": list(self.tags)}


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
        The run database in which people who share devices take turns; empty if nobody else uses
        them.

    Examples
    --------
    >>> fleet = Fleet((Device("laptop", tags=("x86",)),), currency="EUR")
    >>> [device.name for device in fleet.find_devices(["x86"])]
    ['laptop']
    """

    devices: tuple[Device, ...]
    currency: str = ""
    leases: str = ""

    def only(self, words: Sequence[str], where: str = "targets") -> Fleet:
        """Return it with the devices of :meth:`find_devices` alone."""
        return dataclasses.replace(self, devices=self.find_devices(words, where))

    def find_devices(self, words: Sequence[str], where: str = "targets") -> tuple[Device, ...]:
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
        known = {
            ALL,
            *(each.name for each in self.devices),
            *(tag for each in self.devices for tag in each.tags),
        }
        for word in words:
            if word not in known:
                hint = (
                    suggest_name(word, known) or f"; there are: {', '.join(sorted(known - {ALL}))}"
                )
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
    >>> [device.name for device in fleet.find_devices(["arm"])], fleet.devices[0].here
    (['pi-5'], True)
    """
    check_call(read_devices, locals())
    return build_from_settings(settings, (), parse_fleet)


def parse_fleet(settings: Mapping[str, Any]) -> Fleet:
    """Return the devices of the content of a file.

    Raises
    ------
    NNPipeError
        If a setting is wrong; the message names its place.
    """
    data = check_keys(dict(settings), KEYS, "devices", ("devices",))
    devices = tuple(
        _parse_device(entry, f"devices.{place}")
        for place, entry in enumerate(list_of(data, "devices"))
    )
    for place, device in enumerate(devices):
        first = next(n for n, other in enumerate(devices) if other.name == device.name)
        if first != place:
            raise ConfigError(
                f"devices.{place}: {device.name!r} is the name of devices.{first}, too"
            )
        if device.here and any(other.here for other in devices[:place]):
            raise ConfigError(
                f"devices.{place}: {device.name!r} has no protocol, and one device is this machine "
                f"already"
            )
    texts = {
        key: parse_text(data[key], key)
        for key in ("currency", "leases")
        if data.get(key) is not None
    }
    return Fleet(devices, **texts)


def _parse_device(entry: Any, where: str) -> Device:
    data = check_keys(entry, DEVICE_KEYS, where, ("name",))
    name = parse_text(data["name"], f"{where}.name")
    protocol = None
    if data.get("protocol") is not None:
        protocol = parse_component(data["protocol"], RuntimeProtocol, f"{where}.protocol")
        protocol.check_installed()
    elif data.get("remote") is not None:
        raise ConfigError(f"{where}.remote: is for targets; name the way to this one: protocol")
    description = (
        parse_text(data["description"], f"{where}.description") if data.get("description") else ""
    )
    tags = tuple(
        parse_text(tag, f"{where}.tags.{place}")
        for place, tag in enumerate(_parse_tags(data, where))
    )
    costs = {
        basis: _parse_cost(data[basis], f"{where}.{basis}")
        for basis in BASES
        if data.get(basis) is not None
    }
    remote = build_component(RemoteOptions, get_section(data, "remote"), f"{where}.remote")
    runtimes = _parse_runtimes(data, protocol, f"{where}.runtimes")
    try:
        return Device(name, protocol, remote, description, tags=tags, runtimes=runtimes, **costs)
    except ConfigError as error:
        raise ConfigError(
            str(error) if str(error).startswith(where) else f"{where}.{error}"
        ) from None


def _parse_tags(data: Mapping[str, Any], where: str) -> list[Any]:
    given = data.get("tags")
    if given is not None and not isinstance(given, list):
        raise ConfigError(f"{where}.tags: expected a list, found {given!r}")
    return given or []


def _parse_cost(given: Any, where: str) -> float:
    if isinstance(given, bool) or not isinstance(given, (int, float)):
        raise ConfigError(f"{where}: expected a number from 0 upwards, found {given!r}")
    return float(given)


def _parse_runtimes(
    data: Mapping[str, Any], protocol: RuntimeProtocol | None, where: str
) -> dict[str, Any]:
    """Return the ways to the servers of a device, by runtime."""
    given = data.get("runtimes")
    if given is None:
        return {}
    if not isinstance(given, (list, dict)) or not given:
        raise ConfigError(
            f"{where}: expected a list of runtimes, or an object with arguments of the protocol "
            f"for each"
        )
    found: dict[str, Any] = {}
    for name in given:
        place = f"{where}.{name}" if isinstance(given, dict) else where
        path = parse_class({"class": name}, Runtime, place).get_dotted_path()
        found[path] = protocol
        if isinstance(given, dict) and given[name]:
            if protocol is None:
                raise ConfigError(
                    f"{place}: {given[name]} are arguments of a protocol, and this machine has none"
                )
            check_keys(given[name], [each.name for each in dataclasses.fields(protocol)], place)
            try:
                found[path] = type(protocol).from_json(protocol.to_json() | given[name])
            except NNPipeError as error:
                raise type(error)(f"{place}: {error}") from None
    return found
