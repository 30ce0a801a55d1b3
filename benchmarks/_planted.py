"""An ONNX model that is slower than it need be, by a share of each call's own time.

A call after which one spins leaves the next one quicker, by some tenths of a
percent on some processors: who spins for 2 % is slower by less.  :func:`spin_for`
finds out for how long one has to spin to be slower by a given share.
"""

from __future__ import annotations

from pathlib import Path
from time import perf_counter_ns
from typing import Any

import numpy as np

from nnpipe.core.arguments import argument
from nnpipe.core.session import InferenceSession
from nnpipe.modelwrappers.files.onnx import ONNXModel

_ROUNDS, _CALLS, _STEPS = 400, 40, 3


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

    def slowdown(self, share: float) -> float:
        """Give by which share calls take longer that spin for this one, than calls that do not, by turns."""
        ratios = []
        for _ in range(_ROUNDS):
            medians = []
            for self._share in (0.0, share):
                took = []
                for _ in range(_CALLS):
                    start = perf_counter_ns()
                    self._run()
                    took.append(perf_counter_ns() - start)
                medians.append(np.median(took))
            ratios.append(medians[1] / medians[0])
        return float(np.median(ratios)) - 1


def spin_for(model: Path, scale: float, slower: float) -> tuple[float, float]:
    """Give the share to spin for so that calls take longer by another, and by how much they then did.

    Parameters
    ----------
    model, scale
        As for :class:`PlantedModel`.
    slower
        By which share of a call's time.
    """
    session = PlantedModel(model_path=model, scale=scale).session()
    assert isinstance(session, _Slower)
    share = slower
    with session:
        random = np.random.default_rng(0)
        session.put({spec.name: random.random((1, *spec.shape[1:])).astype(spec.dtype) for spec in session.io.inputs})
        for _ in range(_STEPS):
            share += slower - session.slowdown(share)
        return share, session.slowdown(share)
