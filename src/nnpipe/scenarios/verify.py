"""Compare the outputs of two models that should compute the same, on real samples.

SOURCE is a model file, or a wrapper's class with --model-path; ARTIFACT is a
model file.  Files that end in .onnx, .tflite, .keras, .h5 or .pt2, or that
nnpipe made, need no more; --source-runtime and --runtime choose what runs
them.  What stands before the source (--scale, --mean and so on) makes the
samples, and both get the same ones.  Name SOURCE and ARTIFACT before options.

The verdict is "same" (rounding and nothing else), "close" (what the
conversion claims, and no more), "changed on purpose" (pruned, clustered or
fine-tuned weights) or "different".  What the conversion claims, its compilers
have written beside the file; --claim says it of files from elsewhere.  Where
both models show their weights and what they compute on the way, each tensor
of weights and each operation is held against the source's, and those that are
anything else are named.  The exit status is 0 if the two agree ("changed on
purpose" counts like "close"), 1 if they do not, and 2 if they could not be
compared.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast, get_args

from nnpipe.analysis.agreement import Agreement, Tolerances
from nnpipe.analysis.weight_changes import Weighing
from nnpipe.core.claims import Claim, checked
from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import ArtifactError, ConfigError, NNPipeError
from nnpipe.core.files import write_text
from nnpipe.core.kinds import Kind
from nnpipe.core.model import ModelWrapper
from nnpipe.core.runtime import Runtime
from nnpipe.scenarios._cli.command import Parsed, Role, add_model_path, execute, parse
from nnpipe.scenarios._cli.option_types import output_file
from nnpipe.workflows.candidates.model_files import (
    format_of,
    settle_model_path,
    wrapper_of_file,
)
from nnpipe.workflows.candidates.source import LimitOptions, Source
from nnpipe.workflows.candidates.spec import CandidateSpec
from nnpipe.workflows.candidates.stages import prepared
from nnpipe.workflows.isolation.subprocess_worker import Worker
from nnpipe.workflows.verification.first_difference import Divergence, judged
from nnpipe.workflows.verification.subprocess_tasks import TASKS

ROLES = (
    Role("SOURCE", ModelWrapper, "a model file, or the dotted path or name of a ModelWrapper", of_file=wrapper_of_file),
)
_RANK = {"same": 2, "close": 1, "changed on purpose": 1, "different": 0}


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``nnpipe verify SOURCE ARTIFACT --dataset CLASS ...``."""
    return execute(_verify, argv, "verify")


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("artifact", type=Path, metavar="ARTIFACT", help="the model file to hold against the source")
    add_model_path(parser, "the source's file, where SOURCE is a class", required=False)
    parser.add_argument("--dataset", required=True, metavar="CLASS", help="the data; its test split is used")
    parser.add_argument(
        "--samples", type=Kind(int, minimum=1), default=64, metavar="N", help="samples to compare on (default: 64)"
    )
    parser.add_argument("--runtime", metavar="CLASS", help="what runs ARTIFACT (default: what its format suggests)")
    parser.add_argument("--source-runtime", metavar="CLASS", help="what runs SOURCE (default: its own framework)")
    parser.add_argument(
        "--match", nargs="+", default=[], metavar="SOURCE=OTHER",
        help="tensors that go together, where names differ and there is more than one",
    )  # fmt: skip
    parser.add_argument(
        "--artifact-axes", nargs="+", type=Kind(int, minimum=0), default=[], metavar="N",
        help="order of the source's axes in the artifact's inputs: 0 2 3 1 where only the latter has channels last",
    )  # fmt: skip
    parser.add_argument(
        "--claim", nargs="+", default=[], choices=get_args(Claim), metavar="CLAIM",
        help=f"what the conversion claims: {', '.join(get_args(Claim))} (default: what the description beside ARTIFACT "
        "says, or else what its numbers show)",
    )  # fmt: skip
    parser.add_argument(
        "--at-least", choices=("same", "close"), default="close",
        help="the worst verdict that still counts as agreement (default: close)",
    )  # fmt: skip
    parser.add_argument("--output", type=output_file, metavar="OUT.json", help="also write the figures here")


@dataclass(frozen=True)
class _Request:
    """A command line, made into what is compared with what."""

    wrapper: ModelWrapper
    path: Path
    source_runtime: Runtime | None
    dataset: Dataset
    artifact: Path
    runtime: Runtime | None
    pairs: Mapping[str, str]
    claims: tuple[Claim, ...]


def _verify(argv: Sequence[str] | None) -> int:
    named = (("--dataset", Dataset), ("--runtime", Runtime), ("--source-runtime", Runtime))
    parsed = parse(argv, "verify", __doc__ or "", ROLES, _options, fixed=(Tolerances, LimitOptions), named_by=named)
    options, tolerances = parsed.options, Tolerances.from_argparse(parsed.options)
    request, limit = _request(parsed), LimitOptions.from_argparse(parsed.options).time_limit
    with tempfile.TemporaryDirectory(prefix="nnpipe-") as folder:
        reference = Path(folder, "reference.npz")
        with Source(request.wrapper, request.dataset, request.path, judged=False) as source:
            source.run(options.samples, reference, limit, request.source_runtime)
        binding = {"pairs": dict(request.pairs), "axes": list(options.artifact_axes)}
        found = _held_against(reference, request, binding, tolerances, limit)
        inside = _inside(reference, request, found, limit)
    del found["binding"]
    where = (
        inside["divergence"] if isinstance(inside["divergence"], str) else Divergence.from_json(inside["divergence"])
    )
    weights = inside["weights"] if isinstance(inside["weights"], str) else Weighing.from_json(inside["weights"])
    found |= judged(found, None if isinstance(where, str) else where, None if isinstance(weights, str) else weights)
    _show(request, found | inside, where, weights)
    found |= inside
    if options.output:
        write_text(options.output, json.dumps(found, indent=2, allow_nan=False) + "\n")
        print(f"figures: {options.output}")
    return 0 if _RANK[found["verdict"]] >= _RANK[options.at_least] else 1


