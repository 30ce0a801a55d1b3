"""A crash, a hang or an error in the other process costs one task, and says what happened."""

from __future__ import annotations

import time

import pytest

from nnpipe.core.errors import ConfigError
from nnpipe.workflows.isolation.subprocess_worker import Died, Unforeseen, Worker, call


def test_tasks_are_carried_out_in_one_process_and_in_order() -> None:
    with Worker("chores:carry_out") as worker:
        pids = {worker.call({"do": "tell pid"}, 30) for _ in range(3)}
        assert len(pids) == 1
        assert worker.call({"do": "double", "number": 21}, 30) == 42


def test_what_frameworks_print_does_not_get_in_the_way() -> None:
    assert call("chores:carry_out", {"do": "print and double", "number": 2}, 30) == 4


def test_errors_that_users_can_mend_come_through_as_they_are() -> None:
    with Worker("chores:carry_out") as worker:
        with pytest.raises(ConfigError, match=r"^no such chore: 'dance'$"):
            worker.call({"do": "dance"}, 30)
        assert worker.call({"do": "double", "number": 1}, 30) == 2


def test_defects_come_with_their_traceback() -> None:
    with pytest.raises(Unforeseen, match="in carry_out") as caught:
        call("chores:carry_out", {"do": "fail"}, 30)
    assert caught.value.brief.startswith("ZeroDivisionError: ")


def test_a_crash_is_named_and_the_next_task_gets_a_new_process() -> None:
    with Worker("chores:carry_out") as worker:
        before = worker.call({"do": "tell pid"}, 30)
        with pytest.raises(Died, match=r"crashed its process \(SIGSEGV\).*last words"):
            worker.call({"do": "crash"}, 30)
        assert worker.call({"do": "tell pid"}, 30) != before


def test_leaving_in_the_middle_is_named() -> None:
    with pytest.raises(Died, match="ended its process with status 3"):
        call("chores:carry_out", {"do": "leave"}, 30)


def test_a_hang_ends_at_the_time_limit_and_the_next_task_gets_a_new_process() -> None:
    with Worker("chores:carry_out") as worker:
        worker.call({"do": "tell pid"}, 30)
        start = time.monotonic()
        with pytest.raises(Died, match=r"did not end within 0\.2 s"):
            worker.call({"do": "hang"}, 0.2)
        assert time.monotonic() - start < 20
        assert worker.call({"do": "double", "number": 4}, 30) == 8
