"""Measuring on a device that is busy, goes away and comes back: by functions that fail as
devices do.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import pytest

from nnpipe.core.errors import AuthenticationError, NNPipeError, TargetError, TransportError
from nnpipe.protocols.conversation.frame import ErrorCode
from nnpipe.protocols.network import NetworkProtocol
from nnpipe.workflows.candidates.deployment import Deployment
from nnpipe.workflows.devices import device_measuring
from nnpipe.workflows.devices.device_measuring import DeviceAway, DeviceMeasuring, WorkingDevices
from nnpipe.workflows.isolation.subprocess_worker import Worker

NOWHERE = Deployment(NetworkProtocol(port=1, timeout=1))


def told(code: ErrorCode) -> TargetError:
    error = TargetError(f"the target says {code.name}")
    error.code = code
    return error


class Scripted:
    """Fails as it is told to, then returns how often it was called."""

    def __init__(self, *errors: NNPipeError) -> None:
        self._errors, self.calls = list(errors), 0

    def __call__(self, worker: Worker) -> int:
        self.calls += 1
        if self._errors:
            raise self._errors.pop(0)
        return self.calls


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What the device says when it is looked at; it is free when there is nothing left."""
    states: list[tuple[str, str]] = []
    monkeypatch.setattr(
        device_measuring, "fetch_state", lambda _: states.pop(0) if states else ("free", "")
    )
    return states


@contextmanager
def measuring(
    patience: float = 0.0, working: WorkingDevices | None = None
) -> Iterator[DeviceMeasuring]:
    with DeviceMeasuring("board", patience, working or WorkingDevices(), nullcontext) as found:
        yield found


def test_a_busy_device_is_waited_for_however_long(answers: list[tuple[str, str]]) -> None:
    with measuring() as board:
        assert board.measure(NOWHERE, Scripted(*(told(ErrorCode.BUSY) for _ in range(4)))) == 5


def test_what_a_device_was_lost_in_is_measured_again(answers: list[tuple[str, str]]) -> None:
    answers += [("failed", "no answer")] * 2
    with measuring(patience=20) as board:
        assert board.measure(NOWHERE, Scripted(TransportError("it closed the line"))) == 2
        assert board.measure(NOWHERE, Scripted(told(ErrorCode.STOPPING))) == 2
    assert not answers


def test_what_loses_its_device_every_time_fails_alone(answers: list[tuple[str, str]]) -> None:
    with measuring() as board:
        with pytest.raises(
            NNPipeError, match="board was lost in each of 3 attempts, the last time: gone 3"
        ) as caught:
            board.measure(NOWHERE, Scripted(*(TransportError(f"gone {n}") for n in (1, 2, 3))))
        assert not isinstance(caught.value, DeviceAway)
        assert board.measure(NOWHERE, Scripted()) == 1


@pytest.mark.parametrize(
    "error", [told(ErrorCode.MODEL), told(ErrorCode.DIED), NNPipeError("did not end within 3 s")]
)
def test_what_is_the_candidates_fault_is_not_tried_again(
    error: NNPipeError, answers: list[tuple[str, str]]
) -> None:
    work = Scripted(error)
    with measuring() as board, pytest.raises(type(error), match=str(error)):
        board.measure(NOWHERE, work)
    assert work.calls == 1


def test_a_device_that_stays_away_is_given_up_with_the_reason() -> None:
    with (
        measuring(patience=0.2) as board,
        pytest.raises(DeviceAway, match=r"board went away .* no target answers"),
    ):
        board.measure(NOWHERE, Scripted(TransportError("it closed the line")))


def test_a_device_that_lets_nobody_in_is_given_up_at_once(answers: list[tuple[str, str]]) -> None:
    work = Scripted(AuthenticationError("the proof is wrong"))
    with (
        measuring(patience=60) as board,
        pytest.raises(DeviceAway, match="board: the proof is wrong"),
    ):
        board.measure(NOWHERE, work)
    assert work.calls == 1


def test_a_device_is_waited_for_as_long_as_others_measure() -> None:
    working = WorkingDevices()
    working.begin("other")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    away = Deployment(NetworkProtocol(port=port, timeout=0.2))
    ended: list[BaseException] = []

    def measure(board: DeviceMeasuring) -> None:
        try:
            board.measure(away, Scripted(TransportError("gone")))
        except DeviceAway as error:
            ended.append(error)

    with measuring(patience=0, working=working) as board:
        thread = threading.Thread(target=measure, args=(board,))
        thread.start()
        time.sleep(0.3)
        assert not ended
        working.end("other")
        thread.join(20)
    assert len(ended) == 1


def test_closing_ends_the_waiting_of_another_thread(answers: list[tuple[str, str]]) -> None:
    answers += [("failed", "no answer")] * 1000
    ended = threading.Event()

    def measure(board: DeviceMeasuring) -> None:
        with pytest.raises(DeviceAway):
            board.measure(NOWHERE, Scripted(TransportError("gone")))
        ended.set()

    with measuring(patience=1000) as board:
        thread = threading.Thread(target=measure, args=(board,))
        thread.start()
        time.sleep(0.05)
    assert ended.wait(20)
    thread.join(20)
