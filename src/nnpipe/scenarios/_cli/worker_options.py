"""The options that say where the workers of a search or a sweep run."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from nnpipe.core.arguments import Kind
from nnpipe.scenarios._cli.option_types import secret_assignment
from nnpipe.workflows.workers.worker_options import MOST_WORKERS, WorkerOptions, parse_places

LOCATION = "NNPIPE_STORAGE"


def add_workers(parser: argparse.ArgumentParser, what: str) -> None:
    """Declare the options of workers that carry out ``what``."""
    parser.add_argument(
        "--workers",
        type=Kind(int, minimum=1, maximum=MOST_WORKERS),
        metavar="N",
        help=(
            f"carry out N {what} at the same time, in processes of their own, at each place "
            f"(default: 1)"
        ),
    )
    parser.add_argument(
        "--on",
        action="append",
        default=[],
        metavar="PLACE",
        help="where workers run: here, ssh:HOST, ssh://USER@HOST:PORT or ray://HEAD:8265, with =N "
        "for N of them; may be given several times; other machines need nnpipe, and a run database "
        "in PostgreSQL",
    )
    parser.add_argument(
        "--python",
        default="python3",
        metavar="PROGRAM",
        help="the interpreter on other machines (default: python3)",
    )
    parser.add_argument(
        "--send",
        action="append",
        default=[],
        type=Path,
        metavar="PATH",
        help="a file or folder that workers on other machines need; may be given several times",
    )
    parser.add_argument(
        "--env",
        action="append",
        type=secret_assignment,
        default=[],
        metavar="NAME=VALUE",
        help="a variable of the workers' environment",
    )
    parser.add_argument(
        "--folder",
        type=Path,
        metavar="FOLDER",
        help="folder for the jobs of workers on this machine",
    )


def add_exchange(parser: argparse.ArgumentParser) -> None:
    """Declare the options of workers that exchange models and measure times."""
    parser.add_argument(
        "--storage",
        metavar="ADDRESS",
        help="a folder or s3://BUCKET/PREFIX through which workers exchange models and results "
        "(default on one "
        f"machine: in the output folder; else the variable {LOCATION})",
    )
    parser.add_argument(
        "--measure-on",
        default="",
        metavar="KIND",
        help=(
            "measure only on machines of this kind: a part of the name of the processor, board, "
            "GPU or machine"
        ),
    )


def create_worker_options(options: argparse.Namespace, folder: Path) -> WorkerOptions | None:
    """Return where workers run; ``None`` if this process does the work.

    Raises
    ------
    ConfigError
        If a place cannot be read.
    """
    if not options.on and options.workers in (None, 1) and not getattr(options, "measure_on", ""):
        return None
    return WorkerOptions(
        parse_places(options.on, options.workers or 1),
        options.python,
        options.send,
        dict(options.env),
        options.folder or folder,
        _get_storage(options),
        getattr(options, "measure_on", ""),
    )


def _get_storage(options: argparse.Namespace) -> str:
    if not hasattr(options, "storage"):
        return ""
    return str(options.storage or os.environ.get(LOCATION, ""))
