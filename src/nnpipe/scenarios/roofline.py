"""Measure what this machine can do at most: rates of arithmetic by type of number, and bandwidth by
level of memory.

    nnpipe roofline
    nnpipe roofline --threads 4 --picture roofline.svg

Products of matrices in the libraries that are installed here give the rates of
arithmetic, reading from 8 KiB to 256 MiB the bandwidth; a level of memory begins
where the bandwidth falls.  Everything is measured three times.  A ceiling is the
greatest repeat, and not known if the repeats differ by more than 10 %: other
programs should be quiet meanwhile.

The ceilings are kept for this machine; nnpipe explain --runtime then tells how close
each layer comes to them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from nnpipe.core.arguments import Kind
from nnpipe.core.errors import ConfigError
from nnpipe.measuring.host import get_machine_folder
from nnpipe.scenarios._cli.command import execute, parse
from nnpipe.scenarios._cli.option_types import output_file
from nnpipe.workflows.roofline.roofline import get_ceilings_file, roofline


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``nnpipe roofline``."""
    return execute(_measure_roofline, argv, "roofline")


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--threads",
        type=Kind(int, minimum=1, maximum=1024),
        default=1,
        metavar="N",
        help="the threads that work (default: 1, as runtimes have)",
    )
    parser.add_argument(
        "--seconds",
        type=Kind(float, minimum=0.001, maximum=60.0),
        default=0.1,
        metavar="S",
        help="the time of each product of matrices in each repeat (default: 0.1)",
    )
    parser.add_argument(
        "--folder",
        type=Path,
        metavar="FOLDER",
        help="where to keep them (default: in ~/.local/share/nnpipe/machines)",
    )
    parser.add_argument(
        "--picture", type=output_file, metavar="OUT.svg", help="also draw the roofline here"
    )
    parser.add_argument(
        "--json", type=output_file, metavar="OUT.json", help="also write all ceilings here"
    )


def _measure_roofline(argv: Sequence[str] | None) -> None:
    options = parse(argv, "roofline", __doc__ or "", (), _add_options).options
    folder = options.folder or get_machine_folder(Path.home())
    found = roofline(threads=options.threads, seconds=options.seconds, folder=folder)
    found.show()
    print(f"\nkept in {get_ceilings_file(folder, options.threads)}")
    if options.json is not None:
        found.save_json(options.json)
    if options.picture is not None and not found.save_svg(options.picture):
        raise ConfigError(
            f"{options.picture} was not drawn: no ceiling is known; measure on a quiet machine"
        )


if __name__ == "__main__":
    sys.exit(main())
