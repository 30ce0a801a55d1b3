"""Cut a model that a chain fails on down to the few nodes that it still fails on, to report them.

MODEL is a model file, or a wrapper's class with --model-path; it is exported to
ONNX if it is not.  CHAIN is a way such as openvino-int8 (nnpipe.recipes() in Python
lists them), or compilers joined by commas with --runtime; "none" for no compiler.

The fault may be an error, a crash, a hang, or outputs that are not finite or
differ from those of the model in ONNX Runtime, as nnpipe verify judges them.
Parts of the graph are tried, each in a process of its own, and the smallest that
still shows the same fault is written to a folder: model.onnx, inputs.npz,
expected.npz, a script reproduce.py, and issue.md for the framework's makers.

Ctrl-C and --time-limit end the search early; the smallest part so far is written.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from nnpipe.analysis.agreement import Tolerances
from nnpipe.core.arguments import Kind
from nnpipe.core.compiler import ModelCompiler
from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import ConfigError
from nnpipe.core.model import ModelWrapper
from nnpipe.core.runtime import Runtime
from nnpipe.scenarios._cli.command import ParsedCommand, Role, add_model_path, execute, parse
from nnpipe.scenarios._cli.option_types import output_folder
from nnpipe.workflows.candidates.model_files import find_file_wrapper, set_model_path, with_weights
from nnpipe.workflows.isolation.signals import INTERRUPTED
from nnpipe.workflows.recipes import Recipe, recipes
from nnpipe.workflows.reduction.reduce import reduce

ROLES = (
    Role(
        "MODEL",
        ModelWrapper,
        "a model file, or the dotted path or name of a ModelWrapper",
        of_file=find_file_wrapper,
    ),
    Role(
        "CHAIN",
        ModelCompiler,
        f"a way ({', '.join(recipes()[1:])}), or ModelCompilers",
        chain=True,
        words=recipes()[1:],
    ),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``nnpipe reduce MODEL CHAIN [--dataset CLASS] [--output OUTDIR]``."""
    return execute(_reduce, argv, "reduce")


def _add_options(parser: argparse.ArgumentParser) -> None:
    add_model_path(parser, "the model's file, where MODEL is a class", required=False)
    parser.add_argument(
        "--dataset",
        metavar="CLASS",
        help="the data; its test split is used (default: random samples)",
    )
    parser.add_argument(
        "--runtime", metavar="CLASS", help="what runs the result, where CHAIN names compilers"
    )
    seconds, count = Kind(float, minimum=1), Kind(int, minimum=1)
    for flag, kind, default, unit, help in (
        ("--samples", count, 4, "N", "samples to run, which quantisers observe, too"),
        (
            "--hang-after",
            seconds,
            120.0,
            "S",
            "seconds after which the whole model is taken to hang",
        ),
        ("--time-limit", seconds, 600.0, "S", "seconds to search at most"),
    ):
        parser.add_argument(
            flag, type=kind, default=default, metavar=unit, help=f"{help} (default: {default:g})"
        )
    parser.add_argument(
        "--output",
        type=output_folder,
        default=Path("reduced"),
        metavar="OUTDIR",
        help="a new folder to write (default: reduced)",
    )


def _reduce(argv: Sequence[str] | None) -> int:
    named = (("--dataset", Dataset), ("--runtime", Runtime))
    parsed = parse(
        argv, "reduce", __doc__ or "", ROLES, _add_options, fixed=(Tolerances,), named_by=named
    )
    options = parsed.options
    set_model_path(options, "MODEL", f"the file with the model or weights of {options.model}")
    found = reduce(
        with_weights(parsed.make("MODEL"), options.model_path),
        _create_recipe(parsed),
        to=options.output,
        data=parsed.make("--dataset") if parsed.classes["--dataset"] else None,
        samples=options.samples,
        tolerances=Tolerances.from_argparse(options),
        hang_after=options.hang_after,
        time_limit=options.time_limit,
    )
    found.show()
    return INTERRUPTED if found.ended == "Ctrl-C" else 0


def _create_recipe(parsed: ParsedCommand) -> str | Recipe:
    named, runtime = str(parsed.options.chain), parsed.classes["--runtime"]
    if named in recipes():
        if runtime:
            raise ConfigError(
                f"--runtime goes with compilers; the way {named} has a runtime of its own"
            )
        return named
    if not runtime:
        raise ConfigError("--runtime is missing: what runs the result of the compilers")
    compilers = cast("list[ModelCompiler]", parsed.make_all("CHAIN"))
    return Recipe(named, tuple(compilers), cast(Runtime, parsed.make("--runtime")))


if __name__ == "__main__":
    sys.exit(main())
