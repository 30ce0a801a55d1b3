"""Estimate by Arm's Vela how long a TensorFlow Lite model would take on an Ethos-U.

  nnpipe ethos_u model.tflite --accelerator ethos-u55-128

It is an estimate from a model of the processor: nothing is run.  It needs
pip install ethos-u-vela.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from nnpipe.core.files import write_text
from nnpipe.scenarios._cli.command import execute, parse
from nnpipe.scenarios._cli.option_types import output_file
from nnpipe.workflows.ethos_u import Accelerator, estimate_ethos_u


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``nnpipe ethos_u MODEL.tflite --accelerator ethos-u55-128``."""
    return execute(_run_estimate, argv, "ethos_u")


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model", metavar="MODEL.tflite", type=Path, help="the model, in 8-bit or 16-bit integers"
    )
    parser.add_argument(
        "--accelerator",
        choices=get_args(Accelerator),
        default="ethos-u55-128",
        help="the processor, and how many multiplications it does at once (default: ethos-u55-128)",
    )
    parser.add_argument(
        "--output", type=output_file, metavar="OUT.json", help="also write the estimate here"
    )


def _run_estimate(argv: Sequence[str] | None) -> None:
    options = parse(argv, "ethos_u", __doc__ or "", (), _add_options).options
    found = estimate_ethos_u(options.model, options.accelerator)
    if options.output:
        write_text(options.output, json.dumps(found.to_json(), indent=2, allow_nan=False) + "\n")
    print(found)


if __name__ == "__main__":
    sys.exit(main())
