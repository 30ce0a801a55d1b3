"""Fail if a result is worse than a baseline by more than is allowed: slower, or of less quality.

BASELINE and NEW are result files of runs, or candidates of a comparison as
FILE#TITLE.  Two candidates of one comparison are best, since they took turns on
one machine: nnpipe compare old.onnx new.onnx --dataset DigitsDataset, and then
nnpipe gate comparison.json#old.onnx comparison.json#new.onnx --max-slowdown 2%.

Name at least one limit: --max-slowdown, --max-accuracy-loss, or --max-loss for any
other metric of the task, such as --max-loss map=1%; or a constraint that NEW must keep
by itself, such as --constraint 'flash <= 256 KiB'.

A criterion passes if its whole interval is within the limit, and fails if its
whole interval is beyond.  Otherwise the data cannot decide; the output says how
many more samples would, and --undecided says how the criterion counts.

The exit status is 0 if all criteria hold, 1 if one does not, and 2 if the files
cannot be used.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from nnpipe.core.files import write_text
from nnpipe.scenarios._cli.command import execute, parse
from nnpipe.scenarios._cli.option_types import Percentage, metric_limit, output_file
from nnpipe.workflows.verification.gate import gate


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``nnpipe gate BASELINE NEW --max-slowdown 2% --max-accuracy-loss 0.5%``."""
    return execute(_run_gate, argv, "gate")


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "baseline", metavar="BASELINE", help="a result file, or FILE#TITLE in a comparison's"
    )
    parser.add_argument("new", metavar="NEW", help="what must not be worse, likewise")
    parser.add_argument(
        "--max-slowdown",
        type=Percentage(-0.99, 10.0),
        metavar="PERCENT",
        help="by how much the median time may grow, such as 2%%",
    )
    parser.add_argument(
        "--max-accuracy-loss",
        type=Percentage(-0.99, 10.0),
        metavar="PERCENT",
        help="how many percentage points of accuracy may be lost, such as 0.5%%",
    )
    parser.add_argument(
        "--max-loss",
        type=metric_limit,
        action="append",
        default=[],
        metavar="METRIC=LIMIT",
        help=(
            "how much worse a metric of quality may become, such as map=0.5%% or mae=0.1; may be "
            "given several times"
        ),
    )
    parser.add_argument(
        "--constraint",
        action="append",
        default=[],
        metavar="CONSTRAINT",
        help="what NEW must keep by itself, such as 'flash <= 256 KiB'; may be given several times",
    )
    parser.add_argument(
        "--confidence",
        type=Percentage(0.5, 0.9999),
        default=0.95,
        metavar="PERCENT",
        help="of each interval (default: 95%%)",
    )
    parser.add_argument(
        "--undecided",
        choices=("pass", "fail"),
        default="fail",
        help="how a criterion that the data cannot decide counts (default: fail)",
    )
    parser.add_argument(
        "--judge-unknown",
        action="store_true",
        help="judge the quality of a model even if its preprocessing is not known",
    )
    parser.add_argument(
        "--output",
        type=output_file,
        metavar="OUT.json",
        help="also write the result of each criterion here",
    )


def _run_gate(argv: Sequence[str] | None) -> int:
    options = parse(argv, "gate", __doc__ or "", (), _add_options).options
    found = gate(
        options.baseline,
        options.new,
        max_slowdown=options.max_slowdown,
        max_accuracy_loss=options.max_accuracy_loss,
        max_loss=dict(options.max_loss),
        constraints=options.constraint,
        confidence=options.confidence,
        undecided=options.undecided,
        judge_unknown=options.judge_unknown,
    )
    if options.output:
        write_text(options.output, json.dumps(found.to_json(), indent=2, allow_nan=False) + "\n")
    found.show()
    return 0 if found.passed else 1


if __name__ == "__main__":
    sys.exit(main())
