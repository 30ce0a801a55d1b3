"""Put servers on boards over SSH, look after them, and remove them.

  nnpipe target install pi@pi-5.lan LiteRTRuntime --dry-run     what it would do
  nnpipe target install pi@pi-5.lan LiteRTRuntime -- --num-threads 4
  nnpipe target status pi@pi-5.lan                              what is installed, and whether it runs
  nnpipe target stop pi@pi-5.lan LiteRTRuntime                  and start, by its name
  nnpipe target uninstall pi@pi-5.lan LiteRTRuntime
  nnpipe target bundle image/arm64 LiteRTRuntime --machine aarch64    a folder for an image

The board needs SSH and Python 3.10 or newer, but neither pip nor a way to the
internet: packages for its processor are gathered here, and sent.  It works like
ssh HOST of the user, with ~/.ssh/config, keys, agents and jump hosts, but never
prompts.  The server listens at the board's loopback address, and is reached
through SSH by SSHProtocol; --listen names another one.  Either way, hosts need
the token, which is made here and is stored on both sides.  Where the user has
systemd, the server is its service and starts with the board; elsewhere it is a
plain process.  What follows -- are options of the runtime and of
nnpipe inference_server.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from nnpipe.core.arguments import Kind
from nnpipe.core.errors import ConfigError
from nnpipe.scenarios._cli.command import execute, parse
from nnpipe.scenarios._cli.target_options import (
    create_install_plan,
    describe_install_plan,
    describe_installed,
    format_target_states,
    parse_bundle,
)
from nnpipe.workflows.boards.board import SSHBoard
from nnpipe.workflows.boards.install import (
    STARTING,
    fetch_target_states,
    install_target,
    start_target,
    stop_target,
)
from nnpipe.workflows.boards.install import uninstall_target as remove
from nnpipe.workflows.boards.packages import download_packages

NOT_ALL = 1


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``nnpipe target ACTION ...``."""
    return execute(_run_action, argv, "target")


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action", metavar="ACTION", choices=tuple(_ACTIONS), help=", ".join(_ACTIONS)
    )
    parser.add_argument(
        "board", metavar="BOARD", help="HOST, USER@HOST or USER@HOST:PORT; bundle: a new folder"
    )
    parser.add_argument(
        "what", metavar="WHAT", nargs="?", default="", help="a runtime, or the name of a target"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="install: only show what would be done"
    )
    parser.add_argument(
        "--name", default="", help="install: what to call it (default: the runtime)"
    )
    parser.add_argument(
        "--listen",
        metavar="ADDRESS",
        default="127.0.0.1",
        help=(
            "install: the board's address to listen at; 0.0.0.0 for all (default: 127.0.0.1, "
            "reached through SSH)"
        ),
    )
    parser.add_argument(
        "--port",
        type=Kind(int, minimum=1, maximum=65535),
        default=12345,
        metavar="N",
        help="install: TCP port of the server (default: 12345)",
    )
    parser.add_argument(
        "--token-file",
        type=Path,
        metavar="FILE",
        help="install: the token, made if there is no such file (default: HOST.token)",
    )
    parser.add_argument(
        "--python",
        default="python3",
        metavar="PROGRAM",
        help="Python on the board (default: python3)",
    )
    parser.add_argument(
        "--package",
        action="append",
        metavar="REQUIREMENT",
        help=(
            "install, bundle: a package to send instead of those that the runtime needs; may be "
            "given several times"
        ),
    )
    parser.add_argument(
        "--no-packages",
        action="store_true",
        help="install: send nnpipe alone, for the board's Python has the packages",
    )
    parser.add_argument(
        "--pip-option",
        action="append",
        default=[],
        metavar="OPTION",
        help="install, bundle: a further option of pip, such as --pip-option=--constraint=FILE",
    )
    parser.add_argument(
        "--seconds",
        type=Kind(float, minimum=1),
        default=STARTING,
        metavar="X",
        help=f"install, start: how long the server may take to start (default: {STARTING:g})",
    )
    parser.add_argument(
        "--machine", default="aarch64", help="bundle: the processor (default: aarch64)"
    )
    parser.add_argument(
        "--python-version", default="3.12", metavar="X.Y", help="bundle: of Python (default: 3.12)"
    )
    parser.add_argument(
        "--glibc", default="2.36", metavar="X.Y", help="bundle: of the C library (default: 2.36)"
    )


def _run_action(argv: Sequence[str] | None) -> int:
    given = list(sys.argv[1:] if argv is None else argv)
    own, words = (
        (given[: given.index("--")], given[given.index("--") + 1 :])
        if "--" in given
        else (given, [])
    )
    options = parse(own, "target", __doc__ or "", (), _add_options).options
    if words and options.action != "install":
        raise ConfigError(f"{options.action}: nothing may follow --")
    options.words = words
    if not options.what and options.action != "status":
        kind = "runtime" if options.action in ("install", "bundle") else "target"
        raise ConfigError(f"{options.action}: name the board and the {kind}")
    return _ACTIONS[options.action](options)


def _run_install(options: argparse.Namespace) -> int:
    plan = create_install_plan(options)
    print(describe_install_plan(plan))
    if not options.dry_run:
        print(
            describe_installed(
                install_target(plan, pip_options=options.pip_option, seconds=options.seconds)
            )
        )
    return 0


def _show_status(options: argparse.Namespace) -> int:
    found = fetch_target_states(_create_board(options), options.what)
    print(format_target_states(found) if found else f"{options.board}: no targets")
    return NOT_ALL if any(state.pid is None for state in found) else 0


def _start(options: argparse.Namespace) -> int:
    print(
        format_target_states(
            [start_target(_create_board(options), options.what, seconds=options.seconds)]
        )
    )
    return 0


def _stop(options: argparse.Namespace) -> int:
    print(format_target_states([stop_target(_create_board(options), options.what)]))
    return 0


def _remove_targets(options: argparse.Namespace) -> int:
    remove(_create_board(options), options.what)
    print(f"{options.what} is removed from {options.board}")
    return 0


def _build_bundle(options: argparse.Namespace) -> int:
    platform, packages = parse_bundle(options)
    download_packages(platform, packages, Path(options.board), index=options.pip_option)
    print(f"{options.board}: nnpipe with {', '.join(packages)}; for {platform}")
    return 0


def _create_board(options: argparse.Namespace) -> SSHBoard:
    return SSHBoard.at(options.board, options.python)


_ACTIONS: dict[str, Callable[[argparse.Namespace], int]] = {
    "install": _run_install,
    "status": _show_status,
    "start": _start,
    "stop": _stop,
    "uninstall": _remove_targets,
    "bundle": _build_bundle,
}


if __name__ == "__main__":
    sys.exit(main())
