"""Installing servers on boards over SSH, and looking after them, in one call each."""

from __future__ import annotations

import hashlib
import os
import secrets
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nnpipe.core.argument_checks import check_call
from nnpipe.core.deployment import read_token
from nnpipe.core.errors import ConfigError
from nnpipe.workflows.boards.board import BoardFacts, SSHBoard
from nnpipe.workflows.boards.packages import gather, packed, requirements
from nnpipe.workflows.boards.target_settings import TargetSettings

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
        words = {name: str(told.get(name) or "") for name in ("name", "runtime", "address", "service", "since", "last")}
        pid = told.get("pid")
        return cls(
            **words, pid=None if pid is None else int(pid), version=str(told.get("nnpipe") or ""),
            folder=str(told.get("folder") or ""),
        )  # fmt: skip


@dataclass(frozen=True)
class Installed:
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
        Requirements as pip takes them; those of the runtime by default, and none if the board's Python has them.

    Raises
    ------
    ConfigError
        If the token in the file is too short, or it is not known what the runtime needs.
    JobError
        If the board cannot be reached, or cannot be a target.
    """
    check_call(plan_install, locals())
    needed = requirements(type(settings.runtime)) if packages is None else tuple(packages)
    if exists := token_file.exists():
        _token(token_file)
    elif not token_file.parent.is_dir():
        raise ConfigError(f"{token_file}: there is no folder {token_file.parent} for the token")
    return InstallPlan(board, board.facts(), settings, needed, token_file, exists)


def install_target(plan: InstallPlan, *, pip_options: Sequence[str] = (), seconds: float = STARTING) -> Installed:
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
        gather(plan.facts.platform, plan.packages, Path(folder, "packages"), index=pip_options)
        payload = packed(Path(folder, "packages"))
    if not plan.token_exists:
        _make_token(plan.token_file)
    asked = {
        "settings": plan.settings.to_json() | {"service": plan.facts.service}, "token": _token(plan.token_file),
        "sha256": hashlib.sha256(payload).hexdigest(),
    }  # fmt: skip
    told = plan.board.ask("install", asked, payload, seconds)
    return Installed(plan, TargetState.from_json(told["targets"][0]), bool(told["lingers"]))


def target_states(board: SSHBoard, name: str = "") -> list[TargetState]:
    """Return the states of all servers of a board, or of one; raise :class:`JobError` if there is none of that name."""
    check_call(target_states, locals())
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


def _token(path: Path) -> str:
    try:
        return read_token(path).decode("ascii")
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: a token for boards has letters of ASCII only") from None


def _make_token(path: Path) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as handle:
        handle.write(secrets.token_urlsafe(32) + "\n")
