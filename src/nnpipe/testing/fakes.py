"""Fakes with known behaviour: a clock that the test controls, and a session that takes a given time."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns

import numpy as np

from nnpipe.core.session import InferenceSession
from nnpipe.core.tensors import Batch, IOSpec, TensorSpec

ECHO_IO = IOSpec((TensorSpec("x", (None, 4), "float32"),), (TensorSpec("y", (None, 4), "float32"),))
"""An input of four numbers with a free batch axis, and an output of the same shape."""


class FakeClock:
    """A clock in nanoseconds that advances only on request, or by a fixed step at each reading.

    Attributes
    ----------
    now
        The next reading in nanoseconds.
    looks
        Number of readings.
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
        """Advance the clock."""
        self.now += nanoseconds


class FakeSession(InferenceSession):
    """Returns its inputs by the names of its outputs, and takes a given time.

    Parameters
    ----------
    io
        As many inputs as outputs; the first output echoes the first input, and so on.
    spend
        Called in every run, such as ``lambda: clock.advance(1000)`` or ``lambda: spin(1000)``.
    function
        Applied to each array; by default arrays are returned unchanged.

    Attributes
    ----------
    calls
        The calls in order: ``"put"``, ``"run"``, ``"get"``, ``"close"``.
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
    """Keep a core busy for at least this time."""
    end = perf_counter_ns() + nanoseconds
    while perf_counter_ns() < end:
        pass
