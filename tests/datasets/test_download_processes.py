"""Several processes, dying processes and interrupted processes share one folder without harm."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import nnpipe
from nnpipe.datasets._progress import file_lock

CONTENT = random.Random(0).randbytes(2_000_000)

needs_proc = pytest.mark.skipif(
    not Path("/proc/self/fd").exists(), reason="needs /proc to see which files a process has open"
)

FETCH = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a test run in the background ignores it, and so would this
from nnpipe.core.errors import NNPipeError
from nnpipe.datasets._download import RemoteFile, fetch
url, folder, sha256, size = sys.argv[1:]
try:
    print(fetch(RemoteFile("data.bin", (url,), sha256, int(size)), folder, timeout=20))
except NNPipeError as error:
    sys.exit(f"nnpipe: {error}")
"""


def start(url: str, folder: Path) -> subprocess.Popen[str]:
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(nnpipe.__file__).parents[1]),
        "no_proxy": "*",
    }
    arguments = [url, str(folder), hashlib.sha256(CONTENT).hexdigest(), str(len(CONTENT))]
    return subprocess.Popen(
        [sys.executable, "-c", FETCH, *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_until(condition, seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "did not happen in time"
        time.sleep(0.01)


def length_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


@needs_proc
def test_of_several_processes_one_downloads_and_all_find_the_file(new_server, tmp_path):
    everybody_is_here = threading.Event()

    def wait_in_the_middle(handler) -> None:
        handler.head(200, Content_Length=len(CONTENT))
        handler.body(CONTENT[:500_000])
        everybody_is_here.wait(20)
        handler.body(CONTENT[500_000:])

    server = new_server(CONTENT, default=wait_in_the_middle)
    processes = [start(server.url(), tmp_path) for _ in range(3)]
    # Waiting processes hold the lock file open; the one that downloads has created it.
    wait_until(lambda: sum(opens_the_lock(process.pid, tmp_path) for process in processes) == 3)
    time.sleep(0.2)  # from opening the lock file to asking for the lock
    everybody_is_here.set()
    outputs = [process.communicate(timeout=30) for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert {out.strip() for out, _ in outputs} == {str(tmp_path / "data.bin")}
    assert (tmp_path / "data.bin").read_bytes() == CONTENT
    assert server.bytes_sent == len(CONTENT)
    waiting = [
        err
        for _, err in outputs
        if "waiting for another process that is downloading data.bin" in err
    ]
    assert len(waiting) == 2
    assert not (tmp_path / ".data.bin.lock").exists()


def opens_the_lock(pid: int, folder: Path) -> bool:
    try:
        return any(
            entry.readlink() == folder / ".data.bin.lock"
            for entry in Path(f"/proc/{pid}/fd").iterdir()
        )
    except OSError:
        return False


@needs_proc
def test_proc_shows_open_files(tmp_path):
    with file_lock(tmp_path / ".data.bin.lock"):
        assert opens_the_lock(os.getpid(), tmp_path)


def test_after_kill_9_the_next_run_resumes(new_server, misbehaving, tmp_path):
    server = new_server(CONTENT, script=[misbehaving.stall_after(1_200_000, seconds=30)])
    partial = tmp_path / ".data.bin.partial"
    process = start(server.url(), tmp_path)
    wait_until(lambda: length_of(partial) >= 1_000_000)
    process.kill()
    process.communicate(timeout=10)
    assert not (tmp_path / "data.bin").exists()
    have = length_of(partial)
    assert (tmp_path / ".data.bin.lock").exists()  # left behind, but no longer held

    second = start(server.url(), tmp_path)
    _, err = second.communicate(timeout=20)
    assert second.returncode == 0, err
    assert "going on at" in err
    assert (tmp_path / "data.bin").read_bytes() == CONTENT
    assert server.seen[1].headers["Range"] == f"bytes={have}-"
    assert server.seen[1].body_bytes == len(CONTENT) - have
    assert [path.name for path in tmp_path.iterdir()] == ["data.bin"]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows knows no SIGINT for one process")
def test_ctrl_c_leaves_only_what_the_next_run_resumes(new_server, misbehaving, tmp_path):
    server = new_server(CONTENT, script=[misbehaving.stall_after(1_200_000, seconds=30)])
    process = start(server.url(), tmp_path)
    wait_until(lambda: length_of(tmp_path / ".data.bin.partial") >= 1_000_000)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=10)
    assert process.returncode != 0
    assert "KeyboardInterrupt" in err
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        ".data.bin.partial",
        ".data.bin.partial.json",
    ]
    second = start(server.url(), tmp_path)
    assert second.communicate(timeout=20)[0].strip() == str(tmp_path / "data.bin")
    assert server.seen[1].headers["If-Range"] == '"v1"'


@needs_proc
def test_a_process_that_waits_takes_over_when_the_other_is_killed(
    new_server, misbehaving, tmp_path
):
    server = new_server(CONTENT, script=[misbehaving.stall_after(1_200_000, seconds=30)])
    first = start(server.url(), tmp_path)
    wait_until(lambda: length_of(tmp_path / ".data.bin.partial") >= 1_000_000)
    second = start(server.url(), tmp_path)
    wait_until(lambda: opens_the_lock(second.pid, tmp_path))
    first.kill()
    first.communicate(timeout=10)
    out, err = second.communicate(timeout=20)
    assert second.returncode == 0, err
    assert Path(out.strip()).read_bytes() == CONTENT


def test_a_failure_is_one_line_on_the_command_line(new_server, misbehaving, tmp_path):
    server = new_server(CONTENT, default=misbehaving.status(404))
    process = start(server.url(), tmp_path)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 1
    assert err.splitlines()[-1].startswith("nnpipe: cannot download data.bin")
    assert "Traceback" not in err


def test_who_waited_for_a_removed_lock_file_joins_the_queue_for_the_new_one(tmp_path, monkeypatch):
    path, waits, entered, looks_again = (
        tmp_path / "lock",
        threading.Event(),
        threading.Event(),
        threading.Event(),
    )
    monkeypatch.setattr("nnpipe.datasets._progress.time.sleep", lambda _: looks_again.wait(10))

    def wait_and_enter() -> None:
        with file_lock(path, waits.set):
            entered.set()

    thread = threading.Thread(target=wait_and_enter)
    with file_lock(path):
        thread.start()
        assert waits.wait(10)
    with file_lock(path):  # a new file, made before the other thread looks again
        looks_again.set()
        assert not entered.wait(0.3)
    thread.join(10)
    assert entered.is_set()
    assert not path.exists()


def test_the_lock_lets_one_in_at_a_time(tmp_path):
    inside, most, waited = 0, 0, []

    def enter() -> None:
        nonlocal inside, most
        for _ in range(5):
            with file_lock(tmp_path / "lock", lambda: waited.append(1)):
                inside += 1
                most = max(most, inside)
                time.sleep(0.005)
                inside -= 1

    threads = [threading.Thread(target=enter) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1
    assert waited
    assert list(tmp_path.iterdir()) == []
