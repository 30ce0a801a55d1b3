"""Run the test vectors of ONNX and TensorFlow Lite through every installed runtime and compiler.

VECTORS are folders or archives with models, inputs and exact outputs: ONNX's
published tests of backends, or layers of TensorFlow Lite with numbers in CSV.
Each case runs in a subprocess, which may crash or hang without harm.  A case
passes if every output has the right element type, shape and values; integers,
strings and all values of TensorFlow Lite must be exact.

The exit status is 1 if any case computed wrong values, failed unexpectedly, or
crashed; models that are refused with a reason do not count.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from nnpipe.core.arguments import Kind
from nnpipe.core.errors import ConfigError
from nnpipe.core.files import write_text
from nnpipe.scenarios._cli.command import execute, parse
from nnpipe.scenarios._cli.option_types import output_file
from nnpipe.workflows.verification.conformance import conformance


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``nnpipe conformance VECTORS [VECTORS ...] [--output OUT.rst]``."""
    return execute(_run, argv, "conformance")


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "vectors", type=Path, nargs="+", metavar="VECTORS", help="folders, or tar or zip archives"
    )
    parser.add_argument(
        "--only",
        nargs="+",
        default=[],
        metavar="CLASS",
        help="runtimes and compilers to try (default: all there are)",
    )
    parser.add_argument(
        "--output",
        type=output_file,
        metavar="OUT.rst",
        help="write a report; an HTML page is put beside it",
    )
    parser.add_argument(
        "--results", type=output_file, metavar="OUT.json", help="write the result of each case here"
    )
    parser.add_argument(
        "--rtol",
        type=Kind(float, minimum=0),
        default=1e-3,
        metavar="X",
        help="of floats in ONNX (default: 0.001)",
    )
    parser.add_argument(
        "--atol",
        type=Kind(float, minimum=0),
        default=1e-5,
        metavar="X",
        help="of floats in ONNX (default: 0.00001)",
    )
    parser.add_argument(
        "--time-limit",
        type=Kind(float, minimum=0.1),
        default=60.0,
        metavar="S",
        help="seconds that one case may take (default: 60)",
    )
    parser.add_argument(
        "--jobs",
        type=Kind(int, minimum=1),
        default=1,
        metavar="N",
        help="cases to run at a time (default: 1)",
    )


def _run(argv: Sequence[str] | None) -> int:
    options = parse(argv, "conformance", __doc__ or "", (), _add_options).options
    if options.output is not None and options.output.suffix != ".rst":
        raise ConfigError(f"the report's file must end in .rst, not {options.output.name!r}")
    found = conformance(
        options.vectors,
        only=options.only,
        rtol=options.rtol,
        atol=options.atol,
        time_limit=options.time_limit,
        jobs=options.jobs,
    )
    found.show()
    if options.results:
        write_text(options.results, json.dumps(found.to_json(), indent=1) + "\n")
    if options.output:
        print(f"report: {found.save_report(options.output)} and {options.output}")
    return 0 if found.passed else 1


if __name__ == "__main__":
    sys.exit(main())
