"""From the words of ``nnpipe target`` to the values that the work takes."""

from __future__ import annotations

import argparse
import json
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from nnpipe.core.errors import ConfigError
from nnpipe.core.registry import find
from nnpipe.core.runtime import Runtime
from nnpipe.core.runtime_protocol import ServerOptions
from nnpipe.protocols.network import NetworkProtocol
from nnpipe.report.document import Cell, Table
from nnpipe.report.formatting import NOTHING, clean
from nnpipe.report.writers.tables import to_text
from nnpipe.scenarios._cli.command import CommandParser, join_options
from nnpipe.workflows.boards.agent.service import SYSTEMD
from nnpipe.workflows.boards.board import SSHBoard
from nnpipe.workflows.boards.install import (
    Installation,
    InstallPlan,
    TargetSettings,
    TargetState,
    plan_install,
)
from nnpipe.workflows.boards.packages import Platform, list_requirements

_VERSION = re.compile(r"(\d{1,2})\.(\d{1,3})", re.ASCII)


def create_install_plan(options: argparse.Namespace) -> InstallPlan:
    """Return what the options ask to install; the board is asked what it is."""
    board = SSHBoard.at(options.board, options.python)
    cls = find(options.what, Runtime)
    runtime, server = _parse_server(options.words, cls)
    settings = TargetSettings(
        runtime, options.name, NetworkProtocol(host=options.listen, port=options.port), server
    )
    token = options.token_file or Path(f"{get_board_host(board)}.token")
    if options.no_packages and options.package:
        raise ConfigError("--no-packages sends none, --package names one: give one of the two")
    packages = [] if options.no_packages else options.package
    return plan_install(board, settings, token_file=token, packages=packages)


def parse_bundle(options: argparse.Namespace) -> tuple[Platform, tuple[str, ...]]:
    """Return for which platform packages are gathered, and which; the folder must be new or
    empty.
    """
    folder = Path(options.board)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder} exists and is not empty; name a new folder")
    if not options.machine or not options.machine.isidentifier():
        raise ConfigError(
            f"--machine {options.machine!r}: expected a processor such as aarch64 or x86_64"
        )
    glibc = None if options.glibc == "musl" else _parse_version(options.glibc, "--glibc")
    platform = Platform(
        options.machine, _parse_version(options.python_version, "--python-version"), glibc
    )
    return platform, tuple(options.package or list_requirements(find(options.what, Runtime)))


def get_board_host(board: SSHBoard) -> str:
    """Return the name or address of a board's machine, without user and port."""
    return board.connection.target[-1].rpartition("@")[2]


def _parse_server(words: Sequence[str], cls: type[Runtime]) -> tuple[Runtime, ServerOptions]:
    parser = CommandParser(prog="nnpipe target install ... --", add_help=False, allow_abbrev=False)
    join_options(parser, "target", [ServerOptions, cls])
    options = parser.parse_args(list(words))
    return cls.from_argparse(options), ServerOptions.from_argparse(options)


def _parse_version(text: str, flag: str) -> tuple[int, int]:
    found = _VERSION.fullmatch(text)
    if found is None:
        raise ConfigError(f"{flag} {text!r}: expected a version such as 3.12")
    return int(found[1]), int(found[2])


_KINDS = {SYSTEMD: "a service of the user's systemd, started with the board"}
_PLAIN = "a plain process, since the user has no systemd; it does not start with the board"


def describe_install_plan(plan: InstallPlan) -> str:
    """Return what an installation does, a line for each step."""
    settings, facts = plan.settings, plan.facts
    replaces = " (there is one, which is replaced)" if settings.name in facts.targets else ""
    lines = {
        "board": f"{plan.board.address}: {facts.platform}, {facts.free / 1e9:.1f} GB free",
        "folder": f"~/.nnpipe/targets/{settings.name}{replaces}",
        "packages": ", ".join(("nnpipe", *plan.packages)),
        "token": f"{plan.token_file}{'' if plan.token_exists else ', which is made'}",
        "server": shlex.join(["nnpipe", "inference_server", *settings.arguments()]),
        "runs as": _KINDS.get(facts.service, _PLAIN),
    }
    return "\n".join(f"{name:9} {text}" for name, text in lines.items())


def describe_installed(done: Installation) -> str:
    """Return what was installed, and the device for the file of devices."""
    plan, state = done.plan, done.state
    lines = [
        f"{state.name} is served at {state.address} of {plan.board.address} (process {state.pid})",
        "",
    ]
    if not done.survives_logout:
        user = plan.board.connection.target[-1].rpartition("@")[0] or "USER"
        lines[1:1] = [
            f"it ends when {user} logs out of the board, unless: sudo loginctl enable-linger {user}"
        ]
    return "\n".join([*lines, "for devices.yaml:", _format_device(plan)])


def format_target_states(states: Sequence[TargetState]) -> str:
    """Return a table of targets."""
    rows = [
        (
            each.name,
            each.runtime,
            each.address,
            "stopped" if each.pid is None else f"runs ({each.pid})",
            each.service,
            each.since,
            each.version,
            clean(each.last, 100) or NOTHING,
        )
        for each in states
    ]
    header = (
        "target",
        "runtime",
        "address",
        "state",
        "as",
        "installed",
        "nnpipe",
        "last line of its log",
    )
    return to_text(Table(header, tuple(tuple(Cell(text) for text in row) for row in rows)))


def _format_device(plan: InstallPlan) -> str:
    protocol = plan.settings.protocol
    if protocol.is_exposed():
        name, arguments = (
            "NetworkProtocol",
            {"host": get_board_host(plan.board), "port": protocol.port},
        )
    else:
        name, arguments = "SSHProtocol", {"host": plan.board.address, "port": protocol.port}
        arguments |= {} if plan.board.python == "python3" else {"python": plan.board.python}
    device = {
        "name": get_board_host(plan.board),
        "protocol": {"class": name, "arguments": arguments},
        "remote": {"token_file": str(plan.token_file)},
        "runtimes": [type(plan.settings.runtime).__name__],
    }
    return f"  - {json.dumps(device)}"
