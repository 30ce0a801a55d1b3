"""Installing servers on boards over SSH, and looking after them, in one call each."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nnpipe
from nnpipe.core.argument_checks import check_call
from nnpipe.core.arguments import list_arguments, show
from nnpipe.core.component import Component
from nnpipe.core.errors import ConfigError
from nnpipe.core.runtime import Runtime
from nnpipe.core.runtime_protocol import ServerOptions, read_token
from nnpipe.protocols.network import NetworkProtocol
from nnpipe.workflows.boards.board import BoardFacts, SSHBoard
from nnpipe.workflows.boards.packages import download_packages, list_requirements, pack_folder

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
        Where it listens; at the board's own loopback address by default, which is reached through
        SSH.
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
            raise ConfigError(
                f"name {self.name[:80]!r}: letters, digits, and -_. after the first one, 64 at most"
            )
        if not self.protocol.port:
            raise ConfigError(
                "a target on a board needs a port that stays the same: name one from 1 on (--port)"
            )
        for option in ("token_file", "save_model_path"):
            if getattr(self.server, option) is not None:
                flag = "--" + option.replace("_", "-")
                raise ConfigError(
                    f"{flag}: a target has its own on the board, in the folder of its name"
                )
        if self.server.insecure:
            raise ConfigError("--insecure: targets that are installed over SSH have a token")

    def arguments(self) -> list[str]:
        """Return the words that follow ``nnpipe inference_server`` on the board."""
        classes = [type(self.protocol).__name__, type(self.runtime).get_dotted_path()]
        own = [
            *format_options(self.protocol, always=("port",)),
            "--token-file",
            "token",
            "--save-model-path",
            "models",
        ]
        return [*classes, *own, *format_options(self.server), *format_options(self.runtime)]

    def to_json(self) -> dict[str, Any]:
        """Return what the board keeps of it."""
        return {
            "name": self.name,
            "arguments": self.arguments(),
            "runtime": type(self.runtime).__name__,
            "address": f"{self.protocol.host}:{self.protocol.port}",
            "nnpipe": nnpipe.__version__,
            "since": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
        }


def format_options(component: Component, always: Sequence[str] = ()) -> list[str]:
    """Return the options that make a component on a command line; those with their default are
    left out.
    """
    found: list[str] = []
    for argument in list_arguments(type(component)):
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


STARTING = 300.0
"""Seconds that a server may need to start; small boards import packages slowly."""


@dataclass(frozen=True)
class InstallPlan:
    """What an installation does.

    Attributes
    ----------
    board, facts
        The board, and what it is.
    settings
        The server.
    packages
        Requirements of the packages that are gathered and sent; nnpipe itself is always sent.
    token_file
        The file on this machine with the token.
    token_exists
        Whether that file is there already.
    """

    board: SSHBoard
    facts: BoardFacts
    settings: TargetSettings
    packages: tuple[str, ...]
    token_file: Path
    token_exists: bool


@dataclass(frozen=True)
class TargetState:
    """A server that is installed on a board.

    Attributes
    ----------
    name, runtime, address
        Its name, the class of its runtime, and where on the board it listens.
    pid
        Its process; None if it does not run.
    service
        ``systemd``, or ``process`` if it is a plain process, which does not start with the board.
    version, since
        The version of nnpipe that it was installed from, and when.
    last
        The last line of its log.
    folder
        Where it lies on the board.
    """

    name: str
    runtime: str
    address: str
    pid: int | None
    service: str
    version: str
    since: str
    last: str
    folder: str

    @classmethod
    def from_json(cls, told: dict[str, Any]) -> TargetState:
        """Make a state from what the board answered."""
        words = {
            name: str(told.get(name) or "")
            for name in ("name", "runtime", "address", "service", "since", "last")
        }
        pid = told.get("pid")
        return cls(
            **words,
            pid=None if pid is None else int(pid),
            version=str(told.get("nnpipe") or ""),
            folder=str(told.get("folder") or ""),
        )


@dataclass(frozen=True)
class Installation:
    """A finished installation.

    Attributes
    ----------
    plan
        What was done.
    state
        The server's state.
    survives_logout
        Whether it goes on when the user has logged out of the board.
    """

    plan: InstallPlan
    state: TargetState
    survives_logout: bool


def plan_install(
    board: SSHBoard,
    settings: TargetSettings,
    *,
    token_file: Path,
    packages: Sequence[str] | None = None,
) -> InstallPlan:
    """Return what an installation would do, by asking the board what it is; nothing is changed.

    Parameters
    ----------
    board
        The board.
    settings
        The server.
    token_file
        The file with the token on this machine; it is made if it is missing.
    packages
        Requirements as pip takes them; those of the runtime by default, and none if the board's
        Python has them.

    Raises
    ------
    ConfigError
        If the token in the file is too short, or it is not known what the runtime needs.
    JobError
        If the board cannot be reached, or cannot be a target.
    """
    check_call(plan_install, locals())
    needed = list_requirements(type(settings.runtime)) if packages is None else tuple(packages)
    if exists := token_file.exists():
        _read_ascii_token(token_file)
    elif not token_file.parent.is_dir():
        raise ConfigError(f"{token_file}: there is no folder {token_file.parent} for the token")
    return InstallPlan(board, board.fetch_facts(), settings, needed, token_file, exists)


def install_target(
    plan: InstallPlan, *, pip_options: Sequence[str] = (), seconds: float = STARTING
) -> Installation:
    """Put a server on a board and start it; one of the same name is replaced.

    Parameters
    ----------
    plan
        From :func:`plan_install`.
    pip_options
        Further options of pip that gathers the packages.
    seconds
        How long the server may take to start.

    Raises
    ------
    JobError
        If the board refuses it, or the server does not start; the message says why.
    NNPipeError
        If a package does not exist for the board.
    """
    check_call(install_target, locals())
    with tempfile.TemporaryDirectory(prefix="nnpipe-target-") as folder:
        download_packages(
            plan.facts.platform, plan.packages, Path(folder, "packages"), index=pip_options
        )
        payload = pack_folder(Path(folder, "packages"))
    if not plan.token_exists:
        _make_token(plan.token_file)
    asked = {
        "settings": plan.settings.to_json() | {"service": plan.facts.service},
        "token": _read_ascii_token(plan.token_file),
        "sha256": hashlib.sha256(payload).hexdigest(),
    }
    told = plan.board.ask("install", asked, payload, seconds)
    return Installation(plan, TargetState.from_json(told["targets"][0]), bool(told["lingers"]))


def fetch_target_states(board: SSHBoard, name: str = "") -> list[TargetState]:
    """Return the states of all servers of a board, or of one; raise :class:`JobError` if there
    is none of that name.
    """
    check_call(fetch_target_states, locals())
    return [TargetState.from_json(told) for told in board.ask("status", {"name": name})["targets"]]


def start_target(board: SSHBoard, name: str, *, seconds: float = STARTING) -> TargetState:
    """Start a server that is installed, and return its state."""
    check_call(start_target, locals())
    return TargetState.from_json(board.ask("start", {"name": name}, seconds=seconds)["targets"][0])


def stop_target(board: SSHBoard, name: str) -> TargetState:
    """Stop a server, and return its state."""
    check_call(stop_target, locals())
    return TargetState.from_json(board.ask("stop", {"name": name})["targets"][0])


def uninstall_target(board: SSHBoard, name: str) -> None:
    """Stop a server and remove it from the board, with its token and its models."""
    check_call(uninstall_target, locals())
    board.ask("uninstall", {"name": name})


def _read_ascii_token(path: Path) -> str:
    try:
        return read_token(path).decode("ascii")
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: a token for boards has letters of ASCII only") from None


def _make_token(path: Path) -> None:
    with open(
        os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii"
    ) as handle:
        handle.write(secrets.token_urlsafe(32) + "\n")
