"""Jobs on this machine show the right state whatever is killed, and leave no process."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from nnpipe.core.errors import ConfigError
from nnpipe.experiment.configuration import Configuration
from nnpipe.experiment.database.database import RunDatabase
from nnpipe.jobs.agent import files
from nnpipe.jobs.agent.folder_lock import try_lock
from nnpipe.jobs.agent.processes import ProcessIdentity, get_process_state
from nnpipe.jobs.job_spec import JobSpec
from nnpipe.jobs.jobs import cancel, record_look, refresh, resume, submit
from nnpipe.jobs.local import LocalPlace
from nnpipe.jobs.place import JobError

from .conftest import Desk, wait_for

WRITES = "open('model.pt', 'w').write('weights')\n"

WAITS = "import time; open('begun', 'w').close(); time.sleep(1000)\n"

# A child that ignores SIGTERM, and one that left the session, the group and its parent.
FAMILY = """
import os, signal, subprocess, sys, time
code = '''
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open(%r, "w").close()
time.sleep(1000)
'''
subprocess.Popen([sys.executable, "-c", code % "stubborn"])
if not os.fork():
    os.setsid()
    if os.fork():
        os._exit(0)
    os.execv(sys.executable, [sys.executable, "-c", code % "runaway"])
while not (os.path.exists("stubborn") and os.path.exists("runaway")):
    time.sleep(0.01)
