"""An ONNX model that takes longer than it need, by a share of each call's own time.

It spins after the call.  That leaves the next call a little quicker, by some
tenths of a percent on some processors, however long it spins: who is compared
with whom must therefore both spin, the one for longer.
"""

from __future__ import annotations

from pathlib import Path
from time import perf_counter_ns
from typing import Any

import numpy as np

from nnpipe.core.arguments import argument
from nnpipe.core.live_model import LiveModel
from nnpipe.core.session import InferenceSession
from nnpipe.modelwrappers.files.onnx import ONNXModel


class PlantedModel(ONNXModel):
    """Runs on ONNX Runtime, and then spins for a share of the time that it took; also where that
    is none.
    """

    spin: float = argument(0.0, help="share of a call's time", minimum=0.0)

    def session(self, live: LiveModel) -> InferenceSession:
        """Open the model, and what makes it slower around it."""
        return _Spinning(super().session(live), self.spin)


class _Spinning(InferenceSession):
    def __init__(self, straight: InferenceSession, share: float) -> None:
        self.io, self._straight, self.share = straight.io, straight, share

    def _put(self, batch: Any) -> None:
        self._straight._put(batch)

    def _run(self) -> None:
        start = perf_counter_ns()
        self._straight._run()
        end = perf_counter_ns()
        until = end + self.share * (end - start)
        while perf_counter_ns() < until:
            pass

    def _get(self) -> Any:
        return self._straight._get()


def slowdown(
    model: Path, scale: float, shares: tuple[float, float], rounds: int = 400, calls: int = 40
) -> float:
    """Return by which share calls that spin for the second share take longer than for the first, in
    one process.

    Parameters
    ----------
    model, scale
        As for :class:`PlantedModel`.
    shares
        To spin for.
    rounds, calls
        How often each has its turn, and for how many calls.
    """
    session = PlantedModel(model_path=model, scale=scale).open().session()
    assert isinstance(session, _Spinning)
    ratios = []
    with session:
        random = np.random.default_rng(0)
        session.put(
            {
                spec.name: random.random((1, *spec.shape[1:])).astype(spec.dtype)
                for spec in session.io.inputs
            }
        )
        for _ in range(rounds):
            medians = []
            for session.share in shares:
                took = []
                for _ in range(calls):
                    start = perf_counter_ns()
                    session.run()
                    took.append(perf_counter_ns() - start)
                medians.append(np.median(took))
            ratios.append(medians[1] / medians[0])
    return float(np.median(ratios)) - 1
