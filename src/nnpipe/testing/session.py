"""The contract of inference sessions, in a framework, in a runtime, or on a target."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import pytest

from nnpipe.core.errors import NNPipeError, NotSupported, SpecMismatch
from nnpipe.core.operation_times import OperationTimes
from nnpipe.core.session import InferenceSession
from nnpipe.core.tensors import Batch, generate_random_batch


def make_noncontiguous(array: np.ndarray) -> np.ndarray:
    """Return an equal array whose elements are not contiguous in memory."""
    if not array.ndim:
        return array
    wide = np.zeros((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)
    wide[..., ::2] = array
    return wide[..., ::2]


MISMATCHES = ("missing", "extra", "renamed", "dtype", "rank")
"""Kinds of errors in a batch; see :func:`damage_batch`."""


def damage_batch(batch: Batch, name: str, damage: str) -> dict[str, np.ndarray]:
    """Return a batch with an error in one tensor."""
    found = dict(batch)
    array = found.pop(name)
    if damage == "extra":
        found |= {name: array, name + "_too": array}
    elif damage == "renamed":
        found[name + "_too"] = array
    elif damage == "dtype":
        found[name] = np.ones(array.shape, "float64" if array.dtype != np.float64 else "float32")
    elif damage == "rank":
        found[name] = array[None]
    return found


OpenSession = Callable[[], InferenceSession]


class InferenceSessionContract:
    """What every session must do; subclass it and define the fixture ``open_session``.

    ``open_session`` is a function that loads the model again.  If random numbers are
    not valid inputs, also define ``batch`` and ``other_batch``: two batches of equal
    shape with different outputs.

    Attributes
    ----------
    rtol, atol
        Tolerances between results of equal inputs; 0 by default.
    varying
        Outputs that differ from run to run, such as times, and are not compared.
    """

    rtol: float = 0.0
    atol: float = 0.0
    varying: frozenset[str] = frozenset()

    @pytest.fixture
    def open_session(self) -> OpenSession:
        raise NotImplementedError(
            "a subclass of InferenceSessionContract gives the fixture `open_session`"
        )

    @pytest.fixture
    def session(self, open_session: OpenSession) -> Iterator[InferenceSession]:
        with open_session() as session:
            yield session

    @pytest.fixture
    def batch(self, session: InferenceSession) -> Batch:
        return generate_random_batch(session.io, 2, seed=1)

    @pytest.fixture
    def other_batch(self, session: InferenceSession) -> Batch:
        return generate_random_batch(session.io, 2, seed=2)

    # -- results ------------------------------------------------------------------------------

    def test_outputs_agree_with_their_specification(
        self, session: InferenceSession, batch: Batch
    ) -> None:
        session.io.check_outputs(session.infer(batch))

    def test_infer_is_put_run_get(self, session: InferenceSession, batch: Batch) -> None:
        at_once = session.infer(batch)
        session.put(batch)
        session.run()
        self.assert_same(session.get(), at_once)

    def test_equal_inputs_give_equal_results(self, session: InferenceSession, batch: Batch) -> None:
        first = session.infer(batch)
        session.run()
        self.assert_same(session.get(), first)
        self.assert_same(session.infer(batch), first)

    def test_an_earlier_batch_leaves_no_trace(
        self, open_session: OpenSession, session: InferenceSession, batch: Batch, other_batch: Batch
    ) -> None:
        session.infer(other_batch)
        with open_session() as fresh:
            self.assert_same(session.infer(batch), fresh.infer(batch))

    def test_outputs_do_not_depend_on_the_order_of_samples(
        self, open_session: OpenSession, batch: Batch, other_batch: Batch
    ) -> None:
        samples, expected = [batch, other_batch], []
        for sample in samples:
            with open_session() as fresh:
                expected.append(fresh.infer(sample))
        forwards_backwards_and_twice = [0, 1, 1, 0, 0, 1]
        with open_session() as session:
            for number in forwards_backwards_and_twice:
                self.assert_same(session.infer(samples[number]), expected[number])
            for number in forwards_backwards_and_twice:
                session.put(samples[number])
                for _ in range(2):
                    session.run()
                    self.assert_same(session.get(), expected[number])
            outputs = session.stream(samples[number] for number in forwards_backwards_and_twice)
            for number, found in zip(forwards_backwards_and_twice, outputs, strict=True):
                self.assert_same(found, expected[number])

    def test_a_stream_starts_afresh_or_is_refused_in_one_line(
        self, session: InferenceSession, batch: Batch, other_batch: Batch
    ) -> None:
        expected = session.infer(batch)
        if not session.keeps_state:
            with pytest.raises(NotSupported, match="keeps nothing") as caught:
                session.start_stream()
            assert_one_line(caught.value)
            return
        passes = []
        for _ in range(2):
            session.start_stream()
            passes.append([session.infer(batch), session.infer(other_batch)])
        self.assert_same(passes[0][0], expected)
        for first, second in zip(*passes, strict=True):
            self.assert_same(first, second)

    def test_other_inputs_give_other_results(
        self, session: InferenceSession, batch: Batch, other_batch: Batch
    ) -> None:
        first, second = session.infer(batch), session.infer(other_batch)
        assert any(not np.array_equal(first[name], second[name]) for name in first)

    def test_results_given_are_never_written_again(
        self, session: InferenceSession, batch: Batch, other_batch: Batch
    ) -> None:
        first = session.infer(batch)
        kept = {name: array.copy() for name, array in first.items()}
        session.infer(other_batch)
        self.assert_identical(first, kept)
        session.put(other_batch)
        session.run()
        self.assert_identical(first, kept)

    def test_results_survive_the_session(self, open_session: OpenSession, batch: Batch) -> None:
        with open_session() as session:
            results = session.infer(batch)
            kept = {name: array.copy() for name, array in results.items()}
        del session
        self.assert_identical(results, kept)

    def test_results_do_not_lean_on_the_inputs(
        self, session: InferenceSession, batch: Batch
    ) -> None:
        expected = session.infer(batch)
        mine = {name: array.copy() for name, array in batch.items()}
        session.put(mine)
        session.run()
        for array in mine.values():
            array[...] = np.zeros((), array.dtype)
        self.assert_same(session.get(), expected)

    def test_two_sessions_share_nothing(
        self, open_session: OpenSession, session: InferenceSession, batch: Batch, other_batch: Batch
    ) -> None:
        expected = session.infer(batch), session.infer(other_batch)
        with open_session() as second:
            session.put(batch)
            second.put(other_batch)
            session.run()
            second.run()
            self.assert_same(session.get(), expected[0])
            self.assert_same(second.get(), expected[1])
        self.assert_same(session.infer(batch), expected[0])

    # -- inputs -------------------------------------------------------------------------------

    def test_inputs_are_left_as_they_are(self, session: InferenceSession, batch: Batch) -> None:
        mine = {name: array.copy() for name, array in batch.items()}
        session.infer(mine)
        self.assert_identical(mine, batch)

    def test_inputs_may_be_read_only(self, session: InferenceSession, batch: Batch) -> None:
        expected = session.infer(batch)
        mine = {name: array.copy() for name, array in batch.items()}
        for array in mine.values():
            array.flags.writeable = False
        self.assert_same(session.infer(mine), expected)

    def test_inputs_may_lie_scattered_in_memory(
        self, session: InferenceSession, batch: Batch
    ) -> None:
        expected = session.infer(batch)
        self.assert_same(
            session.infer({name: make_noncontiguous(array) for name, array in batch.items()}),
            expected,
        )

    def test_inputs_are_bound_by_name(self, session: InferenceSession, batch: Batch) -> None:
        expected = session.infer(batch)
        self.assert_same(session.infer(dict(reversed(list(batch.items())))), expected)

    def test_a_free_batch_axis_takes_any_size(self, session: InferenceSession) -> None:
        if any(not spec.shape or spec.shape[0] is not None for spec in session.io.inputs):
            return  # all sizes but one are a mismatch, which the test of shapes covers
        for size in (3, 1, 2):
            inputs = generate_random_batch(session.io, size, seed=size)
            outputs = session.infer(inputs)
            session.io.check_outputs(outputs)
            self.assert_same(session.infer(inputs), outputs)

    def test_a_mismatch_is_refused_in_one_line_and_does_no_harm(
        self, session: InferenceSession, batch: Batch
    ) -> None:
        expected = session.infer(batch)
        for damage in MISMATCHES:
            for name in batch:
                try:
                    session.put(damage_batch(batch, name, damage))
                except SpecMismatch as error:
                    assert_one_line(error)
                else:
                    pytest.fail(f"a mismatch ({damage}) was taken")
            self.assert_same(session.infer(batch), expected)

    def test_a_wrong_length_of_a_fixed_axis_is_refused(
        self, session: InferenceSession, batch: Batch
    ) -> None:
        for spec in session.io.inputs:
            for axis in (axis for axis, length in enumerate(spec.shape) if length is not None):
                longer = (
                    np.concatenate([batch[spec.name]] * 2, axis)
                    if spec.shape[axis]
                    else batch[spec.name][..., :0]
                )
                with pytest.raises(SpecMismatch, match=r"has shape .*, expected") as caught:
                    session.put({**batch, spec.name: longer})
                assert_one_line(caught.value)

    # -- order --------------------------------------------------------------------------------

    def test_running_needs_a_batch(self, session: InferenceSession) -> None:
        with pytest.raises(NNPipeError, match="put a batch first") as caught:
            session.run()
        assert_one_line(caught.value)

    def test_getting_needs_a_run(
        self, session: InferenceSession, batch: Batch, other_batch: Batch
    ) -> None:
        with pytest.raises(NNPipeError, match="run first"):
            session.get()
        session.put(batch)
        with pytest.raises(NNPipeError, match="run first"):
            session.get()
        session.run()
        session.get()
        session.put(other_batch)  # the computed outputs belong to the previous batch
        with pytest.raises(NNPipeError, match="run first"):
            session.get()

    def test_closing_twice_does_no_harm(self, open_session: OpenSession, batch: Batch) -> None:
        session = open_session()
        session.infer(batch)
        session.close()
        session.close()

    def test_closing_an_unused_session_does_no_harm(self, open_session: OpenSession) -> None:
        with open_session():
            pass

    def test_a_closed_session_says_so(self, open_session: OpenSession, batch: Batch) -> None:
        with open_session() as session:
            session.infer(batch)
        for use in (
            lambda: session.put(batch),
            session.run,
            session.get,
            lambda: session.infer(batch),
        ):
            with pytest.raises(NNPipeError, match="closed") as caught:
                use()
            assert_one_line(caught.value)

    def test_stats_can_be_written_as_json(self, session: InferenceSession, batch: Batch) -> None:
        session.infer(batch)
        stats = session.stats()
        assert isinstance(stats, Mapping)
        json.dumps(dict(stats), allow_nan=False)

    # -- times of operations --------------------------------------------------------------------

    def test_a_profile_is_taken_in_another_session_and_adds_up(
        self, session: InferenceSession, batch: Batch, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        if not session.offers("profile"):
            with pytest.raises(NotSupported, match="times of operations") as caught:
                session.profile(batch)
            assert_one_line(caught.value)
            return
        expected = session.infer(batch)
        own_run, own_profile = session._run, session._profile
        inside: list[bool] = []
        recording: list[bool] = []

        def run() -> None:
            inside.extend(recording)
            own_run()

        def profile(batch: Batch, runs: int) -> OperationTimes:
            recording.append(True)
            try:
                return own_profile(batch, runs)
            finally:
                recording.clear()

        with monkeypatch.context() as patches:
            patches.setattr(session, "_run", run)
            patches.setattr(session, "_profile", profile)
            try:
                times = session.profile(batch, 4)
            except NotSupported as error:  # with some of the session's options
                assert_one_line(error)
                return
        assert not inside, "the session itself ran while times were recorded"
        self.assert_same(session.infer(batch), expected)
        assert times.kernels
        assert len({kernel.name for kernel in times.kernels}) == len(times.kernels)
        assert all(kernel.ns.shape == (4,) and (kernel.ns >= 0).all() for kernel in times.kernels)
        assert len(times.wall_ns) == len(times.plain_ns) == 4
        np.testing.assert_allclose(
            times.table_ns.sum(axis=0) + times.unattributed_ns, times.wall_ns
        )
        assert 0 <= times.coverage < 1.05
        json.dumps(times.to_json(), allow_nan=False)

    # -- comparing ----------------------------------------------------------------------------

    def assert_same(self, found: Batch, expected: Batch) -> None:
        """Fail unless the arrays agree within ``rtol`` and ``atol``."""
        assert list(found) == list(expected)
        for name in found.keys() - self.varying:
            array = found[name]
            np.testing.assert_allclose(
                array, expected[name], self.rtol, self.atol, err_msg=name, strict=True
            )

    def assert_identical(self, found: Batch, expected: Batch) -> None:
        """Fail unless the arrays are bit-identical."""
        for name, array in found.items():
            np.testing.assert_array_equal(array, expected[name], err_msg=name, strict=True)


def assert_one_line(error: BaseException) -> None:
    """Fail unless the message is one line and not empty."""
    assert str(error).strip(), "an error without a message"
    assert "\n" not in str(error), str(error)
