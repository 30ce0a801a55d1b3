"""Times of operations add up to the run, and short or costly recordings are doubted."""

from __future__ import annotations

import numpy as np
import pytest

from nnpipe.core.errors import ConfigError, NotSupported
from nnpipe.core.operation_times import KernelTime, OperationTimes
from nnpipe.core.tensors import Batch
from nnpipe.testing.fakes import FakeSession

BATCH = {"x": np.ones((1, 4), np.float32)}


def times(wall: float, plain: float) -> OperationTimes:
    steps = (
        KernelTime("a", "Conv", np.full(3, 0.7 * wall)),
        KernelTime("b", "Relu", np.full(3, 0.2 * wall)),
    )
    return OperationTimes(steps, np.full(3, wall), np.full(3, plain))


def test_what_belongs_to_no_step_is_the_rest() -> None:
    found = times(1e6, 1e6)
    np.testing.assert_allclose(found.unattributed_ns, 1e5)
    assert found.coverage == pytest.approx(0.9)
    assert found.overhead == 0
    assert found.doubts == ()


def test_short_runs_and_costly_recordings_are_doubted() -> None:
    assert "only 190 µs" in times(1.9e5, 1.9e5).doubts[0]
    assert "25% longer" in times(1e6, 8e5).doubts[0]
    assert times(1.19e6, 1e6).doubts == ()


def test_they_survive_json() -> None:
    found = OperationTimes.from_json(times(1e6, 9e5).to_json())
    assert found.to_json() == times(1e6, 9e5).to_json()


class Recorded(FakeSession):
    def _profile(self, batch: Batch, runs: int) -> OperationTimes:
        self.calls.append("profile")
        return OperationTimes((), np.ones(runs))


def test_a_session_runs_as_often_without_recording_half_before_and_half_after() -> None:
    with Recorded() as session:
        found = session.profile(BATCH, 5)
        assert session.calls == ["put", *["run"] * 5, "profile", "put", *["run"] * 4]
        assert len(found.plain_ns) == 5
        with pytest.raises(ConfigError, match="2 or more"):
            session.profile(BATCH, 1)


def test_a_session_without_times_says_so() -> None:
    assert not FakeSession.offers("profile")
    assert Recorded.offers("profile")
    with (
        FakeSession() as session,
        pytest.raises(NotSupported, match="FakeSession gives no times of operations"),
    ):
        session.profile(BATCH)
