"""Compile a trained model, run it in a runtime, and measure speed and quality.

COMPILER may be several, joined by commas: each takes what the one before it
made.  "none" leaves the model as its wrapper exports it.  What comes out is
also held against the model as it is in its own framework, on the same samples.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import cast

from nnpipe.core.batching import for_batch
from nnpipe.core.compiler import ModelCompiler
from nnpipe.core.dataset import Dataset
from nnpipe.core.deployment import RemoteOptions
from nnpipe.core.kinds import Kind
from nnpipe.core.model import ModelWrapper
from nnpipe.core.runtime import Runtime
from nnpipe.measure.benchmark import MeasureOptions
from nnpipe.measure.load_options import LoadOptions, call_size
from nnpipe.scenarios._cli.command import Role, add_model_path, execute, parse
from nnpipe.scenarios._cli.option_types import output_file
from nnpipe.scenarios._cli.protocol_options import PROTOCOL, add_protocol, deployment_of
from nnpipe.scenarios._cli.reporting import tell_figures
from nnpipe.workflows.candidates.measure import measure_apart, source_outputs
from nnpipe.workflows.candidates.model_files import settle_model_path, wrapper_of_file
from nnpipe.workflows.candidates.source import LimitOptions, Source
from nnpipe.workflows.candidates.spec import CandidateSpec
from nnpipe.workflows.candidates.stages import check_plan, prepared, suffix
from nnpipe.workflows.verification.compare_outputs import VerifyOptions

ROLES = (
    Role(
        "WRAPPER", ModelWrapper, "a model file, or the dotted path or name of a ModelWrapper", of_file=wrapper_of_file
    ),
    Role("COMPILER", ModelCompiler, "a ModelCompiler, several joined by commas, or none", chain=True),
    Role("RUNTIME", Runtime, "what runs the result: dotted path or name of a Runtime"),
    Role("DATASET", Dataset, "the data: dotted path or name of a Dataset; its test split is used"),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``nnpipe inference_tester WRAPPER COMPILER RUNTIME DATASET OUT.json --model-path PATH ...``."""
    return execute(_test, argv, "inference_tester")


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("output", type=output_file, metavar="OUT.json", help="the result file to write")
    add_model_path(parser, "the trained weights, where WRAPPER is a class", required=False)
    parser.add_argument(
        "--model-framework", default="any", metavar="FORMAT",
        help="format to export the model as before it is compiled (default: any that the compiler takes)",
    )  # fmt: skip
    parser.add_argument(
        "--compiled-model-path", type=output_file, metavar="PATH",
        help="where to keep the compiled model (default: beside OUT.json)",
    )  # fmt: skip
    parser.add_argument(
        "--calibration-samples", type=Kind(int, minimum=1), default=128, metavar="N",
        help="training samples that a quantiser observes (default: 128)",
    )  # fmt: skip
    add_protocol(parser)
    parser.add_argument("--title", default="", help="what to call the candidate in reports")


def _test(argv: Sequence[str] | None) -> None:
    parsed = parse(
        argv, "inference_tester", __doc__ or "", ROLES, _options,
        fixed=(MeasureOptions, LoadOptions, VerifyOptions, LimitOptions, RemoteOptions),
        named_by=[PROTOCOL],
    )  # fmt: skip
    options = parsed.options
    settle_model_path(options, "WRAPPER", f"the file with the weights of {options.wrapper}")
    load = LoadOptions.from_argparse(options)
    deployment = deployment_of(parsed)
    export = None if options.model_framework == "any" else options.model_framework
    # Whatever can be known to fail is said before anything slow begins.
    compilers = cast("list[ModelCompiler]", parsed.make_all("COMPILER"))
    runtime = cast(Runtime, parsed.make("RUNTIME"))
    wrapper = cast(ModelWrapper, parsed.make("WRAPPER"))
    way = check_plan(wrapper, compilers, runtime, export, remote=deployment is not None)
    dataset = prepared(cast(Dataset, parsed.make("DATASET")))
    destination = options.compiled_model_path or options.output.with_suffix(suffix(way, compilers))
    measure, verify = MeasureOptions.from_argparse(options), VerifyOptions.from_argparse(options)
    measure.check_with(load)
    size = call_size(load, None, measure.inference_batch_size)
    compilers, runtime = [for_batch(compiler, size) for compiler in compilers], for_batch(runtime, size)
    limit = LimitOptions.from_argparse(options).time_limit
    with Source(wrapper, dataset, options.model_path) as source:
        artifact = source.compile(way, compilers, destination, options.calibration_samples, limit)
        title = options.title or " + ".join(compiler.variant() for compiler in compilers) or way.final
        candidate = CandidateSpec(title, wrapper, options.model_path, tuple(compilers), runtime, artifact, deployment)
        with source_outputs(source, verify, limit) as verification:
            source.close()  # its memory may be needed
            run = measure_apart(candidate, dataset, measure, parsed.command, options.output, verification, limit, load)
    tell_figures(run)
    print(f"compiled model: {artifact.path} ({artifact.size:,} bytes)")
    print(f"result: {options.output}")


if __name__ == "__main__":
    sys.exit(main())