"""

looked_at = pytest.mark.usefixtures("settled_by_who_looks")


def processes_of(job) -> dict[str, dict[str, int]]:
    """Return who does a job, once all of them are known."""
    wait_for(lambda: (files.read(Path(job.folder), files.PROCESSES) or {}).get("script"))
    return files.read(Path(job.folder), files.PROCESSES) or {}


def kill(job, *names: str) -> None:
    told = processes_of(job)
    first, *others = [told[name]["pid"] for name in names]
    os.kill(first, signal.SIGKILL)
    for pid in others:
        with contextlib.suppress(ProcessLookupError):  # those who miss the first were quicker
            os.kill(pid, signal.SIGKILL)


@pytest.mark.slow
def test_it_is_known_when_a_job_worked_though_nobody_looked(desk: Desk) -> None:
    job = desk.end_of(
        desk.submit("import time; open('model.pt', 'w').write(str(time.time()))\n", "model.pt")
    )
    wrote = float((desk.folder / "model.pt").read_text())
    assert job.run.started is not None
    assert job.run.ended is not None
    assert job.run.started <= wrote <= job.run.ended


def test_a_job_that_writes_its_output_is_completed(desk: Desk) -> None:
    told = "import os; f = open(os.environ['NNPIPE_PROGRESS'], 'a')\n"
    told += (
        '[f.write(\'{"fraction": %s, "metrics": {"loss": %s}}\\n\' % (i / 4, 1 / i)) for i in '
        "(1, 2, 3)]\n"
    )
    job = desk.end_of(desk.submit(told + "print('hello')\n" + WRITES, "model.pt"))
    assert (job.state, job.run.status, job.fraction, job.run.reason) == (
        "completed",
        "completed",
        1.0,
        "",
    )
    assert job.settled
    (output,) = job.details["ended"]["outputs"]
    assert (output["path"], output["size"], output["fault"]) == ("model.pt", 7, "")
    rows = desk.database.figures.history(job.id, "progress").rows()
    assert [(row["fraction"], row["loss"]) for row in rows] == [
        (0.25, 1.0),
        (0.5, 0.5),
        (0.75, 1 / 3),
    ]
    assert desk.database.artifacts.path(job.id, "log.txt").read_text() == "hello\n"


@looked_at
def test_progress_is_seen_while_it_runs(desk: Desk) -> None:
    told = (
        "import os; open(os.environ['NNPIPE_PROGRESS'], 'w').write('{\"fraction\": "
        '0.25}\\n{"fraction": 0.\')\n'
    )
    job = desk.submit("import time; open('begun', 'w').close(); time.sleep(1000)")
    desk.there("begun")
    wait_for(lambda: refresh(desk.database, job).state == "initialising")
    other = desk.submit(told + "open('told', 'w').close()\n" + WAITS, name="other.py")
    desk.there("told")
    seen = refresh(desk.database, other)
    assert (seen.state, seen.fraction, seen.run.status) == ("in progress", 0.25, "running")
    with pytest.raises(ConfigError, match="is running"):
        desk.database.delete([other.id])
    assert cancel(desk.database, seen).fraction == 0.25
    cancel(desk.database, job)


@looked_at
@pytest.mark.parametrize(
    ("text", "outputs", "reason"),
    [
        ("raise SystemExit(3)", (), "the script ended with status 3"),
        ("import os; os.kill(os.getpid(), 11)", (), "the script was ended by SIGSEGV"),
        ("pass", ("model.pt",), "with status 0, but model.pt was not written"),
        ("open('model.pt', 'w')", ("model.pt",), "with status 0, but model.pt is empty"),
        (
            "import os; os.mkdir('model.pt')",
            ("model.pt",),
            "with status 0, but model.pt is no file",
        ),
        (
            "import os; os.mkfifo('model.pt')",
            ("model.pt",),
            "with status 0, but model.pt is no file",
        ),
        (WRITES + "raise SystemExit(1)", ("model.pt",), "the script ended with status 1"),
    ],
)
def test_what_did_not_work_is_failed_and_says_why(
    desk: Desk, text: str, outputs: tuple[str, ...], reason: str
) -> None:
    job = desk.end_of(desk.submit(text, *outputs))
    assert (job.state, job.run.status) == ("failed", "failed")
    assert reason in job.run.reason


@looked_at
def test_an_output_of_an_earlier_run_is_no_success(desk: Desk) -> None:
    assert desk.end_of(desk.submit(WRITES, "model.pt")).state == "completed"
    job = desk.end_of(desk.submit("pass", "model.pt"))
    assert job.state == "failed"
    assert "model.pt lay there before the job began, and was not written anew" in job.run.reason
    # The same bytes written anew are this run's.
    assert desk.end_of(desk.submit(WRITES, "model.pt")).state == "completed"
    other = "import os; s = os.stat('model.pt'); open('model.pt', 'r+').write('weighed'); "
    other += "os.utime('model.pt', ns=(s.st_atime_ns, s.st_mtime_ns))"
    # by its content, where all else is alike
    assert desk.end_of(desk.submit(other, "model.pt")).state == "completed"


@pytest.mark.slow
def test_a_killed_script_is_failed(desk: Desk) -> None:
    job = desk.submit(FAMILY + WAITS)
    desk.there("begun")
    kill(job, "script")
    job = desk.end_of(job)
    assert (job.state, job.run.reason[:34]) == ("failed", "the script was ended by SIGKILL, a")


@looked_at
@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (("supervisor",), "the process that supervised it was killed"),
        (("warden",), "the process that guarded its supervisor was killed"),
        (("warden", "supervisor"), "all its processes were killed"),
        (("supervisor", "script"), "the process that supervised it was killed"),
        (("warden", "supervisor", "script"), "all its processes were killed"),
    ],
)
def test_killed_supervisors_leave_a_failed_job_and_no_process(
    desk: Desk, names: tuple[str, ...], reason: str
) -> None:
    job = desk.submit(FAMILY + WAITS)
    desk.there("begun")
    assert len(desk.left()) == 5
    kill(job, *names)
    job = desk.end_of(job)
    assert (job.state, job.run.reason) == ("failed", reason)


@pytest.mark.slow
def test_the_end_is_recorded_though_nobody_looks(desk: Desk) -> None:
    job = desk.submit(WRITES, "model.pt")
    wait_for(lambda: desk.database.jobs.get(job.id).settled)
    assert desk.database.runs.get(job.id).status == "completed"
    wait_for(lambda: not desk.left())


@looked_at
def test_cancelling_ends_the_whole_family(desk: Desk) -> None:
    job = desk.submit(FAMILY + WAITS)
    desk.there("begun")
    job = cancel(desk.database, job)
    assert (job.state, job.run.status) == ("cancelled", "cancelled")
    desk.end_of(job)
    assert not Path(job.folder, files.CANCEL).exists()  # the request has been answered
    assert cancel(desk.database, job).state == "cancelled"


@looked_at
def test_a_script_that_ends_in_time_may_save_when_it_is_cancelled(desk: Desk) -> None:
    saves = "import signal, sys\ndef save(*_):\n    open('saved', 'w').write('x'); sys.exit(0)\n"
    job = desk.submit(saves + "signal.signal(signal.SIGTERM, save)\n" + WAITS, grace=60)
    desk.there("begun")
    assert cancel(desk.database, job).state == "cancelled"
    assert (desk.folder / "saved").exists()
    desk.end_of(job)


@pytest.mark.slow
def test_two_who_cancel_at_once(desk: Desk) -> None:
    job = desk.submit(FAMILY + WAITS)
    desk.there("begun")
    found = []

    def do() -> None:
        with RunDatabase(desk.folder / "runs.sqlite") as database:
            found.append(cancel(database, database.jobs.get(job.id)).state)

    threads = [threading.Thread(target=do) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == ["cancelled"] * 3
    assert desk.end_of(job).state == "cancelled"


@looked_at
def test_a_supervisor_that_does_not_hear_is_ended_with_the_job(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nnpipe.jobs.agent.control.SURELY", -5.0)  # do not wait long for it
    job = desk.submit(FAMILY + WAITS)
    desk.there("begun")
    told = processes_of(job)
    for name in ("warden", "supervisor", "script"):
        os.kill(told[name]["pid"], signal.SIGSTOP)
    assert cancel(desk.database, job).state == "cancelled"
    desk.end_of(job)


@looked_at
def test_what_has_ended_is_not_cancelled(desk: Desk) -> None:
    job = desk.end_of(desk.submit(WRITES, "model.pt"))
    with pytest.raises(ConfigError, match="is completed; there is nothing to cancel"):
        cancel(desk.database, job)
    assert desk.database.jobs.get(job.id).state == "completed"


@pytest.mark.slow
def test_a_machine_that_is_shut_down_does_not_cancel(desk: Desk) -> None:
    job = desk.submit(WAITS)
    desk.there("begun")
    os.kill(processes_of(job)["warden"]["pid"], signal.SIGTERM)
    job = desk.end_of(job)
    assert (job.state, job.run.reason) == (
        "failed",
        "it was told to end (SIGTERM), as when a machine is shut down",
    )


@looked_at
@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"started": 1.0}, "all its processes were killed"),
        ({"boot": "another"}, "the machine was restarted while it ran"),
    ],
)
def test_another_process_of_the_same_number_is_not_the_job(
    desk: Desk, changes: dict[str, object], reason: str
) -> None:
    job = desk.submit(WAITS)
    desk.there("begun")
    kill(job, "warden", "supervisor")
    wait_for(lambda: not desk.left())
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
    try:
        told = processes_of(job)
        for name in ("warden", "supervisor"):
            told[name] |= {"pid": other.pid, **changes}
        files.write(Path(job.folder), files.PROCESSES, told)
        assert not desk.database.jobs.get(job.id).ended
        job = refresh(desk.database, job)
        assert (job.state, job.run.reason) == ("failed", reason)
        assert other.poll() is None, "an innocent process was ended"
    finally:
        other.kill()
        other.wait()


@looked_at
def test_a_job_of_another_machine_is_left_alone(desk: Desk) -> None:
    job = desk.submit(WAITS)
    desk.there("begun")
    before = processes_of(job)
    files.write(
        Path(job.folder), files.PROCESSES, {n: v | {"host": "elsewhere"} for n, v in before.items()}
    )
    seen = refresh(desk.database, job)
    assert (seen.state, seen.ended) == ("initialising", False)
    assert "it runs on elsewhere" in seen.run.reason
    files.write(Path(job.folder), files.PROCESSES, before)
    assert cancel(desk.database, job).state == "cancelled"


@pytest.mark.slow
@looked_at
def test_several_at_once(desk: Desk) -> None:
    jobs = [
        desk.submit(
            f"open('{n}.pt', 'w').write('x'); raise SystemExit({n % 2})", f"{n}.pt", name=f"{n}.py"
        )
        for n in range(6)
    ]
    assert [desk.end_of(job).state for job in jobs] == ["completed", "failed"] * 3


def test_a_submitter_that_was_killed_leaves_no_job_that_seems_to_start(
    desk: Desk, monkeypatch
) -> None:
    from nnpipe.jobs import jobs

    monkeypatch.setattr(jobs.Place, "__init__", lambda self: None, raising=False)

    class Killed(jobs.Place):
        address = "here"

        def folder(self, job):
            return str(desk.folder / "jobs" / job)

        def start(self, *_):
            os._exit(9)

        look = cancel = resume = None

    pid = os.fork()
    if not pid:
        Killed.__abstractmethods__ = frozenset()
        jobs.submit(
            desk.database, jobs.JobSpec(file=desk.script("pass"), directory=desk.folder), Killed()
        )
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9
    (job,) = desk.database.jobs.find()
    assert (job.state, job.run.status) == ("creating", "created")
    job = refresh(desk.database, job)
    assert (job.state, job.run.reason) == (
        "failed",
        "it was never started: the command that submitted it was ended",
    )


@looked_at
def test_hostile_lines_do_not_stop_whoever_looks(desk: Desk) -> None:
    lines = [
        b"\xff\xfe",
        b"[" * 100_000,
        b"{}",
        b"null",
        b'{"fraction": 1e999}',
        b'{"fraction": true}',
        b'{"fraction": -1}',
        b'{"fraction": "0.5"}',
        b'{"metrics": [1]}',
        b'{"metrics": {"": 1, "a\\u0000": 2, "\\ud800": 3, "x": null}}',
        b"9" * 10_000,
        b'{"fraction": 0.75, "metrics": {"loss": NaN, "big": ' + b"9" * 400 + b"}}",
        b"x" * 200_000,
        b'{"fraction": 0.9, "metr',
    ]
    (desk.folder / "hostile").write_bytes(b"\n".join(lines))
    job = desk.submit(
        "import os; open(os.environ['NNPIPE_PROGRESS'], 'wb').write(open('hostile', 'rb').read())\n"
        + WAITS
    )
    desk.there("begun")
    seen = refresh(desk.database, job)
    assert (seen.state, seen.fraction) == ("in progress", 0.75)
    assert sorted(seen.run.statistics) == ["big", "loss"]
    assert cancel(desk.database, seen).state == "cancelled"


def test_a_folder_that_was_removed(desk: Desk) -> None:
    import shutil

    job = desk.submit(WAITS)
    desk.there("begun")
    # Its agent may be writing a file there just now, which would then be gone between being listed
    # and being removed.
    shutil.rmtree(Path(job.folder).rename(desk.folder / "removed"), ignore_errors=True)
    assert "is gone, and its processes go on" in refresh(desk.database, job).run.reason
    job = cancel(desk.database, job)
    wait_for(lambda: not desk.left())
    assert (job.state, job.run.reason) == ("failed", f"its folder {job.folder} is gone")


@looked_at
def test_it_is_gone_on_with(desk: Desk) -> None:
    text = (
        "import argparse, os, sys\np = argparse.ArgumentParser(); p.add_argument('--resume', "
        "action='store_true')\n"
    )
    text += (
        "p.add_argument('--progress')\na = p.parse_args()\nassert a.progress == "
        "os.environ['NNPIPE_PROGRESS']\n"
    )
    text += "print('resumed' if a.resume else 'fresh', flush=True)\n"
    text += "if not a.resume:\n    " + WRITES + "    sys.exit(1)\n"
    job = desk.end_of(desk.submit(text, "model.pt"))
    assert (job.state, job.attempt) == ("failed", 1)
    job = desk.end_of(resume(desk.database, job))
    # The first attempt wrote the file, and both are one job.
    assert (job.state, job.attempt, job.run.reason) == ("completed", 2, "")
    assert (Path(job.folder) / files.LOG).read_text() == "fresh\nresumed\n"
    assert json.loads((Path(job.folder) / "ended.1.json").read_text())["state"] == "failed"
    with pytest.raises(
        ConfigError, match="is completed; only what was cancelled or failed is resumed"
    ):
        resume(desk.database, job)


@pytest.mark.slow
def test_the_values_of_variables_stay_out_of_the_run_database(desk: Desk) -> None:
    text = "import os, sys\nprint(os.environ['A_SECRET'], os.environ.get('MORE'))\n" + WRITES
    text += "sys.exit('MORE' not in os.environ)\n"
    job = desk.end_of(desk.submit(text, "model.pt", environment={"A_SECRET": "salt-and-pepper"}))
    assert job.state == "failed"
    assert job.details["work"]["variables"] == ["A_SECRET"]
    job = desk.end_of(resume(desk.database, job, {"MORE": "vinegar"}))
    assert job.state == "completed"
    assert (
        Path(job.folder) / files.LOG
    ).read_text() == "salt-and-pepper None\nsalt-and-pepper vinegar\n"
    kept = [path for path in desk.folder.glob("runs*") if path.is_file()]
    assert kept
    assert not [
        path for path in kept if b"pepper" in path.read_bytes() or b"vinegar" in path.read_bytes()
    ]
    assert Path(job.folder).stat().st_mode & 0o077 == 0


@looked_at
def test_a_job_of_an_older_database_is_gone_on_with_and_its_values_are_removed(desk: Desk) -> None:
    text = "import os, sys; sys.exit(os.environ['A_SECRET'] != 'x')"
    job = desk.end_of(desk.submit(text, environment={"A_SECRET": "y"}))
    old = {name: value for name, value in job.details["work"].items() if name != "variables"}
    desk.database.jobs.record_state(
        job, job.state, details={"work": old | {"environment": {"A_SECRET": "x"}}}
    )
    job = desk.end_of(resume(desk.database, desk.database.jobs.get(job.id)))
    assert job.state == "completed"
    assert "environment" not in job.details["work"]


@pytest.mark.slow
def test_resuming_waits_for_a_supervisor_that_still_tells_of_the_end(desk: Desk) -> None:
    text = "import pathlib, sys\nif not pathlib.Path('again').exists():\n    sys.exit(1)\n" + WRITES
    job = desk.end_of(desk.submit(text, "model.pt"))
    assert job.state == "failed"
    (desk.folder / "again").touch()
    # as a supervisor has it that has written down the end and tells the run database
    lock = try_lock(Path(job.folder))
    assert lock is not None
    timer = threading.Timer(2.5, os.close, [lock])  # longer than anybody's patience who only looks
    timer.start()
    try:
        job = desk.end_of(resume(desk.database, job))
    finally:
        timer.join()
    assert (job.state, job.attempt) == ("completed", 2)


@looked_at
def test_what_runs_is_not_started_twice(desk: Desk) -> None:
    job = desk.submit(WAITS)
    desk.there("begun")
    with pytest.raises(ConfigError, match="only what was cancelled or failed is resumed"):
        resume(desk.database, job)
    cancel(desk.database, job)
    (desk.folder / "begun").unlink()
    found = []

    def do() -> None:
        with RunDatabase(desk.folder / "runs.sqlite") as database:
            try:
                found.append(resume(database, database.jobs.get(job.id)).attempt)
            except ConfigError as error:
                found.append(str(error))

    threads = [threading.Thread(target=do) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len([one for one in found if one == 2]) == 1, found
    desk.there("begun")
    assert len(desk.left()) == 3
    cancel(desk.database, desk.database.jobs.get(job.id))


@pytest.mark.parametrize(
    ("work", "message"),
    [
        ({"text": "def ("}, "train.py, line 1: no Python script"),
        ({"text": "pass", "grace": -1.0}, "grace: expected 0 to 3600 seconds"),
        ({"text": "pass", "directory": Path("/nowhere")}, "/nowhere: no such folder"),
        ({"text": "pass", "outputs": ("jobs",)}, "output jobs is a folder"),
        ({"text": "pass", "arguments": ("a\0",)}, "holds a NUL"),
    ],
)
def test_what_cannot_work_is_not_begun(desk: Desk, work: dict[str, object], message: str) -> None:
    (desk.folder / "jobs").mkdir()
    text = str(work.pop("text"))
    with pytest.raises(ConfigError, match=message):
        desk.submit(text, **work)
    assert desk.database.jobs.find() == []


@pytest.mark.slow
def test_an_interpreter_that_is_not_there_is_a_failed_job(desk: Desk) -> None:
    job = desk.end_of(desk.submit("pass", python="/nowhere/python"))
    assert (job.state, job.run.reason) == ("failed", "/nowhere/python: No such file or directory")


def test_who_a_process_is() -> None:
    from nnpipe.jobs.agent.processes import get_identity

    me = get_identity(os.getpid())
    assert me is not None
    assert get_process_state(me) == "alive"
    assert ProcessIdentity.from_json(me.to_json()) == me
    assert ProcessIdentity.from_json({"pid": "x"}) is None
    assert get_identity(2**22 + 1) is None


def test_a_machine_is_not_asked_about_a_job_that_has_ended_where_what_follows_may_wait(
    desk: Desk,
) -> None:
    run = desk.database.jobs.create("far", Configuration({}), place="ssh://127.0.0.1:1")
    desk.database.jobs.record_state(
        desk.database.jobs.get(run), "completed", folder=".nnpipe/jobs/x"
    )
    job = desk.database.jobs.get(run)
    with pytest.raises(JobError, match="ssh"):
        refresh(desk.database, job)
    assert refresh(desk.database, job, collect=False) == job


@looked_at
def test_an_attempt_that_could_not_be_started_hides_no_later_one(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    from nnpipe.jobs.agent import control

    job = desk.end_of(desk.submit("raise SystemExit(1)"))
    with monkeypatch.context() as patch:

        def refuse(*_: object) -> None:
            raise control.Refused("no more processes")

        patch.setattr(control, "_launch", refuse)
        with pytest.raises(JobError, match="no more processes"):
            resume(desk.database, job)
    assert (desk.database.jobs.get(job.id).state, desk.database.jobs.get(job.id).attempt) == (
        "failed",
        2,
    )
    desk.script("pass", "train.py")
    job = desk.end_of(resume(desk.database, desk.database.jobs.get(job.id)))
    assert (job.state, job.attempt) == ("completed", 3)


@looked_at
def test_it_is_gone_on_with_from_another_folder(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(desk.folder)
    desk.script("raise SystemExit(1)", "train.py")
    work = JobSpec(file=Path("train.py"), outputs=("model.pt",), directory=Path())
    job = desk.end_of(submit(desk.database, work, LocalPlace(Path("jobs"))))
    (desk.folder / "other").mkdir()
    monkeypatch.chdir(desk.folder / "other")
    desk.script(WRITES, "train.py")
    job = desk.end_of(resume(desk.database, job))
    assert job.state == "completed"
    assert (desk.folder / "model.pt").exists()


@pytest.mark.slow
def test_two_who_saw_a_job_at_different_times_leave_the_later_figures(desk: Desk) -> None:
    told = "import os, time\nfile = open(os.environ['NNPIPE_PROGRESS'], 'a')\n"
    told += (
        'for n in range(2):\n    print(f\'{{"metrics": {{"loss": {n}, "{n}": 0}}}}\', '
        "file=file, flush=True)\n"
    )
    told += (
        "    open(f'told {n}', 'w').close()\n    while not os.path.exists('go'): time.sleep(0.01)\n"
    )
    job = desk.submit(told)
    desk.there("told 0")
    known = desk.database.jobs.get(job.id)
    early = LocalPlace().look(known.folder)
    desk.script("", "go")
    ended = desk.end_of(job)
    assert dict(ended.run.statistics) == {"loss": 1.0, "1": 0.0, "0": 0.0}
    seen = record_look(desk.database, known, early)  # somebody who was slow to write it down
    assert (seen.state, seen.fraction, dict(seen.run.statistics)) == (
        "completed",
        1.0,
        dict(ended.run.statistics),
    )


@pytest.mark.slow
@looked_at
def test_a_script_that_invents_names_fills_no_database(desk: Desk) -> None:
    text = (
        "import json, os\nwith open(os.environ['NNPIPE_PROGRESS'], 'a') as file:\n    for n in "
        "range(30_000):\n"
    )
    text += (
        "        file.write(json.dumps({'fraction': n / 30_000, 'metrics': {f'name {n}': n}}) + "
        "'\\n')\n"
    )
    job = desk.end_of(desk.submit(text))
    assert job.state == "completed"
    assert 0 < len(job.run.statistics) <= 200
    history = list(desk.database.figures.history(job.id, "progress").rows())
    assert len(history) == 10_000
    assert history[-1]["fraction"] == 29_999 / 30_000
    assert len({name for row in history for name in row}) <= 201
