"""What a server on a board is started with, checked before the board is asked for anything."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import nnpipe
from nnpipe.core.arguments import arguments_of, show
from nnpipe.core.component import Component
from nnpipe.core.deployment import ServerOptions
from nnpipe.core.errors import ConfigError
from nnpipe.core.runtime import Runtime
from nnpipe.protocols.network import NetworkProtocol

_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,63}", re.ASCII)


@dataclass(frozen=True)
class TargetSettings:
    """A server of one runtime on a board.

    Parameters
    ----------
    runtime
        The runtime, with its arguments.
    name
        The name of the server on the board; that of the runtime's class by default.
    protocol
        Where it listens; at the board's own loopback address by default, which is reached through SSH.
    server
        Its limits and permissions, without token and folder of models.

    Raises
    ------
    ConfigError
        If the name is none for a folder, or the port is left to the board.
    """

    runtime: Runtime
    name: str = ""
    protocol: NetworkProtocol = field(default_factory=NetworkProtocol)
    server: ServerOptions = field(default_factory=ServerOptions)

    def __post_init__(self) -> None:
        if not self.name:
            object.__setattr__(self, "name", type(self.runtime).__name__)
        if _NAME.fullmatch(self.name) is None:
            raise ConfigError(f"name {self.name[:80]!r}: letters, digits, and -_. after the first one, 64 at most")
        if not self.protocol.port:
            raise ConfigError("a target on a board needs a port that stays the same: name one from 1 on (--port)")
        for option in ("token_file", "save_model_path"):
            if getattr(self.server, option) is not None:
                flag = "--" + option.replace("_", "-")
                raise ConfigError(f"{flag}: a target has its own on the board, in the folder of its name")
        if self.server.insecure:
            raise ConfigError("--insecure: targets that are installed over SSH have a token")

    def arguments(self) -> list[str]:
        """Return the words that follow ``nnpipe inference_server`` on the board."""
        classes = [type(self.protocol).__name__, type(self.runtime).dotted_path()]
        own = [*options_of(self.protocol, always=("port",)), "--token-file", "token", "--save-model-path", "models"]
        return [*classes, *own, *options_of(self.server), *options_of(self.runtime)]

    def to_json(self) -> dict[str, Any]:
        """Return what the board keeps of it."""
        return {
            "name": self.name, "arguments": self.arguments(), "runtime": type(self.runtime).__name__,
            "address": f"{self.protocol.host}:{self.protocol.port}", "nnpipe": nnpipe.__version__,
            "since": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
        }  # fmt: skip


def options_of(component: Component, always: Sequence[str] = ()) -> list[str]:
    """Return the options that make a component on a command line; those with their default are left out."""
    found: list[str] = []
    for argument in arguments_of(type(component)):
        value = getattr(component, argument.name)
        if value == argument.default and argument.name not in always:
            continue
        if isinstance(value, bool):
            found.append(argument.flag if value else argument.flag.replace("--", "--no-", 1))
        elif isinstance(value, (tuple, list)):
            found += [argument.flag, *map(show, value)]
        else:
            found += [argument.flag, show(value)]
    return found
