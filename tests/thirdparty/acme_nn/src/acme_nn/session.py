"""A loaded network, ready to run; the wrapper and the runtime share it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from acme_nn.network import forward
from nnpipe.core.quantization import dequantize_linear
from nnpipe.core.session import InferenceSession
from nnpipe.core.tensors import Batch, IOSpec


class AcmeSession(InferenceSession):
    """Runs a network; one thread uses it at a time."""

    def __init__(self, io: IOSpec, parameters: Mapping[str, np.ndarray]) -> None:
        self.io = io
        self._parameters = dict(parameters)
        self._features = self._scores = np.empty(0)

    def _put(self, batch: Batch) -> None:
        self._features = np.ascontiguousarray(batch["features"])

    def _run(self) -> None:
        features, spec = self._features, self.io.inputs[0]
        if spec.scale is not None:
            features = dequantize_linear(features, spec.scale, spec.zero_point)
        self._scores = forward(self._parameters, features)[1]

    def _get(self) -> dict[str, np.ndarray]:
        return {"scores": self._scores.astype(np.float32)}
