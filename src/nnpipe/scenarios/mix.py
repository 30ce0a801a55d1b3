"""Quantise a model to 8 bits, and keep those tensors in floats without which it would lose too
much.

    nnpipe mix resnet20.onnx --dataset CIFAR10Dataset --max-loss 1% --to mixed.onnx

MODEL is a model file, or a wrapper's class with --model-path.  The way, such as
onnx-int8 or openvino-int8, says how it is compiled and run; its quantiser must
be able to keep tensors in floats.

The tensors are ranked by the noise that 8 bits add to them, and models with the
worst 0, 1, 2, 4, ... in floats are tried on validation or training samples.  The
fastest one that is good enough is written, and compared with the model in floats
on the test split, which the search never sees.

"Not proven" means that the interval of the loss reaches beyond what is allowed:
more test samples would tell.  The exit status is 0 if the loss is allowed, 1 if it
is not or if this is not proven, and 2 if the model could not be compiled.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from nnpipe.core.arguments import Kind
from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import ConfigError
from nnpipe.core.model import ModelWrapper
from nnpipe.scenarios._cli.command import Role, add_model_path, execute, parse
from nnpipe.scenarios._cli.option_types import metric_limit, output_file
from nnpipe.workflows.candidates.model_files import find_file_wrapper, set_model_path, with_weights
from nnpipe.workflows.mixing.mix import mix

ROLES = (
    Role(
        "MODEL",
        ModelWrapper,
        "a model file, or the dotted path or name of a ModelWrapper",
        of_file=find_file_wrapper,
    ),
)
_LIMIT = 0.01


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``nnpipe mix MODEL --dataset CLASS --to FILE``."""
    return execute(_run_mix, argv, "mix")


def _add_options(parser: argparse.ArgumentParser) -> None:
    add_model_path(parser, "the model's file, where MODEL is a class", required=False)
    parser.add_argument(
        "--dataset", metavar="CLASS", help="the data; its test split is only used in the end"
    )
    parser.add_argument(
        "--to", type=output_file, metavar="FILE", help="the file of the chosen model"
    )
    parser.add_argument(
        "--way", default="onnx-int8", help="how to compile and run it (default: onnx-int8)"
    )
    parser.add_argument(
        "--max-loss",
        type=_parse_loss,
        metavar="[METRIC=]LIMIT",
        default=("", _LIMIT),
        help=(
            "how much worse a metric may become, such as 0.5%%, map=1%% or mae=0.1 (default: 1%% "
            "of the task's first)"
        ),
    )
    count, seconds = Kind(int, minimum=1), Kind(float, minimum=0.1, maximum=86_400)
    for flag, kind, default, unit, help in (
        ("--evaluations", count, 26, "N", "models to try at most"),
        ("--calibration-samples", count, 128, "N", "samples that the quantiser observes"),
        ("--search-samples", count, 1000, "N", "samples to search with at most"),
        (
            "--max-seconds",
            seconds,
            60.0,
            "S",
            "how long the chosen model and the others take turns in the end",
        ),
    ):
        parser.add_argument(
            flag, type=kind, default=default, metavar=unit, help=f"{help} (default: {default:g})"
        )
    parser.add_argument(
        "--json",
        type=output_file,
        metavar="OUT.json",
        help="also write all models and figures here",
    )
    parser.add_argument(
        "--report",
        type=output_file,
        metavar="OUT.html",
        help="also write a page with a picture here",
    )


def _parse_loss(text: str) -> tuple[str, float]:
    return metric_limit(text) if "=" in text else ("", metric_limit(f"loss={text}")[1])


def _run_mix(argv: Sequence[str] | None) -> int:
    parsed = parse(
        argv, "mix", __doc__ or "", ROLES, _add_options, named_by=(("--dataset", Dataset),)
    )
    options = parsed.options
    set_model_path(options, "MODEL", f"the file with the model or weights of {options.model}")
    for flag in ("dataset", "to"):
        if getattr(options, flag) is None:
            raise ConfigError(f"--{flag} is missing")
    metric, limit = options.max_loss
    found = mix(
        with_weights(parsed.make("MODEL"), options.model_path),
        options.to,
        data=parsed.make("--dataset"),
        max_loss=limit,
        way=options.way,
        metric=metric,
        evaluations=options.evaluations,
        calibration_samples=options.calibration_samples,
        search_samples=options.search_samples,
        max_seconds=options.max_seconds,
    )
    found.show()
    if options.json:
        found.save_json(options.json)
    if options.report:
        found.save_report(options.report)
    return 0 if found.verdict == "proven" else 1


if __name__ == "__main__":
    sys.exit(main())
