"""Running what :class:`bricks.packer.BricksPacker` wrote."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from nnpipe.core.artifact import Artifact, verify_io
from nnpipe.core.errors import ArtifactError
from nnpipe.core.session import InferenceSession
from nnpipe.core.tensors import Batch, IOSpec
from nnpipe.formats.sealed import read_sealed
from nnpipe.runtimes import SealedRuntime


class BricksSession(InferenceSession):
    """Multiplies a batch with the weights."""

    def __init__(self, io: IOSpec, weights: np.ndarray) -> None:
        self.io = io
        self._weights = weights
        self._x = self._y = np.empty(0)

    def _put(self, batch: Batch) -> None:
        self._x = np.ascontiguousarray(batch[self.io.inputs[0].name])

    def _run(self) -> None:
        self._y = self._x @ self._weights

    def _get(self) -> dict[str, np.ndarray]:
        return {self.io.outputs[0].name: self._y.copy()}


class BricksRuntime(SealedRuntime):
    """Runs packed linear models."""

    accepts: ClassVar[tuple[str, ...]] = ("bricks",)

    def _load(self, artifact: Artifact) -> InferenceSession:
        file = read_sealed(artifact.path, "bricks")
        try:
            weights = np.frombuffer(file.content, "<f4").reshape(file.notes["shape"])
        except (ValueError, KeyError, TypeError) as error:
            raise ArtifactError(f"{artifact.path}: holds no packed weights: {error}") from None
        return BricksSession(verify_io(artifact, file.io), weights)
