"""``nnpipe jobs`` starts, shows and ends jobs, and leaves them alone when it is stopped itself."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nnpipe.jobs.agent.processes import find_processes_with_variable
from nnpipe.jobs.agent.termination import end
from nnpipe.scenarios.jobs import main

pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed")
if not sys.platform.startswith("linux"):
    pytest.skip("looks for processes in /proc", allow_module_level=True)

MARK = "NNPIPE_TEST_MARK"

TRAIN = """
import json, os, sys, time
wanted = int(sys.argv[1])
for epoch in range(wanted):
    print("epoch", epoch, flush=True)
    with open(os.environ["NNPIPE_PROGRESS"], "a") as file:
        file.write(json.dumps({"fraction": (epoch + 1) / wanted, "metrics": {"loss": 1 / (epoch + 1)}}) + "\\n")
    if "--stay" in sys.argv:
        time.sleep(1000)
with open("model.pt", "w") as file:
    file.write("weights")
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(MARK, str(tmp_path))
    monkeypatch.setenv("NNPIPE_RUNS", str(tmp_path / "runs.sqlite"))
    (tmp_path / "train.py").write_text(TRAIN)
    yield tmp_path

    def left():
        return find_processes_with_variable(MARK, str(tmp_path)) - {os.getpid()}

    limit, pause = time.monotonic() + 30, 0.01
    while left() and time.monotonic() < limit:
        time.sleep(pause)
        pause = min(1.5 * pause, 0.25)
    survivors = left()
    end(left, 0.0)
    assert not survivors


def refused(capsys, *argv):
    assert main(argv) == 2
    told = capsys.readouterr().err.splitlines()[-1]
    assert told.startswith("nnpipe jobs: ")
    return told


def process(*argv, **options):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "nnpipe", "jobs", *argv],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        **options,
    )


def listed():
    assert main(["list", "--json", "list.json"]) == 0
    return json.loads(Path("list.json").read_text())["jobs"]


def test_a_job_from_its_submission_to_its_end(here, capsys):
    assert (
        main(
            ["submit", "train.py", "--output", "model.pt", "--name", "digits", "--watch", "--", "3"]
        )
        == 0
    )
    told = capsys.readouterr()
    identity = told.out.split()[0]
    assert "digits: completed 100% loss 0.3333\n  model.pt (7 bytes)\n" in told.out
    assert main(["list"]) == 0
    row = capsys.readouterr().out.splitlines()[1]
    assert row.split()[:5] == [identity, "digits", "here", "completed", "100%"]
    assert main(["logs", "digits"]) == 0
    assert capsys.readouterr().out == "epoch 0\nepoch 1\nepoch 2\n"
    assert main(["logs", identity, "--lines", "2", "--follow"]) == 0
    assert capsys.readouterr().out == "epoch 1\nepoch 2\n"
    assert main(["watch", identity]) == 0
    (job,) = listed()
    assert (job["state"], job["fraction"], job["metrics"]) == ("completed", 1.0, {"loss": 1 / 3})
    assert job["outputs"][0]["sha256"]
    assert "environment" not in job["work"]
    from nnpipe.scenarios.runs import main as runs

    capsys.readouterr()
    assert runs(["list"]) == 0
    assert "completed" in capsys.readouterr().out
    assert runs(["query", 'configuration.job.file ~ "/train.py"']) == 0
    assert identity in capsys.readouterr().out


def test_a_job_that_fails_shows_its_log_when_it_is_watched(here, capsys):
    (here / "train.py").write_text("print('\\x1b[2Jhi\\rbye'); import nowhere_at_all\n")
    assert main(["submit", "train.py", "--no-output", "--watch"]) == 1
    told = capsys.readouterr()
    assert "train.py: failed the script ended with status 1" in told.out
    assert "No module named 'nowhere_at_all'" in told.err
    assert "\x1b" not in told.err
    assert "\nbye\n" in told.err


@pytest.mark.slow
def test_ctrl_c_leaves_the_job_alone_and_says_so(here, capsys):
    assert main(["submit", "train.py", "--no-output", "--", "3", "--stay"]) == 0
    watching = process("watch", "train.py")
    assert watching.stderr.readline() != ""
    watching.send_signal(signal.SIGINT)
    assert "the job goes on; nnpipe jobs watch" in watching.communicate(timeout=120)[1]
    assert watching.returncode == 130
    following = process("logs", "train.py", "--follow")
    assert following.stdout.readline() == "epoch 0\n"
    following.send_signal(signal.SIGINT)
    assert "the job goes on" in following.communicate(timeout=120)[1]
    (job,) = listed()
    assert (job["state"], job["fraction"]) == ("in progress", 1 / 3)
    assert main(["cancel", "train.py"]) == 0
    assert main(["watch", "train.py"]) == 1
    assert "train.py: cancelled 33%" in capsys.readouterr().out


