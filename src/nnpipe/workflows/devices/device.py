"""A device: a machine on which candidates are measured, with what it is and what it costs."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nnpipe.core.argument_checks import check_call
from nnpipe.core.deployment import RemoteOptions
from nnpipe.core.errors import ConfigError
from nnpipe.core.runtime import Runtime
from nnpipe.core.runtime_protocol import RuntimeProtocol
from nnpipe.report.prices import BASES, prices
from nnpipe.workflows.candidates.deployment import Deployment
from nnpipe.workflows.sweep.grid import named

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
        The runtimes that it serves, by the dotted path of the class, each with its way to the server; empty if it is
        not known which ones it serves, so that all are tried.

    Examples
    --------
    >>> from nnpipe.protocols import NetworkProtocol
    >>> board = Device("pi-5", NetworkProtocol(host="pi-5.lan"), cost_per_piece=80, tags=("arm",))
    >>> board.here, board.address, board.price("EUR")
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
                f"name: {self.name!r} should be up to 60 letters, digits, dots, dashes and underscores, a letter or a "
                "digit first"
            )
        if ALL in (self.name, *self.tags):
            raise ConfigError(f"name: {ALL!r} stands for all devices; give this one another name or tag")
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
        return "this machine" if self.protocol is None else named(self.protocol)

    def price(self, currency: str = "") -> str:
        """Return what it costs, as text; empty if that is not known."""
        return prices(self.cost_per_hour, self.cost_per_piece, currency)

    def refusal(self, runtime: type[Runtime]) -> str:
        """Return why it runs nothing of a runtime; empty if it may."""
        if not self.runtimes or runtime.dotted_path() in self.runtimes:
            return ""
        served = ", ".join(path.rpartition(".")[2] for path in self.runtimes)
        return f"{self.name} serves {served}, not {runtime.__name__}"

    def deployment(self, runtime: type[Runtime]) -> Deployment | None:
        """Return how a runtime's candidates get there; ``None`` for this machine."""
        protocol = self.runtimes.get(runtime.dotted_path(), self.protocol)
        return None if protocol is None else Deployment(protocol, self.remote)

    def deployments(self) -> dict[str, Deployment]:
        """Return how to get to each of its servers, by the runtimes served there; by an empty text if there is one."""
        if self.protocol is None:
            return {}
        served: dict[RuntimeProtocol, list[str]] = {}
        for path, protocol in self.runtimes.items():
            served.setdefault(protocol or self.protocol, []).append(path.rpartition(".")[2])
        if len(served) < 2:
            return {"": Deployment(next(iter(served), self.protocol), self.remote)}
        return {", ".join(names): Deployment(protocol, self.remote) for protocol, names in served.items()}

    def to_json(self) -> dict[str, Any]:
        """Return what results tell about it: no addresses, and no places of tokens."""
        told = {"name": self.name, "here": self.here, "description": self.description}
        costs = {basis: getattr(self, basis) for basis in BASES if getattr(self, basis) is not None}
        return {**told, **costs, "tags": list(self.tags)}
