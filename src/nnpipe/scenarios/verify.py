"""Compare the outputs of two models that should compute the same, on real samples.

SOURCE is a model file, or a wrapper's class with --model-path; ARTIFACT is a
model file.  Files that end in .onnx, .tflite, .keras, .h5 or .pt2, or that
nnpipe made, need no more; --source-runtime and --runtime choose their runtimes.
The source's preprocessing (--scale, --mean and so on) makes the samples, and
both models get the same ones.  Name SOURCE and ARTIFACT before options.

The verdict is "same" (only rounding), "close" (within the conversion's claims),
"changed on purpose" (pruned, clustered or fine-tuned weights) or "different".
Compilers write their claims beside the file; --claim gives those of other files.
If both models give access to weights and intermediate values, each tensor of
weights and each operation is compared with the source's, and those that differ
are named.  The exit status is 0 if the two agree ("changed on
purpose" counts like "close"), 1 if they do not, and 2 if they could not be
compared.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import cast, get_args

from nnpipe.analysis.agreement import Tolerances
from nnpipe.core.arguments import Kind
from nnpipe.core.artifact import Claim
from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import ConfigError
from nnpipe.core.files import write_text
from nnpipe.core.model import ModelWrapper
from nnpipe.core.runtime import Runtime
from nnpipe.scenarios._cli.command import Role, add_model_path, execute, parse
from nnpipe.scenarios._cli.option_types import output_file
from nnpipe.workflows.candidates.model_files import find_file_wrapper, set_model_path, with_weights
from nnpipe.workflows.candidates.model_process import LimitOptions
from nnpipe.workflows.verification.verify import verify

ROLES = (
    Role(
        "SOURCE",
        ModelWrapper,
        "a model file, or the dotted path or name of a ModelWrapper",
        of_file=find_file_wrapper,
    ),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``nnpipe verify SOURCE ARTIFACT --dataset CLASS ...``."""
    return execute(_verify, argv, "verify")


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "artifact", type=Path, metavar="ARTIFACT", help="the model file to compare with the source"
    )
    add_model_path(parser, "the source's file, where SOURCE is a class", required=False)
    parser.add_argument(
        "--dataset", required=True, metavar="CLASS", help="the data; its test split is used"
    )
    parser.add_argument(
        "--samples",
        type=Kind(int, minimum=1),
        default=64,
        metavar="N",
        help="samples to compare on (default: 64)",
    )
    parser.add_argument(
        "--runtime", metavar="CLASS", help="what runs ARTIFACT (default: what its format suggests)"
    )
    parser.add_argument(
        "--source-runtime", metavar="CLASS", help="what runs SOURCE (default: its own framework)"
    )
    parser.add_argument(
        "--match",
        nargs="+",
        default=[],
        metavar="SOURCE=OTHER",
        help="tensors that go together, where names differ and there is more than one",
    )
    parser.add_argument(
        "--artifact-axes",
        nargs="+",
        type=Kind(int, minimum=0),
        default=[],
        metavar="N",
        help=(
            "order of the source's axes in the artifact's inputs: 0 2 3 1 where only the latter "
            "has channels last"
        ),
    )
    parser.add_argument(
        "--claim",
        nargs="+",
        default=[],
        choices=get_args(Claim),
        metavar="CLAIM",
        help=f"what the conversion claims: {', '.join(get_args(Claim))} (default: what the "
        f"description beside ARTIFACT "
        "says, or else what its numbers show)",
    )
    parser.add_argument(
        "--at-least",
        choices=("same", "close"),
        default="close",
        help="the worst verdict that still counts as agreement (default: close)",
    )
    parser.add_argument(
        "--output", type=output_file, metavar="OUT.json", help="also write the figures here"
    )


def _verify(argv: Sequence[str] | None) -> int:
    named = (("--dataset", Dataset), ("--runtime", Runtime), ("--source-runtime", Runtime))
    parsed = parse(
        argv,
        "verify",
        __doc__ or "",
        ROLES,
        _add_options,
        fixed=(Tolerances, LimitOptions),
        named_by=named,
    )
    options = parsed.options
    match = dict(_parse_match(text) for text in options.match)
    set_model_path(options, "SOURCE", f"the file with the model or weights of {options.source}")
    runtime, source_runtime = (
        cast(Runtime, parsed.make(option)) if parsed.classes[option] else None
        for option in ("--runtime", "--source-runtime")
    )
    found = verify(
        with_weights(parsed.make("SOURCE"), options.model_path),
        options.artifact,
        data=cast(Dataset, parsed.make("--dataset")),
        samples=options.samples,
        source_runtime=source_runtime,
        runtime=runtime,
        match=match,
        artifact_axes=options.artifact_axes,
        claims=options.claim,
        tolerances=Tolerances.from_argparse(options),
        time_limit=LimitOptions.from_argparse(options).time_limit,
    )
    found.show()
    if options.output:
        write_text(options.output, json.dumps(found.to_json(), indent=2, allow_nan=False) + "\n")
        print(f"figures: {options.output}")
    return 0 if found.agrees(options.at_least) else 1


def _parse_match(text: str) -> tuple[str, str]:
    ours, equals, theirs = text.partition("=")
    if not (ours and equals and theirs):
        raise ConfigError(f"--match {text}: give SOURCE=OTHER, the names of two tensors")
    return ours, theirs


if __name__ == "__main__":
    sys.exit(main())
