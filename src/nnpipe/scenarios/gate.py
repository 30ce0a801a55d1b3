"""Fail if a result is worse than a baseline by more than is allowed: slower, or less accurate.

BASELINE and NEW are result files of runs, or candidates of a comparison as
FILE#TITLE.  Best are two candidates of one comparison, which took turns on one
machine: nnpipe compare old.onnx new.onnx --dataset DigitsDataset, and then
nnpipe gate comparison.json#old.onnx comparison.json#new.onnx --max-slowdown 2%.

A criterion passes if its whole interval is within what is allowed, and fails if
its whole interval is beyond.  Otherwise the data cannot decide; it is said how
many more samples would, and --undecided says what that counts as.

The exit status is 0 if all criteria hold, 1 if one does not, and 2 if the files
cannot be used.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from nnpipe.core.errors import ConfigError
from nnpipe.core.files import write_text
from nnpipe.measure.diagnosis import diagnose
from nnpipe.measure.quality import quality_doubts
from nnpipe.report.wording import clean
from nnpipe.scenarios._cli.command import execute, parse
from nnpipe.scenarios._cli.option_types import Percentage, output_file
from nnpipe.workflows.verification.regression_gate import Criterion, accuracy_loss, entry, slowdown


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``nnpipe gate BASELINE NEW --max-slowdown 2% --max-accuracy-loss 0.5%``."""
    return execute(_gate, argv, "gate")


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("baseline", metavar="BASELINE", help="a result file, or FILE#TITLE in a comparison's")
    parser.add_argument("new", metavar="NEW", help="what must not be worse, likewise")
    parser.add_argument(
        "--max-slowdown",
        type=Percentage(-0.99, 10.0),
        metavar="PERCENT",
        help="by how much the median time may grow, such as 2%%",
    )
    parser.add_argument(
        "--max-accuracy-loss", type=Percentage(-0.99, 10.0), metavar="PERCENT",
        help="how many percentage points of accuracy may be lost, such as 0.5%%",
    )  # fmt: skip
    parser.add_argument(
        "--confidence",
        type=Percentage(0.5, 0.9999),
        default=0.95,
        metavar="PERCENT",
        help="of each interval (default: 95%%)",
    )
    parser.add_argument(
        "--undecided", choices=("pass", "fail"), default="fail",
        help="what a criterion counts as that the data cannot decide (default: fail)",
    )  # fmt: skip
    parser.add_argument(
        "--judge-unknown", action="store_true",
        help="judge the accuracy of models of which nobody said how samples are to be prepared, too",
    )  # fmt: skip
    parser.add_argument("--output", type=output_file, metavar="OUT.json", help="also write what was found here")


def _gate(argv: Sequence[str] | None) -> int:
    options = parse(argv, "gate", __doc__ or "", (), _options).options
    if options.max_slowdown is None and options.max_accuracy_loss is None:
        raise ConfigError("nothing to check: give --max-slowdown 2%, --max-accuracy-loss 0.5%, or both")
    baseline, new = entry(options.baseline), entry(options.new)
    criteria = []
    if options.max_slowdown is not None:
        criteria.append(slowdown(baseline, new, options.max_slowdown, options.confidence))
    if options.max_accuracy_loss is not None:
        criteria.append(
            accuracy_loss(baseline, new, options.max_accuracy_loss, options.confidence, options.judge_unknown)
        )
    passed = all(_counts(criterion, options.undecided) == "pass" for criterion in criteria)
    if options.output:
        found = {"passed": passed, "criteria": [criterion.to_json() for criterion in criteria]}
        write_text(options.output, json.dumps(found, indent=2, allow_nan=False) + "\n")
    for criterion in criteria:
        print(_told(criterion, options.undecided))
    if options.max_slowdown is not None and (baseline.whole is None or new.whole is None):
        for each in (baseline, new):
            for doubt in diagnose(each.run):
                print(f"mind: {clean(each.name)} is in doubt ({doubt.kind}): {clean(doubt.reason)}")
    if options.max_accuracy_loss is not None:
        for each in (baseline, new):
            for doubt in quality_doubts(each.run):
                why = clean(doubt.reason, 600)
                print(f"mind: the accuracy of {clean(each.name)} is in doubt ({doubt.kind}): {why}")
    return 0 if passed else 1


def _counts(criterion: Criterion, undecided: str) -> str:
    return undecided if criterion.status == "undecided" else criterion.status


def _told(criterion: Criterion, undecided: str) -> str:
    unit = "points" if criterion.name == "accuracy loss" else "%"
    allowed = f"at most {100 * criterion.limit:g} {unit} allowed"
    if criterion.value is None:
        found = "cannot be told"
    else:
        found = f"{100 * criterion.value:.2f} {unit}"
        if criterion.interval is not None:
            found += " [{:.2f}, {:.2f}]".format(*(100 * end for end in criterion.interval))
    line = f"{criterion.status}: {criterion.name} {found}, {allowed} ({criterion.basis})".replace("-0.00", "0.00")
    if criterion.status != "undecided":
        return line
    wanted = f"; {criterion.more} would decide" if criterion.more else ""
    return f"{line}{wanted}; counts as {undecided}"


if __name__ == "__main__":
    sys.exit(main())
