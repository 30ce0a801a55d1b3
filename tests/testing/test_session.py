"""The contract holds for honest sessions and catches each way of breaking it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nnpipe.core.session import InferenceSession
from nnpipe.core.tensors import Batch, IOSpec, TensorSpec
from nnpipe.testing.fakes import ECHO_IO, FakeSession
from nnpipe.testing.session import InferenceSessionContract, OpenSession

FIXED_IO = IOSpec(
    (TensorSpec("a", (2, 3), "float32"), TensorSpec("b", (2,), "int64")),
    (TensorSpec("c", (2, 3), "float32"), TensorSpec("d", (2,), "int64")),
)


class TestEcho(InferenceSessionContract):
    @pytest.fixture
    def open_session(self) -> OpenSession:
        return FakeSession


class TestFixedBatchAndTwoInputs(InferenceSessionContract):
    @pytest.fixture
    def open_session(self) -> OpenSession:
        return lambda: FakeSession(FIXED_IO)


class Reusing(FakeSession):
    """Gives the same buffer every time."""

    def _run(self) -> None:
        if not self._outputs:
            super()._run()
        for buffer, array in zip(self._outputs, self._inputs, strict=True):
            buffer[...] = array

    def _get(self) -> dict[str, np.ndarray]:
        return {
            spec.name: array for spec, array in zip(self.io.outputs, self._outputs, strict=True)
        }


class Passing(FakeSession):
    """Gives the caller's own arrays back."""

    def _run(self) -> None:
        self._outputs = self._inputs

    _get = Reusing._get


class Remembering(FakeSession):
    """Adds up what came before."""

    total = 0.0

    def _run(self) -> None:
        super()._run()
        self.total += float(self._inputs[0].sum())
        self._outputs[0] += np.float32(self.total)


class Scribbling(FakeSession):
    """Works in the caller's memory."""

    def _put(self, batch: Batch) -> None:
        super()._put(batch)
        self._inputs[0] *= np.float32(2)


class Flat(FakeSession):
    """Takes memory to be contiguous."""

    def _put(self, batch: Batch) -> None:
        array = next(iter(batch.values()))
        base: Any = array if array.base is None else array.base
        self._inputs = [base.reshape(-1)[: array.size].reshape(array.shape)]


class Positional(FakeSession):
    """Binds by position."""

    def _put(self, batch: Batch) -> None:
        self._inputs = list(batch.values())


class Narrow(FakeSession):
    """Gives another shape than it says."""

    def _get(self) -> dict[str, np.ndarray]:
        return {name: array[:, :2] for name, array in super()._get().items()}


class Twin(FakeSession):
    """Shares its inputs among all instances."""

    shared: list[np.ndarray] = []

    def _put(self, batch: Batch) -> None:
        Twin.shared = list(batch.values())

    def _run(self) -> None:
        self._inputs = Twin.shared
        super()._run()


class Constant(FakeSession):
    """Never looks at what it is given."""

    def _run(self) -> None:
        self._outputs = [np.zeros_like(array) for array in self._inputs]


class Unchecked(FakeSession):
    """Skips the base's checks."""

    def put(self, batch: Batch) -> None:
        self._put(batch)
        self._state = "loaded"


class Undead(FakeSession):
    """Works on after it was closed."""

    def close(self) -> None:
        self._close()


class Impatient(FakeSession):
    """Cannot be closed twice."""

    def close(self) -> None:
        del self.io
        super().close()


class Stale(FakeSession):
    """Gives the outputs of the batch before."""

    def put(self, batch: Batch) -> None:
        state = self._state
        super().put(batch)
        self._state = "done" if state == "done" else self._state


class Secretive(FakeSession):
    """Has figures that no file can hold."""

    def stats(self) -> dict[str, Any]:
        return {"arena": np.int64(3)}


@pytest.mark.parametrize(
    ("broken", "test", "io"),
    [
        (Reusing, "test_results_given_are_never_written_again", ECHO_IO),
        (Passing, "test_results_do_not_lean_on_the_inputs", ECHO_IO),
        (Remembering, "test_equal_inputs_give_equal_results", ECHO_IO),
        (Remembering, "test_an_earlier_batch_leaves_no_trace", ECHO_IO),
        (Scribbling, "test_inputs_are_left_as_they_are", ECHO_IO),
        (Scribbling, "test_inputs_may_be_read_only", ECHO_IO),
        (Flat, "test_inputs_may_lie_scattered_in_memory", ECHO_IO),
        (Positional, "test_inputs_are_bound_by_name", FIXED_IO),
        (Narrow, "test_outputs_agree_with_their_specification", ECHO_IO),
        (Twin, "test_two_sessions_share_nothing", ECHO_IO),
        (Constant, "test_other_inputs_give_other_results", ECHO_IO),
        (Unchecked, "test_a_wrong_length_of_a_fixed_axis_is_refused", ECHO_IO),
        (Undead, "test_a_closed_session_says_so", ECHO_IO),
        (Impatient, "test_closing_twice_does_no_harm", ECHO_IO),
        (Stale, "test_getting_needs_a_run", ECHO_IO),
        (Secretive, "test_stats_can_be_written_as_json", ECHO_IO),
    ],
)
def test_a_session_that_breaks_the_contract_is_caught(
    broken: type[FakeSession], test: str, io: IOSpec
) -> None:
    assert fails(lambda: broken(io), test)
    assert not fails(lambda: FakeSession(io), test)


@pytest.mark.parametrize("damage", ["missing", "extra", "renamed", "dtype", "rank"])
def test_a_session_that_takes_a_mismatch_is_caught(
    damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    test = "test_a_mismatch_is_refused_in_one_line_and_does_no_harm"
    monkeypatch.setattr("nnpipe.testing.session.MISMATCHES", (damage,))
    assert fails(lambda: Unchecked(FIXED_IO), test)
    assert not fails(lambda: FakeSession(FIXED_IO), test)


def fails(open_session: OpenSession, test: str) -> bool:
    """Run one test of the contract with its fixtures, as pytest would."""
    suite = InferenceSessionContract()
    method = getattr(suite, test)
    names = method.__code__.co_varnames[: method.__code__.co_argcount]
    rows = np.arange(8, dtype=np.float32).reshape(2, 4)
    with open_session() as session:
        batches = []
        for offset in (1, 5):
            shapes = {
                s.name: (np.zeros([2 if n is None else n for n in s.shape], s.dtype))
                for s in session.io.inputs
            }
            batches.append(
                {name: array + array.dtype.type(offset) for name, array in shapes.items()}
            )
        if session.io is ECHO_IO:
            batches = [{"x": rows + np.float32(1)}, {"x": rows + np.float32(5)}]
        given: dict[str, Any] = {"open_session": open_session, "session": session}
        given |= {"batch": batches[0], "other_batch": batches[1]}
        try:
            method(**{name: given[name] for name in names if name in given})
        # broken sessions fail by assertions and by their own crashes
        except (Exception, pytest.fail.Exception):
            return True
    return False


def test_the_fake_session_is_an_inference_session() -> None:
    assert isinstance(FakeSession(), InferenceSession)
