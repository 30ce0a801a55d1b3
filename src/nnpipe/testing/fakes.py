"""Stand-ins whose behaviour is known exactly: a clock that obeys, and a session that costs what it is told to."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns

import numpy as np

from nnpipe.core.session import InferenceSession
from nnpipe.core.tensors import Batch, IOSpec, TensorSpec

ECHO_IO = IOSpec((TensorSpec("x", (None, 4), "float32"),), (TensorSpec("y", (None, 4), "float32"),))
"""One free batch axis and four numbers in, the same out."""


class FakeClock:
    """Nanoseconds that pass only when told, or by a fixed step each time someone looks.

    Attributes
    ----------
    now
        What the clock shows next.
    looks
        How often it was looked at.
    """

    def __init__(self, start: int = 0, step: int = 0) -> None:
        self.now = start
        self.step = step
        self.looks = 0

    def __call__(self) -> int:
        """Return the time, as ``time.perf_counter_ns`` would."""
        shown = self.now
        self.now += self.step
        self.looks += 1
        return shown

    def advance(self, nanoseconds: int) -> None:
        """Let time pass."""
        self.now += nanoseconds


class FakeSession(InferenceSession):
    """Gives its inputs back under its outputs' names, and takes the time it is told to take.

    Parameters
    ----------
    io
        As many inputs as outputs; the first output echoes the first input, and so on.
    spend
        Called in every run: ``lambda: clock.advance(1000)``, ``lambda: spin(1000)``.
    function
        What to compute on each array instead of passing it on.

    Attributes
    ----------
    calls
        What happened, in order: ``"put"``, ``"run"``, ``"get"``, ``"close"``.
    """

    def __init__(
        self,
        io: IOSpec = ECHO_IO,
        spend: Callable[[], object] = lambda: None,
        function: Callable[[np.ndarray], np.ndarray] = lambda array: array,
    ) -> None:
        self.io = io
        self.calls: list[str] = []
        self._spend = spend
        self._function = function
        self._inputs: list[np.ndarray] = []
        self._outputs: list[np.ndarray] = []

    def _put(self, batch: Batch) -> None:
        self.calls.append("put")
        self._inputs = [batch[spec.name] for spec in self.io.inputs]

    def _run(self) -> None:
        self.calls.append("run")
        self._spend()
        self._outputs = [np.array(self._function(array)) for array in self._inputs]

    def _get(self) -> dict[str, np.ndarray]:
        self.calls.append("get")
        return {spec.name: array.copy() for spec, array in zip(self.io.outputs, self._outputs, strict=True)}

    def _close(self) -> None:
        self.calls.append("close")


def spin(nanoseconds: int) -> None:
    """Keep a core busy for this long, at least."""
    end = perf_counter_ns() + nanoseconds
    while perf_counter_ns() < end:
        pass
