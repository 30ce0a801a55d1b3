"""A runtime: runs networks from both formats."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from acme_nn.files import read_arrays
from acme_nn.network import check_layers
from acme_nn.session import AcmeSession
from nnpipe.core.arguments import argument
from nnpipe.core.artifact import Artifact
from nnpipe.core.errors import ArtifactError
from nnpipe.core.quantization import dequantize_linear
from nnpipe.core.runtime import Runtime
from nnpipe.core.tensors import IOSpec, TensorSpec


class AcmeRuntime(Runtime):
    """Runs networks of acme-nn, packed or not."""

    accepts: ClassVar[tuple[str, ...]] = ("acme-npz", "acme-packed")

    precision: Literal["float32", "float64"] = argument("float32", help="numbers to compute with")

    def _load(self, artifact: Artifact) -> AcmeSession:
        arrays = read_arrays(artifact.path)
        try:
            io, parameters = _unpacked(arrays)
        except (ValueError, TypeError) as error:
            raise ArtifactError(f"{artifact.path}: no acme model: {error}") from None
        if io != artifact.io:
            raise ArtifactError(
                f"{artifact.path}: holds another model than the description beside it says"
            )
        return AcmeSession(
            io, {name: array.astype(self.precision) for name, array in parameters.items()}
        )


def _unpacked(arrays: dict[str, np.ndarray]) -> tuple[IOSpec, dict[str, np.ndarray]]:
    """Return what a file takes and gives, and its weights as real numbers; ``ValueError`` where
    it holds neither.
    """
    rest = dict(arrays)
    scale, zero = rest.pop("input.scale", None), rest.pop("input.zero_point", None)
    for name in [name for name in rest if name + ".scale" in rest]:
        rest[name] = dequantize_linear(rest[name], rest.pop(name + ".scale"), axis=1)
    features, classes = check_layers(rest)
    if scale is None or zero is None:
        inputs = TensorSpec("features", (None, features), "float32")
    else:
        inputs = TensorSpec("features", (None, features), "int8", float(scale), int(zero))
    return IOSpec((inputs,), (TensorSpec("scores", (None, classes), "float32"),)), rest
