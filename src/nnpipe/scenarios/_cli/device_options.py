"""The options that select the devices of a comparison."""

from __future__ import annotations

import argparse
from pathlib import Path

from nnpipe.workflows.devices.device_file import USUAL, Fleet, read_devices


def add_devices(parser: argparse.ArgumentParser) -> None:
    """Declare the option that names the file of devices."""
    parser.add_argument(
        "--devices", type=Path, default=USUAL, metavar="FILE", help=f"the file of devices (default: {USUAL})"
    )


def add_targets(parser: argparse.ArgumentParser) -> None:
    """Declare the options that select devices."""
    parser.add_argument(
        "--target-devices", "--targets", metavar="NAMES",  # some data have targets, too, and an option for them
        help="compare on these devices: names and tags joined by commas, or all (default: this machine)",
    )  # fmt: skip
    add_devices(parser)


def targets_of(options: argparse.Namespace) -> Fleet | None:
    """Return the selected devices; ``None`` if none are named.

    Raises
    ------
    NNPipeError
        If the file of devices is wrong, or has no such device.
    """
    if options.target_devices is None:
        return None
    return read_devices(options.devices).only(options.target_devices.split(","), "--targets")
