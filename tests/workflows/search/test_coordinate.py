"""Searches by workers in processes of their own: some are killed, others meet errors."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.tools.installed import needs

from nnpipe.experiment.database.database import RunDatabase
from nnpipe.jobs.agent.processes import find_processes_with_variable
from nnpipe.scenarios.search import main
from nnpipe.searching.database_trials import DatabaseTrials

needs("optuna")
needs("sqlalchemy")
if not sys.platform.startswith("linux"):
    pytest.skip("looks for processes in /proc", allow_module_level=True)

MARK = "NNPIPE_TEST_WORKERS"
MODULE = """
import os, time

def slow(n, seconds=0.1):
    time.sleep(seconds)
    return n

def deadly(n):
    if n == 3:
        os._exit(9)
    return n

def broken(n):
    raise ValueError("out of cheese")
"""
SEARCH: dict[str, Any] = {
    "title": "workers",
    "function": "worked_on_module.slow",
    "objectives": {"value": "minimize"},
    "sampler": "random",
    "trials": 12,
    "space": {"n": {"kind": "int", "low": 0, "high": 99}},
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv("NNPIPE_RUNS", raising=False)
    monkeypatch.setenv(MARK, str(tmp_path))
    (tmp_path / "worked_on_module.py").write_text(MODULE, "utf-8")
    (tmp_path / "search.yaml").write_text(yaml.safe_dump(SEARCH), "utf-8")
    return tmp_path


def left(folder: Path) -> set[int]:
    return find_processes_with_variable(MARK, str(folder)) - {os.getpid()}


def workers(folder: Path) -> list[int]:
    found = []
    for pid in left(folder):
        # it has ended in the meantime
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if b"worker.py" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found


def _wait_for(condition: Callable[[], bool], seconds: float) -> None:
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit, f"it did not happen within {seconds} s"
        time.sleep(0.02)


@pytest.mark.slow
def test_a_killed_worker_is_started_again_and_each_trial_is_done_once(
    folder: Path, capsys: Any
) -> None:
    killed: list[int] = []

    def kill() -> None:
        while not killed:
            time.sleep(0.1)
            for pid in workers(folder)[:1]:
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)

    thread = threading.Thread(target=kill)
    thread.start()
    assert main(["search.yaml", "--workers", "2"]) == 0
    thread.join()
    assert killed
    assert "12 finished" in capsys.readouterr().out
    with RunDatabase("runs.sqlite") as database:
        trials = DatabaseTrials(database, "workers").trials()
        assert [trial.state for trial in trials] == ["finished"] * 12
        assert len({str(trial.configuration) for trial in trials}) == 12
        assert {job.state for job in database.jobs.find()} == {"completed"}


def test_a_worker_that_is_killed_while_it_starts_is_started_again(
    folder: Path, capsys: Any
) -> None:
    killed: set[int] = set()
    over = threading.Event()

    def kill_early() -> None:
        while len(killed) < 2 and not over.is_set():
            for pid in left(folder) - killed:
                with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                    if b"agent.pyz\0run" in Path(f"/proc/{pid}/cmdline").read_bytes():
                        os.kill(pid, signal.SIGKILL)
                        killed.add(pid)

    killer = threading.Thread(target=kill_early)
    killer.start()
    try:
        status = main(["search.yaml", "trials=2", "--database", "runs.sqlite", "--workers", "2"])
    finally:
        over.set()
        killer.join()
    told = capsys.readouterr()
    assert status == 0, told.err
    assert len(killed) == 2, told.err
    assert "2 finished" in told.out


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_workers_of_this_machine_end_with_the_command(folder: Path, number: int) -> None:
    command = [
        sys.executable,
        "-m",
        "nnpipe",
        "search",
        "search.yaml",
        "arguments.seconds=1",
        "--workers",
        "2",
    ]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen([*command, "--database", "runs.sqlite"], env=environment) as process:
        _wait_for(lambda: len(workers(folder)) == 2, 60)
        process.send_signal(number)
        assert process.wait(30) == (-number if number == signal.SIGKILL else 128 + number)
    _wait_for(lambda: not left(folder), 10)


@pytest.mark.slow
def test_an_error_of_the_function_ends_all_workers_with_one_line(folder: Path, capsys: Any) -> None:
    assert (
        main(["search.yaml", "function=worked_on_module.broken", "title=broken", "--workers", "2"])
        == 2
    )
    error = capsys.readouterr().err
    assert "the first 5 trials failed, the last one with ValueError: out of cheese" in error
    limit = time.monotonic() + 30
    while workers(folder):
        assert time.monotonic() < limit, "workers are left"
        time.sleep(0.1)


@pytest.mark.slow
def test_a_trial_that_kills_each_of_its_workers_fails_in_the_end(folder: Path, capsys: Any) -> None:
    changes = [
        "function=worked_on_module.deadly",
        "title=deadly",
        "space.n={kind: discrete, values: [1, 2, 3]}",
    ]
    assert main(["search.yaml", *changes, "--workers", "2"]) == 0
    assert "2 finished, 1 failed" in capsys.readouterr().out
    with RunDatabase("runs.sqlite") as database:
        (failed,) = [
            trial
            for trial in DatabaseTrials(database, "deadly").trials()
            if trial.state == "failed"
        ]
    assert failed.configuration == {"n": 3}
    assert failed.message == "its worker died in each of 6 attempts"


def test_workers_on_other_machines_need_a_database_that_they_can_reach(
    folder: Path, capsys: Any
) -> None:
    assert main(["search.yaml", "--on", "ssh:box"]) == 2
    error = capsys.readouterr().err
    assert "a file of SQLite is for one machine; workers on others need PostgreSQL" in error
    assert error.count("\n") == 1
