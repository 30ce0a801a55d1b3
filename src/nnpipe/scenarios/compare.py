"""Compare candidates side by side: which is faster, which predicts better, and how certain that is.

WHAT is a pipeline file, with KEY=VALUE changes as for nnpipe run, or two or
more model files, or folders with models that generate text, with --dataset; name
files before options.  All candidates are open
at the same time, each in a subprocess, and take turns in short blocks in random
order.  All are restarted many times, since the speed of a process depends on its
place in memory.  A candidate that is certainly slower is dropped.

Ctrl-C ends it early and keeps all measurements.

The verdict may be "cannot be told apart", with the number of starts that would
decide.  With --margin 1% the verdict may also be "the same within 1 %".

To see how small a difference your machine can detect, give the same file twice:
nnpipe compare model.onnx model.onnx --dataset DigitsDataset.  It should find no
difference, and the interval shows the smallest one that it would have found.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from nnpipe.core.arguments import Kind
from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import ConfigError
from nnpipe.measuring.measure_options import MeasureOptions
from nnpipe.measuring.paired_comparison import ComparisonPlan
from nnpipe.scenarios._cli.command import (
    CommandParser,
    ParsedCommand,
    add_model_folder,
    add_model_path,
    execute,
    parse,
)
from nnpipe.scenarios._cli.device_options import add_targets, select_targets
from nnpipe.scenarios._cli.option_types import Percentage, output_file
from nnpipe.workflows.candidates.model_files import create_file_wrapper, require_wrapper
from nnpipe.workflows.candidates.model_process import LimitOptions
from nnpipe.workflows.comparison.compare_models import (
    compare_models,
    compare_pipeline,
    create_titles,
)
from nnpipe.workflows.comparison.result import ComparisonResult
from nnpipe.workflows.isolation.signals import INTERRUPTED

_PIPELINES = (".yaml", ".yml", ".json")


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``nnpipe compare WHAT [WHAT ...] [options]``."""
    return execute(_compare, argv, "compare")


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what", nargs="+", metavar="WHAT", help="a pipeline file and changes to it, or model files"
    )
    parser.add_argument(
        "--dataset", metavar="CLASS", help="for model files: the data; its test split is used"
    )
    parser.add_argument(
        "--output",
        type=output_file,
        metavar="OUT.json",
        help="the result file (default: comparison.json)",
    )
    parser.add_argument("--title", default="", help="of the comparison")
    parser.add_argument(
        "--confidence",
        type=Percentage(0.5, 0.9999),
        default=0.95,
        metavar="PERCENT",
        help="the probability with which all intervals hold together (default: 95%%)",
    )
    parser.add_argument(
        "--margin",
        type=Percentage(0.0001, 0.9999),
        metavar="PERCENT",
        help="difference in time that does not matter (default: none)",
    )
    parser.add_argument(
        "--precision",
        type=Percentage(0.0001, 0.9999),
        metavar="PERCENT",
        help="continue until each difference is known to plus or minus so much",
    )
    parser.add_argument(
        "--max-seconds",
        type=Kind(float, minimum=0.1, maximum=86_400),
        default=300.0,
        metavar="S",
        help="how long to run candidates at most (default: 300)",
    )
    parser.add_argument(
        "--block-ms",
        type=Kind(float, minimum=0.1, maximum=60_000),
        default=10.0,
        metavar="MS",
        help="how long a candidate's turn lasts (default: 10)",
    )
    parser.add_argument(
        "--seed",
        type=Kind(int, minimum=0),
        default=0,
        help="of the order in which candidates run (default: 0)",
    )
    parser.add_argument(
        "--inference-batch-size",
        type=Kind(int, minimum=1),
        metavar="N",
        help="for model files: samples in one inference (default: 1)",
    )
    parser.add_argument(
        "--measure-samples",
        type=Kind(int, minimum=1),
        metavar="N",
        help="for model files: how many test samples quality is compared on (default: all)",
    )
    add_targets(parser)
    parser.add_argument(
        "--retrain", action="store_true", help="train even if the same training has been done"
    )
    add_model_path(parser, argparse.SUPPRESS, required=False)
    add_model_folder(parser)


def _compare(argv: Sequence[str] | None) -> int:
    files = _list_model_files(argv)
    wrappers = list(dict.fromkeys(map(require_wrapper, files)))
    parsed = parse(
        argv,
        "compare",
        __doc__ or "",
        (),
        _add_options,
        fixed=(*wrappers, LimitOptions),
        named_by=[("--dataset", Dataset)],
    )
    options = parsed.options
    plan = ComparisonPlan(
        confidence=options.confidence,
        margin=options.margin,
        precision=options.precision,
        max_seconds=options.max_seconds,
        block_seconds=options.block_ms / 1e3,
        seed=options.seed,
    )
    found = _compare_files(parsed, plan) if files else _compare_pipelines(parsed, plan)
    print(f"\n{found}\n\nresult: {found.path}")
    if found.failures:
        raise ConfigError(f"{len(found.failures)} candidates failed: {', '.join(found.failures)}")
    return INTERRUPTED if found.interrupted else 0


def _list_model_files(argv: Sequence[str] | None) -> list[str]:
    """Return the model files before the options; an empty list for a pipeline file, or if only
    help is requested.
    """
    scout = CommandParser(prog="nnpipe compare", add_help=False, allow_abbrev=False)
    _add_options(scout)
    given = list(sys.argv[1:] if argv is None else argv)
    named = scout.parse_known_args(given)[0].what if given and not given[0].startswith("-") else []
    return [] if not named or Path(named[0]).suffix.lower() in _PIPELINES else named


def _compare_files(parsed: ParsedCommand, plan: ComparisonPlan) -> ComparisonResult:
    options = parsed.options
    if not parsed.classes["--dataset"]:
        raise ConfigError("--dataset is missing: name the data that the model files run on")
    if len(options.what) < 2 and options.target_devices is None:
        raise ConfigError(
            "a comparison needs two model files or more; give the same one twice to see what "
            "chance does"
        )
    for name in ("model_path", "model_folder"):
        if getattr(options, name) is not None:
            raise ConfigError(
                f"--{name.replace('_', '-')} is not for compare: name the files themselves"
            )
    models = [create_file_wrapper(file, options) for file in options.what]
    measure = MeasureOptions(
        inference_batch_size=options.inference_batch_size or 1,
        measure_samples=options.measure_samples,
    )
    return compare_models(
        models,
        titles=create_titles(options.what),
        data=parsed.make("--dataset"),
        plan=plan,
        options=measure,
        time_limit=LimitOptions.from_argparse(options).time_limit,
        output=options.output or Path("comparison.json"),
        title=options.title,
        command=parsed.command,
        targets=select_targets(options),
    )


def _compare_pipelines(parsed: ParsedCommand, plan: ComparisonPlan) -> ComparisonResult:
    options = parsed.options
    if Path(options.what[0]).suffix.lower() not in _PIPELINES:
        raise ConfigError(f"{options.what[0]}: name model files before all options")
    for name in ("dataset", "inference_batch_size", "measure_samples"):
        if getattr(options, name) is not None:
            raise ConfigError(
                f"--{name.replace('_', '-')} is for model files; the pipeline file says it itself"
            )
    return compare_pipeline(
        options.what[0],
        options.what[1:],
        plan=plan,
        retrain=options.retrain,
        output=options.output,
        title=options.title,
        command=parsed.command,
        targets=select_targets(options),
    )


if __name__ == "__main__":
    sys.exit(main())
