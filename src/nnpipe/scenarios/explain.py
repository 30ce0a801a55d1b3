"""Explain what a network costs, layer by layer: arithmetic, memory traffic, parameters, live memory
and time.

    nnpipe explain mobilenet.onnx
    nnpipe explain mobilenet.onnx --runtime ONNXRuntime --if 'Conv*=2x'
    nnpipe explain small_int8.onnx --against small.onnx --dataset CIFAR10Dataset
    nnpipe explain detector.tflite --breakdown kind
    nnpipe explain encoder.onnx --shape tokens=1,128 --csv costs.csv

MODEL is a model file (.onnx, .tflite, .keras, .h5, .pt2).  Its costs follow from
its graph, for one sample unless --shape says otherwise, and no data are needed.
With --runtime, the time of each layer is measured on random inputs: a row is a
step of the runtime with the operations that it fuses, and what belongs to no
step is a row of its own, so that the rows add up to the run.  A compiled file
(.vmfb, .pte, .so) is explained by the graph of the file that it was made from.
Once nnpipe roofline has measured this machine, each layer has its share of the
roof; --memory also measures the memory that the runtime takes.

With --against, the numeric error of each layer is measured on samples: signal to
noise in decibels, as the median over channels and of the worst channel.  It is
the error of that layer alone, without what it inherits from those before it.

MACs are multiply-accumulates of convolutions, matrix products, recurrent layers
and attention.  Traffic is what an operation reads and writes if every value
moves once.  Live memory is all that exists while the operation runs, if every
value is kept until its last use and nothing is fused.  Operations per byte tell
what limits an operation: few mean memory, many mean arithmetic.

Operations without a rule are named and counted, never taken as 0.  The exit
status is 0, or 2 if the model could not be explained.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from nnpipe.core.arguments import Kind
from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import ConfigError
from nnpipe.core.runtime import Runtime
from nnpipe.modelwrappers.files.mimic import Mimic
from nnpipe.scenarios._cli.command import execute, parse
from nnpipe.scenarios._cli.option_types import input_shape, output_file
from nnpipe.workflows.explanation.explain import explain
from nnpipe.workflows.explanation.reasons import Speedup
from nnpipe.workflows.roofline.roofline import find_kept_ceilings, read_ceilings


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``nnpipe explain MODEL ...``."""
    return execute(_explain, argv, "explain")


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, metavar="MODEL", help="the model file")
    parser.add_argument(
        "--shape",
        nargs="+",
        type=input_shape,
        default=[],
        metavar="INPUT=N,N,...",
        help="the shape of an input (default: the model's, with the length 1 for each free axis)",
    )
    parser.add_argument(
        "--runtime",
        metavar="CLASS",
        help="run MODEL and take the time of each layer (default: measure nothing)",
    )
    parser.add_argument(
        "--runs",
        type=Kind(int, minimum=2),
        default=30,
        metavar="N",
        help="the number of runs to time (default: 30)",
    )
    parser.add_argument(
        "--beside",
        metavar="CLASS",
        help="with --runtime, also run MODEL in this runtime, and show both layer by layer",
    )
    parser.add_argument(
        "--if",
        nargs="+",
        dest="assumptions",
        default=[],
        metavar="PATTERN=FACTOR",
        help=(
            "with --runtime, also tell what a run would take if such operations or kinds were "
            "faster: 'Conv*=2x'"
        ),
    )
    parser.add_argument(
        "--against",
        type=Path,
        metavar="SOURCE",
        help="also compare each layer with this model, from which MODEL was made",
    )
    parser.add_argument(
        "--dataset", metavar="CLASS", help="the data for --against; its test split is used"
    )
    parser.add_argument(
        "--samples",
        type=Kind(int, minimum=1),
        default=64,
        metavar="N",
        help="samples to compare on (default: 64)",
    )
    parser.add_argument(
        "--breakdown",
        choices=("kind",),
        help="show only the sums: by kind of operation, as convolution or softmax",
    )
    parser.add_argument(
        "--memory",
        action="store_true",
        help="with --runtime, also measure the memory that it takes, in a process of its own",
    )
    parser.add_argument(
        "--ceilings",
        type=Path,
        metavar="FILE.json",
        help="what the machine can do (default: what nnpipe roofline has kept for this one)",
    )
    parser.add_argument(
        "--pictures",
        type=Path,
        metavar="FOLDER",
        help="also draw the memory by operation, the time by kind, and the roofline, here",
    )
    parser.add_argument(
        "--mimic",
        type=output_file,
        metavar="OUT.onnx",
        help=(
            "also write a network that costs as much and has random weights and other names here, "
            "to be passed on"
        ),
    )
    parser.add_argument(
        "--csv",
        type=output_file,
        metavar="OUT.csv",
        help="also write a row for each operation here",
    )
    parser.add_argument(
        "--json", type=output_file, metavar="OUT.json", help="also write all figures here"
    )


def _explain(argv: Sequence[str] | None) -> None:
    named = (("--runtime", Runtime), ("--beside", Runtime), ("--dataset", Dataset))
    parsed = parse(argv, "explain", __doc__ or "", (), _add_options, named_by=named)
    options = parsed.options
    runtime = cast(Runtime, parsed.make("--runtime")) if parsed.classes["--runtime"] else None
    for text in options.assumptions:
        Speedup.parse(text)  # before anything slow
    if options.assumptions and runtime is None:
        raise ConfigError("--if needs the times of a runtime: name one with --runtime")
    if (options.against is None) != (options.dataset is None):
        raise ConfigError("--against SOURCE and --dataset CLASS go together")
    if runtime is None and (options.memory or options.ceilings):
        raise ConfigError("--memory and --ceilings need a runtime: name one with --runtime")
    beside = cast(Runtime, parsed.make("--beside")) if parsed.classes["--beside"] else None
    if runtime is None and beside is not None:
        raise ConfigError("--beside needs a first runtime: name one with --runtime")
    known = None
    if runtime is not None:
        known = (
            read_ceilings(options.ceilings)
            if options.ceilings is not None
            else find_kept_ceilings(runtime)
        )
    found = explain(
        options.model,
        shapes=dict(options.shape),
        data=cast(Dataset, parsed.make("--dataset")) if parsed.classes["--dataset"] else None,
        runtime=runtime,
        runs=options.runs,
        ceilings=known,
        memory=options.memory,
        against=options.against,
        samples=options.samples,
    )
    predicted = found.what_if(*options.assumptions) if options.assumptions else ()
    found.show(breakdown=options.breakdown is not None)
    for each in predicted:
        print(each)
    if beside is not None:
        other = explain(
            options.model, shapes=dict(options.shape), runtime=beside, runs=options.runs
        )
        print(f"\n{found.format_layer_comparison(other)}")
    if runtime is not None and known is None:
        print("share of the roof: not known; nnpipe roofline measures what this machine can do")
    for path in found.save_pictures(options.pictures) if options.pictures is not None else ():
        print(f"drawn: {path}")
    if options.mimic is not None:
        shapes = tuple(f"{name}={','.join(map(str, shape))}" for name, shape in options.shape)
        with Mimic(original=options.model, original_shapes=shapes).open() as live:
            live.export(options.mimic, "onnx")
    if options.csv is not None:
        found.save_csv(options.csv)
    if options.json is not None:
        found.save_json(options.json)


if __name__ == "__main__":
    sys.exit(main())
