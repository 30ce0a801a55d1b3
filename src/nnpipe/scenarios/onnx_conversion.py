"""Take the models of frameworks through ONNX and back, and render what works as a table.

Each model is exported in each operator set, checked by onnx, run by ONNX
Runtime, compared with the framework's outputs, imported and compared again.
Frameworks run in subprocesses with a time limit: a crash or a hang affects only
one row, which records it.

The exit status is 1 if the outputs of a file differ from its model's.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from nnpipe.core.arguments import Kind
from nnpipe.core.errors import ConfigError
from nnpipe.core.files import write_text
from nnpipe.scenarios._cli.command import execute, parse
from nnpipe.scenarios._cli.option_types import output_file, output_folder
from nnpipe.workflows.verification.onnx_support import OPSETS, onnx_support


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``nnpipe onnx_conversion OUTDIR OUT.rst [--converters-list CLASS ...]``."""
    return execute(_run, argv, "onnx_conversion")


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folder", type=output_folder, metavar="OUTDIR", help="where the ONNX files are put"
    )
    parser.add_argument(
        "output",
        type=output_file,
        metavar="OUT.rst",
        help="the table; an HTML page is put beside it",
    )
    parser.add_argument(
        "--converters-list",
        nargs="+",
        default=[],
        metavar="CLASS",
        help="ONNXConversion classes to try (default: all whose frameworks are installed)",
    )
    parser.add_argument(
        "--opsets",
        nargs="+",
        type=Kind(int, minimum=1),
        default=list(OPSETS),
        metavar="N",
        help=f"operator sets to export in (default: {' '.join(map(str, OPSETS))})",
    )
    parser.add_argument(
        "--time-limit",
        type=Kind(float, minimum=0.1),
        default=180.0,
        metavar="S",
        help="seconds that one model may take (default: 180)",
    )
    parser.add_argument(
        "--results", type=output_file, metavar="OUT.json", help="write the rows as JSON, too"
    )


def _run(argv: Sequence[str] | None) -> int:
    options = parse(argv, "onnx_conversion", __doc__ or "", (), _add_options).options
    if options.output.suffix != ".rst":
        raise ConfigError(f"the table's file must end in .rst, not {options.output.name!r}")
    found = onnx_support(
        options.converters_list,
        opsets=options.opsets,
        folder=options.folder,
        time_limit=options.time_limit,
    )
    found.show()
    if options.results:
        write_text(options.results, json.dumps(found.to_json(), indent=1) + "\n")
    print(f"\ntable: {found.save_report(options.output)} and {options.output}")
    return 0 if found.passed else 1


if __name__ == "__main__":
    sys.exit(main())
