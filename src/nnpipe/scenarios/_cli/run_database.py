"""The options that select the run database of a command."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from nnpipe.core.errors import ConfigError

VARIABLE = "NNPIPE_RUNS"
_USUAL = "runs.sqlite"


def add_database_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options that name a run database and its store."""
    parser.add_argument(
        "--database",
        metavar="ADDRESS",
        help=(
            f"a file, or postgresql://user@host/name (default: the variable {VARIABLE}, else "
            f"{_USUAL})"
        ),
    )
    parser.add_argument(
        "--store",
        type=Path,
        metavar="FOLDER",
        help="folder of the artifacts (default: beside a file)",
    )


def get_database_address(options: argparse.Namespace) -> str:
    """Return the address of the run database, from the options, the environment, or the default.

    Raises
    ------
    ConfigError
        If the address is empty; the message names its source.
    """
    given: str | None = options.database
    address = os.environ.get(VARIABLE, _USUAL) if given is None else given
    if not address.strip():
        where = f"the variable {VARIABLE}" if given is None else "--database"
        raise ConfigError(
            f"{where} is empty: name a file or postgresql://user@host/name, or leave it out"
        )
    return address
