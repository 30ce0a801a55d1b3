"""Jobs on another machine: a real client and a real server, which knows nothing of nnpipe."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from nnpipe.core.errors import ConfigError
from nnpipe.experiment.database.jobs import JobRecord
from nnpipe.jobs.job_spec import JobSpec
from nnpipe.jobs.jobs import cancel, refresh, resume, submit
from nnpipe.jobs.place import JobError, Unreached
from nnpipe.jobs.place_address import create_place
from nnpipe.jobs.ssh import CommandConnection, Ssh
from nnpipe.scenarios._cli import job_progress

from .conftest import MARK, Desk, wait_for
from .test_local import FAMILY, WAITS

asyncssh = pytest.importorskip("asyncssh", reason="is the server")
SSH = shutil.which("ssh")
if SSH is None:
    pytest.skip("there is no ssh here", allow_module_level=True)

TELLS = (
    "import os\nopen(os.environ['NNPIPE_PROGRESS'], 'a').write('{\"fraction\": 0.5, "
    '"metrics": {"loss": 2}}\\n\')\n'
)


@dataclass(frozen=True)
class Machine:
    """Another machine, as far as one can tell."""

    desk: Desk
    address: str
    home: Path
    server: subprocess.Popen[str]

    def submit(self, text: str, *outputs: str, **more: object) -> JobRecord:
        work = {
            "file": self.desk.script(text, "train.py"),
            "outputs": outputs,
            "directory": self.desk.folder / "here",
        }
        return submit(
            self.desk.database,
            JobSpec(**{**work, "grace": 0.3, "python": sys.executable, **more}),  # type: ignore[arg-type]
            create_place(self.address),
        )

    def there(self, job: JobRecord, name: str) -> None:
        wait_for((self.home / job.folder / "work" / name).exists, f"{name} was never written")


@pytest.fixture
def machine(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    folder = desk.folder / "machine"
    (folder / "home").mkdir(parents=True)
    (desk.folder / "here").mkdir()
    for name in ("host", "user"):
        key = asyncssh.generate_private_key("ssh-ed25519")
        key.write_private_key(str(folder / name))
        key.write_public_key(str(folder / f"{name}.pub"))
        (folder / name).chmod(0o600)
    server = subprocess.Popen(
        [sys.executable, "-W", "ignore", str(Path(__file__).with_name("sshd.py")), str(folder)],
        stdout=subprocess.PIPE,
        text=True,
        env={name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", MARK)}
        | {MARK: desk.mark + "-there"},
    )
    try:
        assert server.stdout is not None
        port = server.stdout.readline().strip()
        (folder / "known").write_text(f"[127.0.0.1]:{port} {(folder / 'host.pub').read_text()}")
        (folder / "config").write_text(
            f"Host *\n  IdentityFile {folder / 'user'}\n  IdentitiesOnly yes\n  IdentityAgent "
            f"none\n"
            f"  UserKnownHostsFile {folder / 'known'}\n  GlobalKnownHostsFile /dev/null\n  "
            f"StrictHostKeyChecking yes\n"
        )
        # The user's own configuration would say such things; ssh finds that by the password file,
        # not by HOME.
        (folder / "bin").mkdir()
        (folder / "bin" / "ssh").write_text(f'#!/bin/sh\nexec {SSH} -F {folder / "config"} "$@"\n')
        (folder / "bin" / "ssh").chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}")
        there = Desk(desk.database, desk.folder, desk.mark + "-there")
        yield Machine(there, f"ssh://tester@127.0.0.1:{port}", folder / "home", server)
        wait_for(
            lambda: there.left() <= {server.pid},
            "the test left processes on the other machine",
            seconds=30.0,
        )
    finally:
        server.kill()
        server.communicate()


def left(machine: Machine) -> set[int]:
    return machine.desk.left() - {machine.server.pid}


def end_of(machine: Machine, job: JobRecord) -> JobRecord:
    database = machine.desk.database
    wait_for(lambda: refresh(database, database.jobs.get(job.id)).ended, "it never ended")
    wait_for(lambda: not left(machine), "processes are left")
    return database.jobs.get(job.id)


def test_a_job_from_its_submission_to_its_outputs(machine: Machine) -> None:
    data = machine.desk.folder / "data"
    (data / "deep").mkdir(parents=True)
    (data / "deep" / "x.txt").write_text("samples")
    text = (
        TELLS
        + "import sys, time\nprint('hello', sys.argv[1:], flush=True)\nopen('told', 'w').close()\n"
    )
    text += "while not os.path.exists('go'): time.sleep(0.01)\n"
    text += "os.mkdir('out'); open('out/model.pt', 'w').write(open('data/deep/x.txt').read())\n"
    (machine.home / "py").symlink_to(sys.executable)
    job = machine.submit(
        text, "out/model.pt", arguments=["a b", "$HOME", "'"], send=[data], python="./py"
    )
    assert job.place == machine.address
    machine.there(job, "told")
    seen = refresh(machine.desk.database, job)
    assert (seen.state, seen.fraction, dict(seen.run.statistics)) == (
        "in progress",
        0.5,
        {"loss": 2.0},
    )
    (machine.home / job.folder / "work" / "go").touch()
    job = end_of(machine, job)
    assert (job.state, job.settled, job.fraction) == ("completed", True, 1.0)
    assert (machine.desk.folder / "here" / "out" / "model.pt").read_text() == "samples"
    log = machine.desk.database.artifacts.path(job.id, "log.txt").read_text()
    assert log == "hello ['a b', '$HOME', \"'\"]\n"
    assert (machine.home / job.folder).stat().st_mode & 0o077 == 0


@pytest.mark.slow
def test_cancelling_ends_the_whole_family_there(machine: Machine) -> None:
    job = machine.submit(FAMILY + WAITS)
    machine.there(job, "begun")
    assert len(left(machine)) == 5
    job = cancel(machine.desk.database, job)
    assert job.state == "cancelled"
    assert end_of(machine, job).state == "cancelled"


@pytest.mark.slow
def test_what_fails_there_says_why_and_is_gone_on_with(machine: Machine) -> None:
    job = end_of(machine, machine.submit("raise SystemExit('no data')", "model.pt"))
    assert (job.state, job.run.reason) == ("failed", "the script ended with status 1")
    assert "no data" in machine.desk.database.artifacts.path(job.id, "log.txt").read_text()
    machine.desk.script("open('model.pt', 'w').write('x')", "train.py")
    job = end_of(machine, resume(machine.desk.database, job))
    assert (job.state, job.attempt) == ("completed", 2)
    assert (machine.desk.folder / "here" / "model.pt").read_text() == "x"


def test_a_job_outlives_the_line_to_it(machine: Machine) -> None:
    job = machine.submit(WAITS)
    machine.there(job, "begun")
    machine.server.kill()
    machine.server.wait()
    with pytest.raises(
        Unreached, match=r"ssh://tester@127.0.0.1:\d+: cannot be reached: .*refused"
    ):
        refresh(machine.desk.database, job)
    assert machine.desk.database.jobs.get(job.id).state == job.state
    assert len(left(machine)) == 3
    from nnpipe.jobs.agent.control import cancel as end_here

    end_here(machine.home / job.folder)


@pytest.mark.slow
@pytest.mark.parametrize("cut", [False, True])
def test_a_line_that_breaks_while_a_job_is_started_hides_no_job(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, cut: bool
) -> None:
    run = CommandConnection.run

    def breaks(self: CommandConnection, command: str, *more: Any) -> bytes:
        found = run(self, command, *more)
        if " start " in command:
            if cut:  # the exit status may have come all the same
                return found[: len(found) // 2]
            raise Unreached("ssh://box: cannot be reached: broken pipe")
        return found

    monkeypatch.setattr(CommandConnection, "run", breaks)
    with pytest.raises(JobError, match="whether the job was started, nnpipe jobs list will tell"):
        machine.submit(WAITS)
    (job,) = machine.desk.database.jobs.find()
    assert (job.state, job.settled) == ("creating", False)
    machine.there(job, "begun")
    wait_for(lambda: refresh(machine.desk.database, job).state == "initialising")
    job = cancel(machine.desk.database, job)
    assert (job.state, job.run.reason) == ("cancelled", "")


@pytest.mark.slow
def test_a_line_that_breaks_once_a_job_is_started_does_not_hide_that_it_is(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(*_: object, **__: object) -> object:
        raise Unreached("ssh://box: cannot be reached: broken pipe")

    with monkeypatch.context() as patch:
        patch.setattr(Ssh, "look", breaks)
        job = machine.submit(WAITS)
    assert job.state == "creating"
    machine.there(job, "begun")
    cancelled = cancel(machine.desk.database, job)
    with monkeypatch.context() as patch:
        patch.setattr(Ssh, "look", breaks)
        again = resume(machine.desk.database, cancelled)
    assert (again.state, again.attempt) == ("creating", 2)
    assert cancel(machine.desk.database, again).state == "cancelled"


@pytest.mark.slow
def test_a_line_that_breaks_while_a_storage_is_told_ends_no_watching(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    job = machine.submit("import os, time\nwhile not os.path.exists('go'): time.sleep(0.01)\n")

    def breaks(told: JobRecord) -> None:
        (machine.home / told.folder / "work" / "go").touch()
        raise Unreached("ssh://box: cannot be reached: broken pipe")

    monkeypatch.setattr(job_progress, "tell_storage", breaks)
    monkeypatch.setattr(job_progress, "_BETWEEN", -1.0)
    monkeypatch.setattr(job_progress, "_PAUSE_AFAR", 0.05)
    assert job_progress.show_job_progress(machine.desk.database, job) == 0
    assert "broken pipe; the job goes on, trying again" in capsys.readouterr().err


@pytest.mark.slow
def test_an_output_that_was_changed_after_the_end_is_not_taken(machine: Machine) -> None:
    waits = (
        "import os, time\nopen('begun', 'w').close()\nwhile not os.path.exists('go'): "
        "time.sleep(0.01)\n"
    )
    job = machine.submit(waits + "open('model.pt', 'w').write('x' * 9)", "model.pt")
    place = create_place(machine.address)
    machine.there(job, "begun")
    (machine.home / job.folder / "work" / "go").touch()
    wait_for(lambda: place.look(job.folder).ended)
    (machine.home / job.folder / "work" / "model.pt").write_text("y" * 9)
    with pytest.raises(JobError, match=r"model\.pt is not what the job left"):
        refresh(machine.desk.database, job)
    assert not (machine.desk.folder / "here" / "model.pt").exists()
    (machine.home / job.folder / "work" / "model.pt").write_text("y" * 10)
    with pytest.raises(JobError, match="another size"):
        refresh(machine.desk.database, job)
    assert not machine.desk.database.jobs.get(job.id).settled
    shutil.rmtree(machine.home / job.folder)
    with pytest.raises(JobError, match="is gone, and with it the job's outputs"):
        refresh(machine.desk.database, machine.desk.database.jobs.get(job.id))


@pytest.mark.slow
def test_an_interpreter_that_is_gone_for_a_while_ends_no_job(machine: Machine) -> None:
    python = machine.home / "it's py"
    python.symlink_to(sys.executable)
    job = machine.submit(WAITS, python="./it's py")
    machine.there(job, "begun")
    away = python.rename(machine.home / "away")
    with pytest.raises(JobError, match="it's py: not found"):
        refresh(machine.desk.database, job)
    assert not machine.desk.database.jobs.get(job.id).ended
    away.rename(python)
    assert cancel(machine.desk.database, job).state == "cancelled"


def test_what_cannot_work_there(machine: Machine) -> None:
    with pytest.raises(ConfigError, match="outputs lie in the job's folder; give a relative path"):
        machine.submit("pass", "/etc/passwd")
    with pytest.raises(JobError, match="not found"):
        machine.submit("pass", python="/nowhere/python")
    with pytest.raises(ConfigError, match="no such file or folder to send"):
        machine.submit("pass", send=[Path("/nowhere/data")])
    assert [job.state for job in machine.desk.database.jobs.find()] == ["failed"] * 3


def test_a_machine_whose_key_is_another_is_not_trusted(machine: Machine) -> None:
    other = asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode()
    known = machine.home.parent / "known"
    known.write_text(f"{known.read_text().split()[0]} {other}")
    with pytest.raises(JobError, match="cannot be reached: Host key verification failed"):
        machine.submit("pass")


@pytest.mark.parametrize(
    ("address", "target"),
    [
        ("ssh://box", ("box",)),
        ("ssh://me@box.example.org:2222", ("-p", "2222", "me@box.example.org")),
        ("ssh://[::1]:22/", ("-p", "22", "::1")),
        ("ssh://first.last@box", ("first.last@box",)),
    ],
)
def test_addresses(address: str, target: tuple[str, ...]) -> None:
    found = Ssh.at(address)
    assert (found.connection.target, found.address) == (target, address)


@pytest.mark.parametrize(
    "address",
    [
        "ssh://",
        "ssh://-oProxyCommand=x",
        "ssh://a b",
        "ssh://me@-x",
        "ssh://box/home",
        "ssh://$(x)",
    ],
)
def test_bad_addresses(address: str) -> None:
    with pytest.raises(ConfigError, match="expected ssh://HOST"):
        create_place(address)