@pytest.mark.slow
def test_on_a_terminal_there_is_a_bar(here):
    import fcntl
    import pty
    import struct
    import termios

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = ["submit", "train.py", "--output", "model.pt", "--watch", "--", "4"]
    watching = subprocess.Popen(
        [sys.executable, "-m", "nnpipe", "jobs", *command],
        stdout=subprocess.PIPE,
        stderr=theirs,
        env=environment,
    )
    os.close(theirs)
    shown = b""
    try:
        while piece := os.read(ours, 4096):
            shown += piece
    except OSError:  # Linux's way to say that the other end is closed
        pass
    os.close(ours)
    assert b"train.py: completed 100%|" in watching.communicate()[0] + shown
    assert b"loss 0.25" in shown


@pytest.mark.slow
def test_a_killed_watcher_changes_nothing(here):
    watching = process(
        "submit", "train.py", "--no-output", "--watch", "--", "3", "--stay", start_new_session=True
    )
    while "in progress 33%" not in watching.stderr.readline():
        assert watching.poll() is None
    os.killpg(watching.pid, signal.SIGKILL)
    watching.communicate()
    (job,) = listed()
    assert job["state"] == "in progress"
    again = process("watch", job["id"])
    assert again.stderr.readline().startswith("train.py: in progress 33%")
    assert main(["cancel", job["id"][:8], "--grace", "0"]) == 0
    assert again.communicate(timeout=120)[0].startswith("train.py: cancelled 33%")
    assert again.returncode == 1


@pytest.mark.slow
def test_of_several_jobs_all_that_can_be_are_cancelled(here, capsys):
    for name, arguments in (("done", ["1"]), ("stays", ["3", "--stay"]), ("failed", ["x"])):
        watch = [] if "--stay" in arguments else ["--watch"]
        main(
            ["submit", "train.py", "--output", "model.pt", "--name", name, *watch, "--", *arguments]
        )
    capsys.readouterr()
    assert main(["cancel", "done", "stays", "failed", "--grace", "0"]) == 2
    told = capsys.readouterr()
    assert told.out.split(" ", 1)[1] == "stays: cancelled\n"
    assert [line.partition("is ")[2] for line in told.err.splitlines()] == [
        "completed; there is nothing to cancel",
        "failed; there is nothing to cancel",
    ]


def test_following_the_log_of_a_job_that_is_gone_ends(here, capsys):
    assert main(["submit", "train.py", "--output", "model.pt", "--", "3", "--stay"]) == 0
    while (job := listed()[0])["state"] != "in progress":  # before, files are still being written
        time.sleep(0.02)
    shutil.rmtree(job["folder"])
    end(lambda: find_processes_with_variable(MARK, str(here)) - {os.getpid()}, 0.0)
    assert main(["logs", "train.py", "--follow"]) == 0
    assert "is gone" in listed()[0]["reason"]


def test_resuming(here, capsys):
    assert main(["submit", "train.py", "--output", "model.pt", "--", "x"]) == 0
    assert main(["watch", "train.py"]) == 1
    (here / "train.py").write_text(TRAIN.replace("int(sys.argv[1])", "2"))
    assert main(["resume", "train.py", "--watch"]) == 0
    told = capsys.readouterr()
    assert "attempt 2" in told.out
    assert "the script has no argument --resume: it begins anew" in told.err
    assert main(["list"]) == 0
    assert "completed (2.)" in capsys.readouterr().out


def test_one_line_for_each_mistake(here, capsys):
    assert "no such run database" in refused(capsys, "list")
    assert not (here / "runs.sqlite").exists()
    assert "which file shows that it worked? name it with --output FILE" in refused(
        capsys, "submit", "train.py"
    )
    assert "train.px: no such file" in refused(capsys, "submit", "train.px", "--no-output")
    assert "name one script or pipeline file" in refused(capsys, "submit")
    assert "expected NAME=VALUE" in refused(
        capsys, "submit", "train.py", "--no-output", "--env", "x"
    )
    assert "mars://x: expected here, ssh:HOST" in refused(
        capsys, "submit", "train.py", "--no-output", "--on", "mars://x"
    )
    assert "no run or experiment is called 'train'" in refused(capsys, "watch", "train")
    assert "watch: name one job" in refused(capsys, "watch")
    assert "cancel: name a job" in refused(capsys, "cancel")
    assert "nothing may follow --" in refused(capsys, "cancel", "--", "x")
    (here / "bad.yaml").write_text("candidates: []\n")
    assert "bad.yaml: pipeline: " in refused(capsys, "submit", "bad.yaml")
    from nnpipe.experiment.database.database import RunDatabase

    with RunDatabase("runs.sqlite") as database:
        run = database.runs.create("no job")
    assert "is no job; nnpipe jobs list shows the jobs" in refused(capsys, "watch", run)
