"""Compile a trained model, run it in a runtime, and measure speed and quality.

COMPILER may be several, joined by commas: each takes the result of the one
before.  "none" uses the exported model without a compiler.  The outputs are also
compared with those of the model in its own framework, on the same samples.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import cast

from nnpipe.core.arguments import Kind
from nnpipe.core.compiler import ModelCompiler
from nnpipe.core.dataset import Dataset
from nnpipe.core.model import ModelWrapper
from nnpipe.core.runtime import Runtime
from nnpipe.core.runtime_protocol import RemoteOptions
from nnpipe.measuring.load_options import LoadOptions
from nnpipe.measuring.measure_options import MeasureOptions
from nnpipe.scenarios._cli.command import Role, add_model_path, execute, parse
from nnpipe.scenarios._cli.device_options import PROTOCOL, add_protocol, create_deployment
from nnpipe.scenarios._cli.option_types import output_file
from nnpipe.scenarios._cli.recording import (
    add_recording_options,
    check_database,
    record_measurement,
)
from nnpipe.workflows.candidates.model_files import find_file_wrapper, set_model_path, with_weights
from nnpipe.workflows.candidates.model_process import LimitOptions
from nnpipe.workflows.measurement.measure import measure
from nnpipe.workflows.recipes import Recipe
from nnpipe.workflows.verification.compare_outputs import VerifyOptions

ROLES = (
    Role(
        "WRAPPER",
        ModelWrapper,
        "a model file, or the dotted path or name of a ModelWrapper",
        of_file=find_file_wrapper,
    ),
    Role(
        "COMPILER", ModelCompiler, "a ModelCompiler, several joined by commas, or none", chain=True
    ),
    Role("RUNTIME", Runtime, "what runs the result: dotted path or name of a Runtime"),
    Role("DATASET", Dataset, "the data: dotted path or name of a Dataset; its test split is used"),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``nnpipe inference_tester WRAPPER COMPILER RUNTIME DATASET OUT.json --model-path PATH
    ...``.
    """
    return execute(_test, argv, "inference_tester")


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "output", type=output_file, metavar="OUT.json", help="the result file to write"
    )
    add_model_path(parser, "the trained weights, where WRAPPER is a class", required=False)
    parser.add_argument(
        "--model-framework",
        default="any",
        metavar="FORMAT",
        help=(
            "format to export the model as before it is compiled (default: any that the compiler "
            "takes)"
        ),
    )
    parser.add_argument(
        "--compiled-model-path",
        type=output_file,
        metavar="PATH",
        help="where to keep the compiled model (default: beside OUT.json)",
    )
    parser.add_argument(
        "--calibration-samples",
        type=Kind(int, minimum=1),
        default=128,
        metavar="N",
        help="training samples that a quantiser observes (default: 128)",
    )
    add_protocol(parser)
    parser.add_argument("--title", default="", help="what to call the candidate in reports")
    add_recording_options(parser)


def _test(argv: Sequence[str] | None) -> None:
    parsed = parse(
        argv,
        "inference_tester",
        __doc__ or "",
        ROLES,
        _add_options,
        fixed=(MeasureOptions, LoadOptions, VerifyOptions, LimitOptions, RemoteOptions),
        named_by=[PROTOCOL],
    )
    options = parsed.options
    set_model_path(options, "WRAPPER", f"the file with the weights of {options.wrapper}")
    export = None if options.model_framework == "any" else options.model_framework
    compilers = cast("tuple[ModelCompiler, ...]", tuple(parsed.make_all("COMPILER")))
    way = Recipe(options.title, compilers, cast(Runtime, parsed.make("RUNTIME")), export)
    check_database(options)
    wrapper = cast(ModelWrapper, parsed.make("WRAPPER"))
    dataset = cast(Dataset, parsed.make("DATASET"))
    found = measure(
        with_weights(wrapper, options.model_path),
        data=dataset,
        way=way,
        calibration_samples=options.calibration_samples,
        options=MeasureOptions.from_argparse(options),
        load=LoadOptions.from_argparse(options),
        verify=VerifyOptions.from_argparse(options),
        deployment=create_deployment(parsed, reach=False),
        time_limit=LimitOptions.from_argparse(options).time_limit,
        output=options.output,
        compiled_path=options.compiled_model_path,
        command=parsed.command,
    )
    record_measurement(options, wrapper, dataset, found.run)
    print(f"\n{found}\n")
    assert found.artifact is not None
    print(f"compiled model: {found.artifact.path} ({found.artifact.size:,} bytes)")
    print(f"result: {options.output}")


if __name__ == "__main__":
    sys.exit(main())
