"""However a command ends or its streams are, it keeps what it has done, and leaves no temporary
files.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import pytest
from tests.tools.installed import needs

needs("sqlalchemy")
if not hasattr(os, "fork"):
    pytest.skip("sends signals", allow_module_level=True)

MODULE = """import os, tempfile, time

def trained(n, seconds):
    with tempfile.NamedTemporaryFile():
        time.sleep(seconds)
    return n
"""
SEARCH = {
    "title": "ending",
    "function": "ending_trials.trained",
    "sampler": "random",
    "seed": 3,
    "trials": 200,
    "objectives": {"value": "minimize"},
    "arguments": {"seconds": 0.05},
    "space": {"n": {"kind": "int", "low": 0, "high": 10**6}},
}
ENDING = [signal.SIGTERM, signal.SIGHUP, signal.SIGINT]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "ending_trials.py").write_text(MODULE, "utf-8")
    (tmp_path / "search.json").write_text(json.dumps(SEARCH), "utf-8")
    (tmp_path / "temporary").mkdir()
    return tmp_path


def environment(folder: Path, **changes: str) -> dict[str, str]:
    paths = os.pathsep.join([str(folder), *filter(None, sys.path)])
    kept = {name: value for name, value in os.environ.items() if name != "NNPIPE_RUNS"}
    return {**kept, "PYTHONPATH": paths, "TMPDIR": str(folder / "temporary"), **changes}


def begin(folder: Path, arguments: Sequence[str], **settings: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "nnpipe", *arguments],
        cwd=folder,
        env=environment(folder),
        text=True,
        preexec_fn=hear_signals,
        **settings,
    )


def hear_signals() -> None:
    for number in ENDING:  # who runs the tests may have had some ignored
        signal.signal(number, signal.SIG_DFL)


def search(*changes: str) -> list[str]:
    return ["search", "search.json", *changes, "--database", "runs.sqlite"]


def read_until_trials(stream: IO[str], count: int) -> list[str]:
    found: list[str] = []
    while len(found) < count:
        line = stream.readline()
        assert line, "it ended by itself"
        if line.split()[:1] and line.split()[0].rstrip("*").isdigit():
            found.append(line)
    return found


@pytest.mark.parametrize("number", ENDING)
def test_a_signal_ends_a_command_like_ctrl_c(folder: Path, number: signal.Signals) -> None:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with begin(folder, search(), **pipes) as process:
        assert process.stdout is not None
        seen = read_until_trials(process.stdout, 3)
        process.send_signal(number)
        told, errors = process.communicate(timeout=30)
    assert process.returncode == 128 + number
    assert errors == "nnpipe search: stopped\n"
    assert list((folder / "temporary").iterdir()) == []
    known = len(seen) + sum(line.strip() != "" for line in told.splitlines())
    again = begin(folder, search(f"trials={known + 1}"), **pipes)
    told, errors = again.communicate(timeout=60)
    assert again.returncode == 0, errors
    assert f"{known + 1} finished" in told


def test_what_a_killed_command_left_is_removed_by_the_next_one_but_not_what_lives(
    folder: Path,
) -> None:
    with begin(folder, search("arguments.seconds=1"), stdout=subprocess.PIPE) as living:
        assert living.stdout is not None
        read_until_trials(living.stdout, 1)
        (kept,) = (folder / "temporary").iterdir()
        with begin(
            folder, ["search", "search.json", "title=other", "--database", "o.sqlite"], stdout=-1
        ) as process:
            assert process.stdout is not None
            read_until_trials(process.stdout, 1)
            process.kill()
        assert len(list((folder / "temporary").iterdir())) == 2
        assert begin(folder, ["list"], stdout=subprocess.DEVNULL).wait(60) == 0
        assert living.poll() is None
        assert list((folder / "temporary").iterdir()) == [kept]
        living.terminate()
        living.communicate(timeout=30)


def test_a_terminal_that_is_closed_ends_a_command_like_ctrl_c(folder: Path) -> None:
    import fcntl
    import pty
    import termios

    master, terminal = pty.openpty()

    def control() -> None:
        hear_signals()
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    process = subprocess.Popen(
        [sys.executable, "-m", "nnpipe", *search()],
        cwd=folder,
        env=environment(folder),
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        preexec_fn=control,
    )
    os.close(terminal)
    said = b""
    while b"trial" not in said:
        said += os.read(master, 4096)
    time.sleep(0.5)
    os.close(master)
    assert process.wait(30) == 128 + signal.SIGHUP
    assert list((folder / "temporary").iterdir()) == []


@pytest.mark.parametrize("after", [0.0, 0.3])
def test_ctrl_c_while_modules_are_imported_is_no_traceback(folder: Path, after: float) -> None:
    program = (
        "import sys, nnpipe.__main__ as command; print('begun', flush=True); "
        "sys.exit(command.main())"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, *search()],
        cwd=folder,
        env=environment(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=hear_signals,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        time.sleep(0.01 + after)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert errors in ("nnpipe: stopped\n", "nnpipe search: stopped\n")


@pytest.mark.parametrize("encoding", ["ascii", "gbk", "utf-8"])
def test_letters_that_the_output_lacks_are_replaced(folder: Path, encoding: str) -> None:
    (folder / "ending_trials.py").write_text("def trained(n):\n    return len(n)\n", "utf-8")
    space = {"n": {"kind": "discrete", "values": ["größe ☃", "weiß ☃"]}}
    content = {key: value for key, value in SEARCH.items() if key != "arguments"}
    (folder / "search.json").write_text(
        json.dumps({**content, "space": space, "trials": 2}), "utf-8"
    )
    done = subprocess.run(
        [sys.executable, "-m", "nnpipe", *search()],
        cwd=folder,
        capture_output=True,
        check=False,
        env=environment(folder, PYTHONIOENCODING=encoding, PYTHONUTF8="0"),
    )
    assert done.returncode == 0, done.stderr.decode()
    told = done.stdout.decode(encoding)
    assert "2 finished" in told
    assert ("☃" in told) == (encoding == "utf-8")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_do_no_harm(folder: Path, closed: str) -> None:
    words = " ".join([sys.executable, "-m", "nnpipe", *search("trials=3")])
    done = subprocess.run(
        ["sh", "-c", f"{words} {closed}"], cwd=folder, env=environment(folder), check=False
    )
    assert done.returncode == 0
    again = begin(folder, search("trials=3"), stdout=subprocess.PIPE)
    assert "3 finished" in again.communicate(timeout=60)[0]


def test_a_full_disk_is_one_line_and_no_failure_of_a_trial(folder: Path) -> None:
    full = """import errno, os, pathlib
def trained(n, seconds):
    if pathlib.Path("full").exists():
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "weights.bin")
    return n
"""
    (folder / "ending_trials.py").write_text(full, "utf-8")
    (folder / "full").touch()
    process = begin(folder, search("trials=3"), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 2
    assert (
        errors
        == "nnpipe search: weights.bin: No space left on device; make room, and repeat the command\n"
    )
    (folder / "full").unlink()
    again = begin(folder, search("trials=3"), stdout=subprocess.PIPE)
    assert "3 finished" in again.communicate(timeout=60)[0]
