"""A board that is reached over SSH, and asked by a small program that its Python gets with each
request.
"""

from __future__ import annotations

import inspect
import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nnpipe.core.bounded_json import parse_json
from nnpipe.core.errors import ConfigError
from nnpipe.jobs.agent import files, processes
from nnpipe.jobs.place import JobError
from nnpipe.jobs.ssh import CommandConnection
from nnpipe.workflows.boards.agent import main, service
from nnpipe.workflows.boards.packages import Platform

_SETTLED = 600.0  # seconds that a request may take beside the waiting that it asks for

# Reads itself from standard input, for some servers take short commands only.
_PROGRAM = """import json, sys, types
if sys.version_info < (3, 10):
    sys.exit("a target needs Python 3.10 or newer; this is " + sys.version.split()[0] + "; name another (--python)")
for name, text in json.loads(sys.stdin.buffer.read(int(sys.argv[1]))):
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(text, name, "exec"), module.__dict__)
    for parent, _, child in [name.rpartition(".")]:
        setattr(sys.modules.setdefault(parent, types.ModuleType(parent)), child, module)
module.main()
"""


@dataclass(frozen=True)
class BoardFacts:
    """What a board is, as far as it matters for packages and services.

    Attributes
    ----------
    platform
        For which packages are chosen.
    service
        How servers are started: ``systemd``, or ``process`` where the user has none.
    free
        Free bytes in the user's home.
    targets
        The names of the targets that are installed.
    """

    platform: Platform
    service: str
    free: int
    targets: tuple[str, ...]


@dataclass(frozen=True)
class SSHBoard:
    """A board, and how commands reach it.

    Parameters
    ----------
    connection
        Runs commands there.
    python
        The interpreter there.
    """

    connection: CommandConnection
    python: str = "python3"

    @classmethod
    def at(cls, address: str, python: str = "python3") -> SSHBoard:
        """Return the board with this address; raise :class:`ConfigError` if it is malformed."""
        return cls(CommandConnection.at(address), python)

    @property
    def address(self) -> str:
        """The address as it was given."""
        return self.connection.shown

    def fetch_facts(self) -> BoardFacts:
        """Ask the board what it is.

        Raises
        ------
        JobError
            If it cannot be reached, or has no Python of which there are packages.
        ConfigError
            If its system is not Linux.
        """
        told = self.ask("facts")
        if told["system"] != "Linux":
            raise ConfigError(
                f"{self.address}: targets are installed on Linux; this is {told['system']}"
            )
        library, version = told["libc"]
        glibc = tuple(map(int, version.split(".")[:2])) if library == "glibc" else None
        major, minor = told["python"][:2]
        platform = Platform(str(told["machine"]), (int(major), int(minor)), glibc)  # type: ignore[arg-type]
        return BoardFacts(
            platform, str(told["service"]), int(told["free"]), tuple(map(str, told["targets"]))
        )

    def ask(
        self,
        action: str,
        asked: Mapping[str, Any] | None = None,
        payload: bytes = b"",
        seconds: float = 0.0,
    ) -> dict[str, Any]:
        """Return the answer to a request.

        Parameters
        ----------
        action, asked
            One of the actions of :mod:`nnpipe.workflows.boards.agent.main`, and what it is to know.
        payload
            Bytes that follow, such as packages.
        seconds
            How long the board itself may wait for something.

        Raises
        ------
        JobError
            If the board cannot be reached, or refuses the request; the message gives the reason.
        """
        modules = (files, processes, service, main)
        program = json.dumps(
            [(module.__name__, inspect.getsource(module)) for module in modules]
        ).encode()
        request = json.dumps({"action": action, "seconds": seconds, **(asked or {})}).encode()
        given = b"".join((program, b"%d\n" % len(request), request, payload))
        command = shlex.join([self.python, "-E", "-s", "-c", _PROGRAM, str(len(program))])
        found = self.connection.run(command, given, _SETTLED + seconds + len(payload) / 1e5)
        try:
            told = parse_json(found)
        except ValueError:
            raise JobError(
                f"{self.address}: what should have been answered was not; is {self.python} Python?"
            ) from None
        if "refused" in told:
            raise JobError(f"{self.address}: {told['refused']}")
        return dict(told)