def _request(parsed: Parsed) -> _Request:
    options = parsed.options
    pairs = dict(_pair(text) for text in options.match)
    settle_model_path(options, "SOURCE", f"the file with the model or weights of {options.source}")
    for path in (options.model_path, options.artifact):  # said before anything slow begins
        if not path.is_file():
            raise ArtifactError(f"{path}: no such model file")
    format_of(options.artifact)
    made: dict[str, Runtime | None] = {}
    for option in ("--runtime", "--source-runtime"):
        made[option] = cast(Runtime, parsed.make(option)) if parsed.classes[option] else None
    for runtime in made.values():
        if runtime is not None:
            runtime.check_installed()
    return _Request(
        wrapper=cast(ModelWrapper, parsed.make("SOURCE")),
        path=options.model_path,
        source_runtime=made["--source-runtime"],
        dataset=prepared(cast(Dataset, parsed.make("--dataset"))),
        artifact=options.artifact,
        runtime=made["--runtime"],
        pairs=pairs,
        claims=checked(options.claim) if options.claim else (),
    )


def _pair(text: str) -> tuple[str, str]:
    ours, equals, theirs = text.partition("=")
    if not (ours and equals and theirs):
        raise ConfigError(f"--match {text}: give SOURCE=OTHER, the names of two tensors")
    return ours, theirs


def _held_against(
    reference: Path, request: _Request, binding: Mapping[str, Any], tolerances: Tolerances, seconds: float
) -> dict[str, Any]:
    """Run the artifact on the same samples, in a process of its own."""
    task = {
        "reference": str(reference),
        "artifact": str(request.artifact),
        "runtime": request.runtime.describe() if request.runtime else None,
        "tolerances": tolerances.to_json(),
        "source": str(request.path),
        "claims": list(request.claims),
        **binding,
    }
    try:
        with Worker(f"{TASKS}:run_artifact") as worker:
            found: dict[str, Any] = worker.attempt(f"running {request.artifact}", task, seconds)
    except NNPipeError as error:
        if str(request.artifact) in str(error):
            raise
        raise type(error)(f"{request.artifact}: {error}") from None
    return found


def _inside(reference: Path, request: _Request, found: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    """Hold the two against each other weight by weight and operation by operation, or say why that cannot be done."""
    task = {
        "reference": str(reference),
        "candidate": CandidateSpec(
            request.path.name, request.wrapper, request.path, dataset=request.dataset, judged=False
        ).to_json(),
        "artifact": str(request.artifact),
        "binding": found["binding"],
        "sample": found["worst_sample"],
        "source": str(request.path),
        "claims": found["claims"],
        "told": list(request.claims),
        "verdict": found["verdict"],
        "runtime": request.runtime.describe() if request.runtime else None,
    }
    try:
        with Worker(f"{TASKS}:look_inside") as worker:
            inside: dict[str, Any] = worker.attempt("showing them", task, seconds)
            return inside
    except NNPipeError as error:  # the verdict stands without it
        return {"divergence": str(error), "weights": str(error)}


def _show(request: _Request, found: Mapping[str, Any], where: Divergence | str, weights: Weighing | str) -> None:
    runtime = type(request.source_runtime or request.wrapper).__name__
    print(f"source:   {request.path} ({runtime})")
    print(f"artifact: {request.artifact} ({found['run_by']})")
    agreement = Agreement.from_json(found)
    print(f"claims:   {', '.join(found['claims'])} ({found['claims_by']})")
    print(f"compared: {agreement.samples} test samples of {type(request.dataset).__name__}\n")
    width = max(6, *(len(tensor.name) for tensor in agreement.tensors))
    print(
        f"{'output':<{width}}  {'error':<8}"
        + "".join(f"{head:>11}" for head in ("mean", "max", "50 %", "90 %", "99 %"))
    )
    for tensor in agreement.tensors:
        for kind in ("absolute", "relative"):
            figures = [getattr(tensor, f"mean_{kind}"), getattr(tensor, f"max_{kind}")]
            figures += getattr(tensor, f"{kind}_quantiles").values()
            name = tensor.name if kind == "absolute" else ""
            print(f"{name:<{width}}  {kind:<8}" + "".join(f"{figure:>11.3g}" for figure in figures))
    print("(quantiles are of each sample's largest error)\n")
    if agreement.same_class is not None:
        low, high = found["class_agreement_interval"]
        print(
            f"same class: {agreement.same_class} of {agreement.samples} samples "
            f"(95 % interval {100 * low:.1f} to {100 * high:.1f} %)"
        )
    told = isinstance(where, Divergence) and (where.adopted or found["verdict"] != "changed on purpose")
    if isinstance(where, str):
        print(f"no intermediate values to compare: {where}")
    elif told or found["verdict"] == "different":
        print(where)
    if weights != where:
        print(weights if isinstance(weights, Weighing) else f"no weights to compare: {weights}")
    print(f"verdict: {found['verdict']} ({found['reason']})")


if __name__ == "__main__":
    sys.exit(main())
