"""Check what a description says about a model file against the file itself."""

from __future__ import annotations

from nnpipe.core.artifact import Artifact
from nnpipe.core.errors import ArtifactError
from nnpipe.core.tensors import IOSpec, TensorSpec, show_shape


def agreed_io(artifact: Artifact, found: IOSpec) -> IOSpec:
    """Return the artifact's inputs and outputs after checking them against the file.

    The description may fix what the file leaves open (a free axis, a
    quantisation that the format does not record).  It may not contradict the file.

    Parameters
    ----------
    artifact
        The model and its description.
    found
        What the file itself states.

    Returns
    -------
    IOSpec
        ``artifact.io``, with the file's quantisation where the description has none.

    Raises
    ------
    ArtifactError
        If the two contradict each other; the message names the file and the first tensor that differs.
    """
    sides = []
    for side, described, stated in (
        ("inputs", artifact.io.inputs, found.inputs),
        ("outputs", artifact.io.outputs, found.outputs),
    ):
        by_name = {spec.name: spec for spec in stated}
        if by_name.keys() != {spec.name for spec in described}:
            raise ArtifactError(
                f"{artifact.path}: the file has the {side} {_names(stated)}, its description says {_names(described)}"
            )
        sides.append(tuple(_agreed(artifact, spec, by_name[spec.name]) for spec in described))
    return IOSpec(*sides)


def _agreed(artifact: Artifact, described: TensorSpec, stated: TensorSpec) -> TensorSpec:
    start = f"{artifact.path}: tensor {described.name!r}"
    if described.dtype != stated.dtype:
        raise ArtifactError(f"{start} has {stated.dtype} elements, its description says {described.dtype}")
    same_rank = len(described.shape) == len(stated.shape)
    if not same_rank or any(
        have is not None and have != want for have, want in zip(stated.shape, described.shape, strict=True)
    ):
        raise ArtifactError(
            f"{start} has shape {show_shape(stated.shape)}, its description says {show_shape(described.shape)}"
        )
    if stated.scale is None:
        return described
    if described.scale is not None and _quantisation(described) != _quantisation(stated):
        raise ArtifactError(
            f"{start} has scale {stated.scale} and zero point {stated.zero_point}, "
            f"its description says {described.scale} and {described.zero_point}"
        )
    # The file's own numbers are the ones it computes with.
    return TensorSpec(described.name, described.shape, described.dtype, stated.scale, stated.zero_point, stated.axis)


def _quantisation(spec: TensorSpec) -> tuple[object, ...]:
    return spec.scale, spec.zero_point, spec.axis


def _names(specs: tuple[TensorSpec, ...]) -> str:
    return ", ".join(spec.name for spec in specs) or "(none)"
