"""The two parts of ``nnpipe verify`` that run models, each in a subprocess."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from nnpipe.analysis.agreement import Tolerances
from nnpipe.core.artifact import Claim, normalize_claims
from nnpipe.core.errors import NotSupported
from nnpipe.core.live_model import LiveModel
from nnpipe.core.registry import create_component
from nnpipe.core.runtime import Runtime
from nnpipe.core.session import InferenceSession
from nnpipe.modelwrappers.files.file_formats import find_wrapper, format_of
from nnpipe.workflows.candidates.model_files import find_runtime, read_artifact
from nnpipe.workflows.candidates.spec import CandidateSpec
from nnpipe.workflows.verification.binding import Binding, match_tensors
from nnpipe.workflows.verification.claims import (
    get_declared_claims,
    infer_claims,
    iter_lineage,
    read_artifact_description,
)
from nnpipe.workflows.verification.compare_inside import compare_inside
from nnpipe.workflows.verification.compare_outputs import Reference, verify_outputs

TASKS = __name__
"""The module of these functions, for the subprocess."""


def run_artifact(task: Mapping[str, Any]) -> dict[str, Any]:
    """Run an artifact on its source's inputs, and compare the outputs with the source's.

    Parameters
    ----------
    task
        ``reference``, ``artifact`` and ``source`` are paths; ``runtime`` is a description or
        ``None``; ``tolerances``; ``claims`` of the user; ``pairs`` and ``axes`` of the
        :class:`Binding`.

    Returns
    -------
    dict
        The result of :func:`verify_outputs`, with the origin of the claims, the binding, and the
        name of the runtime.
    """
    reference = Reference.read(Path(task["reference"]))
    path = Path(task["artifact"])
    session, what = _open_artifact(path, task["runtime"])
    with session:
        binding = match_tensors(reference.io, session.io, task["pairs"], tuple(task["axes"]))
        claims, told = _choose_claims(path, Path(task["source"]), task["claims"])
        if not task["claims"] and (own := reference.with_own_numbers(claims)) != claims:
            claims, told = own, f"{told}; the source computes with {reference.numbers}"
        found = verify_outputs(
            session, reference, Tolerances.from_json(task["tolerances"]), binding, claims
        )
    bound_by = {"names": dict(binding.names), "axes": list(binding.axes)}
    return {**found, "claims_by": told, "binding": bound_by, "artifact": str(path), "run_by": what}


def _choose_claims(path: Path, source: Path, given: Sequence[str]) -> tuple[tuple[Claim, ...], str]:
    """Return the claims of a conversion, and their origin."""
    if given:
        return normalize_claims(given), "as told"
    artifact = read_artifact_description(path)
    declared = (
        None
        if artifact is None or artifact.parent is None
        else get_declared_claims(artifact, source)
    )
    if declared is not None:
        return declared, "as its compilers declare"
    model = _open_file(path, format_of(path))
    if model is None:
        return ("float",), "nothing says what it is; --claim does"
    return infer_claims(model), "as its numbers show; --claim says otherwise"


def _open_artifact(path: Path, described: Mapping[str, Any] | None) -> tuple[InferenceSession, str]:
    format = format_of(path)
    if described is None:
        model = _open_file(path, format)
        if model is not None:
            return model.session(), type(model.wrapper).__name__
        runtime = find_runtime(path, format)
    else:
        runtime = create_component(described, Runtime)
    return runtime.load(read_artifact(path, format, runtime)), type(runtime).__name__


def _open_file(path: Path, format: str) -> LiveModel | None:
    cls = find_wrapper(format)
    if cls is None or cls.missing():
        return None
    return cls.from_json({"model_path": str(path)}).open(path)


def look_inside(task: Mapping[str, Any]) -> dict[str, Any]:
    """Compare two models weight by weight and operation by operation.

    Parameters
    ----------
    task
        ``reference``, ``artifact`` and ``source`` are paths; ``candidate`` is the source;
        ``binding``; ``sample`` is the number of the worst; ``claims`` of the conversion, and those
        ``told`` by the user.

    Returns
    -------
    dict
        ``divergence`` and ``weights``, as :meth:`Divergence.to_json` and :meth:`Weighing.to_json`
        return them, or a text with the reason why there is no comparison.
    """
    path, candidate = Path(task["artifact"]), CandidateSpec.from_json(task["candidate"])
    if not candidate.wrapper.offers("get_intermediates"):
        raise NotSupported(f"{type(candidate.wrapper).__name__} does not show intermediate values")
    source = candidate.load_model()
    reference = Reference.read(Path(task["reference"]))
    binding = Binding(task["binding"]["names"], tuple(task["binding"]["axes"]))
    order = sorted(range(len(reference.inputs)), key=lambda number: number != task["sample"])
    samples = [reference.inputs[number] for number in order]
    other, claims, shown = _open_inspectable(path, reference, task)
    where, weights = compare_inside(source, other, binding, samples, claims)
    return {
        "weights": weights if isinstance(weights, str) else weights.to_json(),
        "divergence": where if isinstance(where, str) else replace(where, shown=shown).to_json(),
    }


def _open_inspectable(
    path: Path, reference: Reference, task: Mapping[str, Any]
) -> tuple[LiveModel, tuple[Claim, ...], str]:
    """Open the artifact, or the nearest file that it was made from whose values can be
    inspected.
    """
    artifact, source = read_artifact_description(path), Path(task["source"])
    for made in [None] if artifact is None else iter_lineage(artifact):
        here = path if made in (None, artifact) else made.path
        other = _open_file(here, format_of(here) if made in (None, artifact) else made.format)
        if other is None or not other.wrapper.offers("get_intermediates"):
            continue
        if here == path:
            return other, normalize_claims(task["claims"]), ""
        assert made is not None
        made.verify()
        claims = normalize_claims(
            task["told"] or reference.with_own_numbers(get_declared_claims(made, source) or ())
        )
        return other, claims, f"{here}, which it was made from"
    raise NotSupported(
        f"{path} shows neither weights nor values, nor is a file here that it was made from and "
        f"that does: its outputs "
        "were compared, and no tensor can be named"
    )
