"""Processes that are started for somebody end with whoever wanted them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from nnpipe.core.child_processes import get_signal_name, kill_group

pytestmark = pytest.mark.skipif(
    not hasattr(os, "killpg"), reason="the system has no groups of processes"
)

_FORKS = """
import os, sys, time
parent = os.getpid()
child = os.fork()
if child == 0:
    {before}
    time.sleep(60)
print(child, flush=True)
time.sleep({lives})
"""


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()[0] != b"Z"


def gone(pid: int) -> bool:
    end = time.monotonic() + 10
    while is_there(pid) and time.monotonic() < end:
        time.sleep(0.02)
    return not is_there(pid)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells of a parent's death")
@pytest.mark.parametrize("late", [False, True])
def test_a_child_dies_with_its_parent_even_if_it_asks_too_late(late):
    asks = "from nnpipe.core.child_processes import die_with_parent; die_with_parent(parent)"
    before = f"{'time.sleep(1); ' if late else ''}{asks}"
    program = _FORKS.format(before=before, lives=0 if late else 60)
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        if not late:
            time.sleep(1)
            assert is_there(child)
            parent.kill()
    assert gone(child)


def test_killing_a_group_kills_what_its_leader_started():
    program = _FORKS.format(before="pass", lives=60)
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, start_new_session=True
    ) as leader:
        assert leader.stdout is not None
        child = int(leader.stdout.readline())
        kill_group(leader)
        assert leader.returncode == -signal.SIGKILL
    assert gone(child)


def test_a_signal_without_a_name_is_told_by_its_number():
    assert get_signal_name(signal.SIGKILL) == "SIGKILL"
    assert get_signal_name(250) == "signal 250"


@pytest.mark.parametrize(("work", "status"), [("pass", 0), ("1 / 0", 1), ("sys.exit(0)", 1)])
def test_a_forked_process_ends_after_its_work_without_exit_handlers(work, status):
    program = f"""
import atexit, os, sys
from nnpipe.core.child_processes import run_forked
atexit.register(print, "an exit handler")
def work():
    print("worked")
    {work}
child = os.fork()
if child == 0:
    run_forked(work)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.split("\n") == ["worked", str(status), "an exit handler", ""]
    assert ("Traceback" in done.stderr) == (status != 0)
