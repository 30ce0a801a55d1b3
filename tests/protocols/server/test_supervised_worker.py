"""When a worker is ended for taking too long: by what it shows on its board, never by a single
reading.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from nnpipe.core.runtime_protocol import ServerOptions
from nnpipe.measuring.counters import GPUs
from nnpipe.protocols.server.shared_page import Phase, SharedPage
from nnpipe.protocols.server.supervised_worker import SupervisedWorker

pytestmark = pytest.mark.skipif(
    not hasattr(os, "fork"), reason="there are no worker processes on this system"
)
LATE, IN_TIME = (Phase.RUNNING, 99.0, 1), (Phase.RUNNING, 0.1, 1)


@pytest.fixture
def supervised() -> Iterator[tuple[SupervisedWorker, SharedPage, int]]:
    """A process that sleeps, under supervision, for whose runs a second is allowed."""
    pid = os.fork()
    if pid == 0:
        time.sleep(60)
        os._exit(0)
    board = SharedPage()
    guest = SimpleNamespace(
        channel=socket.socket(), name="a test", conversation=None, has_left=lambda: False
    )
    made = SupervisedWorker(
        pid, guest, board, ServerOptions(run_timeout=1.0, load_timeout=1.0), GPUs()
    )
    yield made, board, pid
    if not made._reap():
        os.kill(pid, signal.SIGKILL)
    while not made._reap():
        time.sleep(0.001)
    made.close()


def shows(
    monkeypatch: pytest.MonkeyPatch, board: SharedPage, *readings: tuple[Phase, float, int]
) -> None:
    left = list(readings)
    monkeypatch.setattr(board, "read_phase", lambda: left.pop(0) if len(left) > 1 else left[0])


def test_one_reading_of_an_impossible_time_ends_nobody(supervised, monkeypatch):
    made, board, _ = supervised
    shows(monkeypatch, board, LATE, IN_TIME, LATE, IN_TIME)
    for _ in range(6):
        assert not made.look()
        time.sleep(0.03)


def test_a_worker_that_stays_too_long_is_ended(supervised, monkeypatch):
    made, board, _ = supervised
    shows(monkeypatch, board, LATE)
    assert not made.look()
    time.sleep(0.03)
    assert made.look()
    assert made._status is not None
    assert os.waitstatus_to_exitcode(made._status) == -signal.SIGKILL


@pytest.mark.slow
def test_a_board_is_never_read_half_written():
    board = SharedPage()
    pid = os.fork()
    if pid == 0:
        until = time.monotonic() + 1.5
        while time.monotonic() < until:
            board.begin(Phase.RUNNING, 1)
        os._exit(0)
    while board.read_phase()[0] is not Phase.RUNNING:
        pass
    longest, until = 0.0, time.monotonic() + 1.0
    while time.monotonic() < until:
        longest = max(longest, abs(board.read_phase()[1]))
    os.waitpid(pid, 0)
    board.close()
    # A torn time is off by at least 256 ns and by centuries at most; a process is put aside for
    # tens of milliseconds.
    assert longest < 1.0
