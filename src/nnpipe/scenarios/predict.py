"""Predict how long a network takes that is not built yet, or that runs on a machine that is not at
hand.

    nnpipe predict --learn --runtime ONNXRuntime
    nnpipe predict mobilenet.onnx
    nnpipe predict a.onnx b.tflite network.yaml --csv kernels.csv
    nnpipe predict mobilenet.onnx --kernels board.json

First, --learn measures this machine, for at most a minute: small random networks of
common kinds are run in the runtime, and up to 300 different kernels are timed, such
as a convolution with the activation that is fused to it.  They are kept for this
machine, runtime, and number of threads; the file also serves on other machines.

Then MODEL, a model file or a network declared layer by layer (.yaml, .json), is
predicted without being run or built: its operations are put together as the runtime
fuses them, each kernel is estimated, and the sum is corrected by the networks that
were measured as a whole.  The real time lies in the interval nine times in ten.
Kernels of other kinds or sizes than were measured are named with their share of the
time.  The column "by MACs alone" shows what a straight line would say.

The exit status is 0, or 2 if a model could not be predicted.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from nnpipe.core.arguments import Kind
from nnpipe.core.errors import ConfigError
from nnpipe.core.runtime import Runtime
from nnpipe.scenarios._cli.command import execute, parse
from nnpipe.scenarios._cli.option_types import input_shape, output_file
from nnpipe.workflows.prediction.learn import learn_kernels
from nnpipe.workflows.prediction.predict import get_kernels_file, predict, read_kernels


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``nnpipe predict MODEL ...``."""
    return execute(_predict, argv, "predict")


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "models",
        nargs="*",
        type=Path,
        metavar="MODEL",
        help="model files, and networks declared layer by layer",
    )
    parser.add_argument(
        "--learn", action="store_true", help="measure the kernels of this machine, and keep them"
    )
    parser.add_argument(
        "--runtime",
        metavar="CLASS",
        default="ONNXRuntime",
        help="the runtime; to learn, one that runs ONNX files (default: ONNXRuntime)",
    )
    parser.add_argument(
        "--kernels",
        type=Path,
        metavar="FILE.json",
        help="the measured kernels (default: those that are kept of this machine)",
    )
    parser.add_argument(
        "--most-kernels",
        type=Kind(int, minimum=40, maximum=5000),
        default=300,
        metavar="N",
        help="with --learn, how many different kernels to measure at most (default: 300)",
    )
    parser.add_argument(
        "--seconds",
        type=Kind(float, minimum=0.1, maximum=3600.0),
        default=60.0,
        metavar="S",
        help="with --learn, how long to measure at most (default: 60)",
    )
    parser.add_argument(
        "--seed",
        type=Kind(int, minimum=0),
        default=0,
        metavar="N",
        help="with --learn, which networks",
    )
    parser.add_argument(
        "--shape",
        nargs="+",
        type=input_shape,
        default=[],
        metavar="INPUT=N,N,...",
        help="the shape of an input (default: the model's, with the length 1 for each free axis)",
    )
    parser.add_argument(
        "--csv", type=output_file, metavar="OUT.csv", help="also write a row for each kernel here"
    )
    parser.add_argument(
        "--json", type=output_file, metavar="OUT.json", help="also write all figures here"
    )


def _predict(argv: Sequence[str] | None) -> None:
    given = list(sys.argv[1:] if argv is None else argv)
    if not any(word.split("=")[0] == "--runtime" for word in given):
        given = [*given, "--runtime", "ONNXRuntime"]
    parsed = parse(
        given, "predict", __doc__ or "", (), _add_options, named_by=(("--runtime", Runtime),)
    )
    options, runtime = parsed.options, cast(Runtime, parsed.make("--runtime"))
    threads = int(getattr(runtime, "num_threads", 1) or 0)
    path = options.kernels or get_kernels_file(type(runtime).__name__, threads)
    if options.learn:
        found = learn_kernels(
            runtime, kernels=options.most_kernels, seconds=options.seconds, seed=options.seed
        )
        found.save(path)
        low, high = found.usual_errors
        print(
            f"{found.title}: {len(found.kernels)} kernels of {len(found.networks)} networks, kept "
            f"in {path}"
        )
        print(
            f"networks whose kernels were left out took {low:.2f} to {high:.2f} times what was "
            f"predicted (nine in ten)"
        )
        for doubt in found.doubts:
            print(f"doubt: {doubt}")
    if not options.models:
        if not options.learn:
            raise ConfigError("name a model to predict, or measure this machine with --learn first")
        return
    if not path.exists() and options.kernels is None:
        raise ConfigError(
            f"no kernels of {type(runtime).__name__} with {threads or 'all'} threads were measured "
            f"on this machine: nnpipe predict --learn --runtime {type(runtime).__name__}"
        )
    result = predict(list(options.models), read_kernels(path), shapes=dict(options.shape))
    result.show()
    if options.csv is not None:
        result.save_csv(options.csv)
    if options.json is not None:
        result.save_json(options.json)


if __name__ == "__main__":
    sys.exit(main())
