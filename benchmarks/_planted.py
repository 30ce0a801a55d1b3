"""An ONNX model that is slower than it need be, by a share of each call's own time."""

from __future__ import annotations

from time import perf_counter_ns
from typing import Any

from nnpipe.core.arguments import argument
from nnpipe.core.session import InferenceSession
from nnpipe.modelwrappers.files.onnx import ONNXModel


class PlantedModel(ONNXModel):
    """Runs on ONNX Runtime, and then spins for a share of the time that it took; also where that is none."""

    slower: float = argument(0.0, help="share of a call's time", minimum=0.0)

    def session(self) -> InferenceSession:
        """Open the model, and what makes it slower around it."""
        return _Slower(super().session(), self.slower)


class _Slower(InferenceSession):
    def __init__(self, straight: InferenceSession, share: float) -> None:
        self.io, self._straight, self._share = straight.io, straight, share

    def _put(self, batch: Any) -> None:
        self._straight._put(batch)

    def _run(self) -> None:
        start = perf_counter_ns()
        self._straight._run()
        end = perf_counter_ns()
        until = end + self._share * (end - start)
        while perf_counter_ns() < until:
            pass

    def _get(self) -> Any:
        return self._straight._get()
