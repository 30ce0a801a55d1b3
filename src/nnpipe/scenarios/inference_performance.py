"""Measure speed and quality of a trained model in its own framework.

The result file has every call's time, and of each test sample what the metrics of
the data set's task need: accuracy, mAP, perplexity, ...  nnpipe render_report shows it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import cast

from nnpipe.core.dataset import Dataset
from nnpipe.core.model import ModelWrapper
from nnpipe.measuring.load_options import LoadOptions
from nnpipe.measuring.measure_options import MeasureOptions
from nnpipe.scenarios._cli.command import Role, add_model_path, execute, parse
from nnpipe.scenarios._cli.option_types import output_file
from nnpipe.scenarios._cli.recording import (
    add_recording_options,
    check_database,
    record_measurement,
)
from nnpipe.workflows.candidates.model_files import find_file_wrapper, set_model_path, with_weights
from nnpipe.workflows.candidates.model_process import LimitOptions
from nnpipe.workflows.measurement.measure import measure

ROLES = (
    Role(
        "WRAPPER",
        ModelWrapper,
        "a model file, or the dotted path or name of a ModelWrapper",
        of_file=find_file_wrapper,
    ),
    Role("DATASET", Dataset, "the data: dotted path or name of a Dataset; its test split is used"),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``nnpipe inference_performance WRAPPER DATASET OUT.json --model-path PATH ...``."""
    return execute(_measure, argv, "inference_performance")


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "output", type=output_file, metavar="OUT.json", help="the result file to write"
    )
    add_model_path(parser, "the trained weights, where WRAPPER is a class", required=False)
    parser.add_argument("--title", default="", help="what to call the candidate in reports")
    add_recording_options(parser)


def _measure(argv: Sequence[str] | None) -> None:
    parsed = parse(
        argv,
        "inference_performance",
        __doc__ or "",
        ROLES,
        _add_options,
        fixed=(MeasureOptions, LoadOptions, LimitOptions),
    )
    options = parsed.options
    set_model_path(options, "WRAPPER", f"the file with the weights of {options.wrapper}")
    check_database(options)
    wrapper = cast(ModelWrapper, parsed.make("WRAPPER"))
    dataset = cast(Dataset, parsed.make("DATASET"))
    found = measure(
        with_weights(wrapper, options.model_path),
        data=dataset,
        options=MeasureOptions.from_argparse(options),
        load=LoadOptions.from_argparse(options),
        time_limit=LimitOptions.from_argparse(options).time_limit,
        output=options.output,
        title=options.title,
        command=parsed.command,
    )
    record_measurement(options, wrapper, dataset, found.run)
    print(f"\n{found}\n")
    print(f"result: {options.output}")


if __name__ == "__main__":
    sys.exit(main())
