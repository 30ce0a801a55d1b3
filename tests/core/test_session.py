"""A session keeps order and checks what goes in."""

from __future__ import annotations

import numpy as np
import pytest

from nnpipe.core.errors import NNPipeError, SpecMismatch
from nnpipe.core.session import InferenceSession
from nnpipe.core.tensors import Batch, IOSpec, TensorSpec


class Doubler(InferenceSession):
    def __init__(self) -> None:
        self.io = IOSpec(
            (TensorSpec("x", (None,), "float32"),), (TensorSpec("y", (None,), "float32"),)
        )
        self.closed = 0

    def _put(self, batch: Batch) -> None:
        self.x = batch["x"]

    def _run(self) -> None:
        self.y = self.x * 2

    def _get(self) -> dict[str, np.ndarray]:
        return {"y": self.y}

    def _close(self) -> None:
        self.closed += 1


X = {"x": np.ones(3, np.float32)}


def test_infer_is_put_run_get() -> None:
    with Doubler() as session:
        np.testing.assert_array_equal(session.infer(X)["y"], [2, 2, 2])


def test_order_is_kept() -> None:
    session = Doubler()
    with pytest.raises(NNPipeError, match="put a batch first"):
        session.run()
    session.put(X)
    with pytest.raises(NNPipeError, match="no outputs yet"):
        session.get()
    session.run()
    session.put(X)
    with pytest.raises(NNPipeError, match="no outputs yet"):
        session.get()


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(SpecMismatch, match="float64"):
        Doubler().put({"x": np.ones(3)})


def test_closing_happens_once_and_for_all() -> None:
    with Doubler() as session:
        pass
    session.close()
    assert session.closed == 1
    with pytest.raises(NNPipeError, match="closed"):
        session.infer(X)


def test_a_failure_leaves_no_old_outputs_to_be_taken_for_new_ones() -> None:
    class Failing(Doubler):
        def _run(self) -> None:
            if self.x[0] < 0:
                raise ZeroDivisionError
            super()._run()

    session = Failing()
    session.infer(X)
    session.put({"x": -X["x"]})
    with pytest.raises(ZeroDivisionError):
        session.run()
    with pytest.raises(NNPipeError, match="no outputs yet"):
        session.get()
