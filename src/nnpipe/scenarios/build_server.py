"""Build a small server in C with models linked in, for a router or another Linux without Python.

  nnpipe build_server server digits.c                              for this machine
  nnpipe build_server server digits.c --cc aarch64-linux-gnu-gcc --static

The models are C sources of CCompiler, such as --compiled-model-path of
nnpipe inference_tester keeps them.  The program needs nothing but a C library, and
with --static not even that.  It speaks the protocol of nnpipe inference_server over
TCP, with the same options --host, --port and --token-file, and takes only these models.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from nnpipe.scenarios._cli.command import execute, parse
from nnpipe.scenarios._cli.option_types import output_file
from nnpipe.workflows.devices.c_server import build_server


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``nnpipe build_server SERVER MODEL.c ...``."""
    return execute(_build, argv, "build_server")


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("server", metavar="SERVER", type=output_file, help="the program to write")
    parser.add_argument(
        "models", metavar="MODEL.c", nargs="+", type=Path, help="C sources of models"
    )
    parser.add_argument(
        "--cc", metavar="COMPILER", help="the C compiler (default: this computer's)"
    )
    parser.add_argument("--static", action="store_true", help="put the C library into the program")


def _build(argv: Sequence[str] | None) -> None:
    options = parse(argv, "build_server", __doc__ or "", (), _add_options).options
    flags = ("-static",) if options.static else ()
    print(build_server(options.models, options.server, options.cc, flags))


if __name__ == "__main__":
    sys.exit(main())
