"""From the words of ``nnpipe target`` to the values that the work takes."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path

from nnpipe.core.deployment import ServerOptions
from nnpipe.core.errors import ConfigError
from nnpipe.core.registry import find
from nnpipe.core.runtime import Runtime
from nnpipe.protocols.network import NetworkProtocol
from nnpipe.scenarios._cli.command import CommandParser
from nnpipe.scenarios._cli.joined_options import join_options
from nnpipe.workflows.boards.board import SSHBoard
from nnpipe.workflows.boards.install import InstallPlan, plan_install
from nnpipe.workflows.boards.packages import Platform, requirements
from nnpipe.workflows.boards.target_settings import TargetSettings

_VERSION = re.compile(r"(\d{1,2})\.(\d{1,3})", re.ASCII)


def plan_of(options: argparse.Namespace) -> InstallPlan:
    """Return what the options ask to install; the board is asked what it is."""
    board = SSHBoard.at(options.board, options.python)
    cls = find(options.what, Runtime)
    runtime, server = _server(options.words, cls)
    settings = TargetSettings(runtime, options.name, NetworkProtocol(host=options.listen, port=options.port), server)
    token = options.token_file or Path(f"{host_of(board)}.token")
    if options.no_packages and options.package:
        raise ConfigError("--no-packages sends none, --package names one: give one of the two")
    packages = [] if options.no_packages else options.package
    return plan_install(board, settings, token_file=token, packages=packages)


def bundle_of(options: argparse.Namespace) -> tuple[Platform, tuple[str, ...]]:
    """Return for which platform packages are gathered, and which; the folder must be new or empty."""
    folder = Path(options.board)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder} exists and is not empty; name a new folder")
    if not options.machine or not options.machine.isidentifier():
        raise ConfigError(f"--machine {options.machine!r}: expected a processor such as aarch64 or x86_64")
    glibc = None if options.glibc == "musl" else _version(options.glibc, "--glibc")
    platform = Platform(options.machine, _version(options.python_version, "--python-version"), glibc)
    return platform, tuple(options.package or requirements(find(options.what, Runtime)))


def host_of(board: SSHBoard) -> str:
    """Return the name or address of a board's machine, without user and port."""
    return board.connection.target[-1].rpartition("@")[2]


def _server(words: Sequence[str], cls: type[Runtime]) -> tuple[Runtime, ServerOptions]:
    parser = CommandParser(prog="nnpipe target install ... --", add_help=False, allow_abbrev=False)
    join_options(parser, "target", [ServerOptions, cls])
    options = parser.parse_args(list(words))
    return cls.from_argparse(options), ServerOptions.from_argparse(options)


def _version(text: str, flag: str) -> tuple[int, int]:
    found = _VERSION.fullmatch(text)
    if found is None:
        raise ConfigError(f"{flag} {text!r}: expected a version such as 3.12")
    return int(found[1]), int(found[2])
