"""Runtimes that compute wrong values in ways that vectors must find, and one that does not come
back.
"""

from __future__ import annotations

import ctypes
import time
from typing import Any

import numpy as np

from nnpipe.core.runtime import Runtime
from nnpipe.core.session import InferenceSession
from nnpipe.runtimes.onnxruntime import ONNXRuntime


class _Crooked(Runtime):
    accepts = ("onnx",)

    def io_of(self, path: Any) -> Any:
        return ONNXRuntime().io_of(path)

    def _load(self, artifact: Any) -> InferenceSession:
        return _Bent(ONNXRuntime().load(artifact), self)

    def bend(self, outputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        raise NotImplementedError


class _Bent(InferenceSession):
    def __init__(self, straight: InferenceSession, runtime: _Crooked) -> None:
        self.io, self.straight, self.runtime = straight.io, straight, runtime

    def _put(self, batch: Any) -> None:
        self.straight.put(batch)

    def _run(self) -> None:
        self.straight.run()

    def _get(self) -> dict[str, np.ndarray]:
        return self.runtime.bend(self.straight.get())


class Straight(_Crooked):
    """Gives what there is."""

    def bend(self, outputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return outputs


class Perturbing(_Crooked):
    """One element of each output is off."""

    def bend(self, outputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        for array in outputs.values():
            array.flat[-1] = array.flat[-1] + 0.01
        return outputs


class SwappingOutputs(_Crooked):
    """Outputs have each other's values."""

    def bend(self, outputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return dict(zip(outputs, reversed(list(outputs.values())), strict=True))


class GivingNaN(_Crooked):
    """An element of each output is no number."""

    def bend(self, outputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        for array in outputs.values():
            array.flat[0] = np.nan
        return outputs


class Widening(_Crooked):
    """Values are right, their type is not."""

    def bend(self, outputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {name: array.astype(np.float64) for name, array in outputs.items()}


class Flattening(_Crooked):
    """Values are right, their shape is not."""

    def bend(self, outputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {name: array.ravel() for name, array in outputs.items()}


class Crashing(_Crooked):
    """Takes its process along."""

    def bend(self, outputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        ctypes.string_at(0)
        return outputs


class Hanging(_Crooked):
    """Never ends."""

    def bend(self, outputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        time.sleep(600)
        return outputs


class Defective(_Crooked):
    """Fails in a way that nobody foresaw."""

    def bend(self, outputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        raise KeyError("a defect")
