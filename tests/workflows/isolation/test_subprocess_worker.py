"""A crash, a hang or an error in the other process costs one task, and says what happened."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from tests.protocols.servers import wait_for

from nnpipe.core.errors import ConfigError, NNPipeError, TargetError
from nnpipe.workflows.isolation.subprocess_worker import UnexpectedError, Worker, WorkerDied, call
from nnpipe.workflows.isolation.worker_template import POSSIBLE, WorkerTemplate

Make = Callable[[], Worker]


@pytest.fixture(scope="module")
def template(request: pytest.FixtureRequest) -> Iterator[WorkerTemplate]:
    if not POSSIBLE:
        pytest.skip("this system cannot pass file descriptors on")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(request.path.parent))
        with WorkerTemplate("chores:carry_out") as found:
            yield found


@pytest.fixture(params=["started", "forked"])
def make(request: pytest.FixtureRequest) -> Make:
    """Return what makes a worker, whose process is new or forked from a template."""
    known = request.getfixturevalue("template") if request.param == "forked" else None
    return lambda: Worker("chores:carry_out", template=known)


def test_tasks_are_carried_out_in_one_process_and_in_order(make: Make) -> None:
    with make() as worker:
        pids = {worker.call({"do": "tell pid"}, 30) for _ in range(3)}
        assert len(pids) == 1
        assert worker.call({"do": "double", "number": 21}, 30) == 42


def test_what_frameworks_print_does_not_get_in_the_way(make: Make) -> None:
    assert call("chores:carry_out", {"do": "print and double", "number": 2}, 30) == 4
    with make() as worker:
        assert worker.call({"do": "print and double", "number": 2}, 30) == 4


def test_errors_that_users_can_mend_come_through_as_they_are(make: Make) -> None:
    with make() as worker:
        with pytest.raises(ConfigError, match=r"^no such chore: 'dance'$"):
            worker.call({"do": "dance"}, 30)
        assert worker.call({"do": "double", "number": 1}, 30) == 2


def test_a_full_disk_is_no_error_of_the_task_and_names_the_file(make: Make) -> None:
    with make() as worker:
        for path in ("results/one.onnx", None):
            with pytest.raises(OSError, match="No space left on device") as caught:
                worker.call({"do": "fill the disk", "path": path}, 30)
            assert not isinstance(caught.value, NNPipeError)
            assert caught.value.filename == path or Path(caught.value.filename).is_dir()


def test_temporary_files_of_a_worker_go_with_it() -> None:
    with Worker("chores:carry_out") as worker:
        left = Path(worker.call({"do": "leave temporary files"}, 30))
        assert left.is_dir()
    assert not left.exists()


def test_defects_come_with_their_traceback() -> None:
    with pytest.raises(UnexpectedError, match="in carry_out") as caught:
        call("chores:carry_out", {"do": "fail"}, 30)
    assert caught.value.brief.startswith("ZeroDivisionError: ")


def test_a_crash_is_named_and_the_next_task_gets_a_new_process(make: Make) -> None:
    with make() as worker:
        before = worker.call({"do": "tell pid"}, 30)
        with pytest.raises(WorkerDied, match=r"crashed its process \(SIGSEGV\).*last words"):
            worker.call({"do": "crash"}, 30)
        assert worker.call({"do": "tell pid"}, 30) != before


def test_a_signal_that_ends_the_whole_command_is_no_crash_of_the_task(make: Make) -> None:
    with make() as worker:
        worker.call({"do": "tell pid"}, 30)
        told = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
        told.start()
        with pytest.raises(KeyboardInterrupt):
            worker.call({"do": "end by signal", "signal": signal.SIGTERM}, 30)


def test_a_task_alone_that_is_told_to_end_is_named(make: Make) -> None:
    with make() as worker, pytest.raises(WorkerDied, match="SIGTERM"):
        worker.call({"do": "end by signal", "signal": signal.SIGTERM}, 30)


def test_leaving_in_the_middle_is_named() -> None:
    with pytest.raises(WorkerDied, match="ended its process with status 3"):
        call("chores:carry_out", {"do": "leave"}, 30)


def test_a_hang_ends_at_the_time_limit_and_the_next_task_gets_a_new_process(make: Make) -> None:
    with make() as worker:
        worker.call({"do": "tell pid"}, 30)
        start = time.monotonic()
        with pytest.raises(WorkerDied, match=r"did not end within 0\.2 s"):
            worker.call({"do": "hang"}, 0.2)
        assert time.monotonic() - start < 20
        assert worker.call({"do": "double", "number": 4}, 30) == 8


def test_the_number_of_a_targets_failure_comes_through(make: Make) -> None:
    with make() as worker, pytest.raises(TargetError, match="busy") as caught:
        worker.call({"do": "be a busy target"}, 30)
    assert caught.value.code == 2


def test_forked_workers_are_processes_of_their_own_that_end_when_they_are_closed(
    template: WorkerTemplate,
) -> None:
    workers = [Worker("chores:carry_out", template=template) for _ in range(3)]
    pids = [worker.call({"do": "tell pid"}, 30) for worker in workers]
    assert len(set(pids)) == 3
    for worker in workers:
        worker.close()
        worker.close()
    for pid in pids:
        wait_for(
            lambda pid=pid: (
                not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
            )
        )


def test_a_template_that_has_ended_forks_nothing_but_its_workers_go_on() -> None:
    if not POSSIBLE:
        pytest.skip("this system cannot pass file descriptors on")
    template = WorkerTemplate("chores:carry_out")
    with Worker("chores:carry_out", template=template) as worker:
        before = worker.call({"do": "tell pid"}, 30)
        template.close()
        assert worker.call({"do": "tell pid"}, 30) == before
        other = Worker("chores:carry_out", template=template)
        with pytest.raises(NNPipeError, match="from which workers are forked has ended"):
            other.call({"do": "tell pid"}, 30)
