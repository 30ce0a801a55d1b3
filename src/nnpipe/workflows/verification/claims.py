"""The claims of a conversion: given by the user, declared by the file's compilers, or inferred
from the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from nnpipe.core.artifact import Artifact, Claim, get_sidecar_path, normalize_claims
from nnpipe.core.compiler import ModelCompiler
from nnpipe.core.errors import NNPipeError
from nnpipe.core.files import compute_sha256
from nnpipe.core.live_model import LiveModel
from nnpipe.core.registry import find

_HALVES: dict[str, Claim] = {"float16": "float16", "bfloat16": "bfloat16"}
# What the attribute accuracy_level of ONNX Runtime's MatMulNBits lets activations be rounded to.
_ROUNDED: dict[int, Claim] = {2: "float16", 3: "bfloat16", 4: "int8-weights"}


def get_declared_claims(artifact: Artifact, source: Path | None = None) -> tuple[Claim, ...] | None:
    """Return the claims of the compilers between a source and an artifact; ``None`` if one
    compiler is not known.
    """
    origin = None if source is None or not source.is_file() else compute_sha256(source)
    words: list[Claim] = []
    for made in iter_lineage(artifact):
        if made.parent is None or made.sha256 == origin:
            break
        claims = made.claims or _get_class_claims(made)
        if not claims:
            return None
        words += claims
    return normalize_claims(words)


def iter_lineage(artifact: Artifact) -> Iterator[Artifact]:
    """Yield an artifact, the one that it was made from, and so on."""
    made: Artifact | None = artifact
    while made is not None:
        yield made
        made = made.parent


def _get_class_claims(artifact: Artifact) -> tuple[Claim, ...]:
    """Return the claims of the compiler's class, for older descriptions without recorded claims."""
    try:
        made_by = artifact.producer
        return (
            find(str(made_by["class"]), ModelCompiler)
            .from_json(dict(made_by["arguments"]))
            .claims()
        )
    except (NNPipeError, KeyError, TypeError):
        return ()


def read_artifact_description(path: Path) -> Artifact | None:
    """Return the description beside a file; ``None`` if there is no usable one."""
    try:
        return Artifact.read(path) if get_sidecar_path(path).is_file() else None
    except NNPipeError:
        return None


def infer_claims(model: LiveModel) -> tuple[Claim, ...]:
    """Return the claims that follow from the numbers in a file: quantised integers, half
    precision, or neither.
    """
    computed = infer_number_format(model)
    if computed in ("int8", "int8-weights"):
        return (computed,)
    try:
        graph = model.get_inference_graph()
        weights = model.get_weights()
    except NNPipeError:
        return ("float",)
    dtypes = {array.dtype.name for array in weights.values() if array.ndim > 1}
    scaled = any(
        name in graph.tensors and graph.tensors[name].scale is not None for name in weights
    )
    if dtypes & {"int8", "uint8"} and (
        scaled or any("dequantize" in each.kind.lower() for each in graph.operations)
    ):
        return ("int8-weights",)
    tensors = {spec.dtype for spec in graph.tensors.values()} | dtypes
    return next(((claim,) for dtype, claim in _HALVES.items() if dtype in tensors), ("float",))


def infer_number_format(model: LiveModel) -> Claim:
    """Return the number format in which a model computes: its results are only as exact, in any
    runtime.
    """
    try:
        graph = model.get_inference_graph()
    except NNPipeError:
        return "float"
    kinds = {operation.kind.lower() for operation in graph.operations}
    if any("dynamicquantize" in kind for kind in kinds):
        return "int8-weights"
    for operation in graph.operations:
        if (
            operation.kind == "com.microsoft.MatMulNBits"
            and "accuracy_level" in operation.native.attributes
        ):
            level = operation.native.attributes["accuracy_level"].value
            if level in _ROUNDED:
                return _ROUNDED[level]
    computed = [
        graph.tensors[name]
        for operation in graph.operations
        for name in operation.outputs
        if name in graph.tensors
    ]
    if any(spec.scale is not None for spec in computed) or any(
        "quantize" in kind and "dequantize" not in kind for kind in kinds
    ):
        return "int8"
    dtypes = {spec.dtype for spec in computed}
    return next((claim for dtype, claim in _HALVES.items() if dtype in dtypes), "float")
