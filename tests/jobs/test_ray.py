"""Jobs on a Ray cluster: a real one, of this machine alone."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from nnpipe.core.errors import ConfigError
from nnpipe.experiment.database.database import RunDatabase
from nnpipe.experiment.database.jobs import JobRecord
from nnpipe.jobs.agent.processes import find_processes_with_variable
from nnpipe.jobs.agent.supervisor import split_output
from nnpipe.jobs.job_spec import JobSpec
from nnpipe.jobs.jobs import cancel, refresh, resume, submit
from nnpipe.jobs.place import JobError
from nnpipe.jobs.place_address import create_place
from nnpipe.jobs.ray import RayCluster
from nnpipe.workflows.workers.worker_options import WorkerPlace

from .conftest import Desk, wait_for
from .test_local import FAMILY, WAITS, WRITES
from .test_ssh import TELLS

MARKED = "NNPIPE_TEST_RAY"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the address of a cluster of one machine."""
    pytest.importorskip("ray", reason="is the cluster")
    program = Path(sys.executable).with_name("ray")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder = Path("/tmp") / f"ray-{uuid.uuid4().hex[:8]}"  # paths of sockets are short
    environment = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "RAY_DISABLE_IMPORT_WARNING": "1"}
    head = subprocess.Popen(
        [
            program,
            "start",
            "--head",
            "--port=0",
            "--num-cpus=2",
            "--dashboard-host=127.0.0.1",
            "--block",
            f"--dashboard-port={port}",
            f"--temp-dir={folder}",
            "--object-store-memory=100000000",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment,
        start_new_session=True,
    )
    try:
        address = f"ray+http://127.0.0.1:{port}"
        limit = time.monotonic() + 180
        while True:
            try:
                with create_place(address)._client() as client:  # type: ignore[attr-defined]
                    client.list_jobs()
                break
            except JobError:
                assert head.poll() is None, "Ray ended"
                assert time.monotonic() < limit, "Ray does not start"
                time.sleep(0.5)
        yield address
    finally:
        head.terminate()
        try:
            head.wait(60)
        except subprocess.TimeoutExpired:
            head.kill()
        shutil.rmtree(folder, ignore_errors=True)


def end_of(desk: Desk, job: JobRecord, mark: str) -> JobRecord:
    wait_for(lambda: refresh(desk.database, desk.database.jobs.get(job.id)).ended, "it never ended")
    wait_for(lambda: not find_processes_with_variable(MARKED, mark), "processes are left")
    return refresh(desk.database, desk.database.jobs.get(job.id))


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.filterwarnings("ignore")
def test_jobs_on_a_cluster(cluster: str, desk: Desk) -> None:
    mark = uuid.uuid4().hex

    def work(text: str, *outputs: str, **more: object) -> JobSpec:
        given = {
            "file": desk.script(text, "train.py"),
            "directory": desk.folder,
            "outputs": outputs,
        }
        return JobSpec(**{**given, "python": sys.executable, "environment": {MARKED: mark}, **more})  # type: ignore[arg-type]

    # One that does its work.
    (desk.folder / "words.py").write_text("HELLO = 'hello'\n")
    text = TELLS + "from words import HELLO; print(HELLO)\n" + WRITES
    given = work(text, "model.pt", send=[desk.folder / "words.py"])
    job = end_of(desk, submit(desk.database, given, create_place(cluster)), mark)
    assert (job.state, job.fraction, dict(job.run.statistics)) == ("completed", 1.0, {"loss": 2.0})
    assert (desk.folder / "model.pt").read_text() == "weights"
    assert "hello\n" in desk.database.artifacts.path(job.id, "log.txt").read_text()
    # One that leaves an old file, and is gone on with.
    job = end_of(desk, submit(desk.database, work("pass", "model.pt"), create_place(cluster)), mark)
    assert (job.state, job.run.reason) == (
        "failed",
        "the script ended with status 0, but model.pt lay there before the job began, and was not "
        "written anew",
    )
    desk.script(WRITES, "train.py")
    # Ray keeps none, and neither do we
    with pytest.raises(ConfigError, match=f"--env {MARKED}=..."):
        resume(desk.database, job)
    job = end_of(desk, resume(desk.database, job, {MARKED: mark}), mark)
    assert (job.state, job.attempt, job.run.reason) == ("completed", 2, "")
    # One that is cancelled, with all that it started.
    job = submit(desk.database, work(TELLS + FAMILY + WAITS), create_place(cluster))
    desk.there("begun")
    wait_for(lambda: refresh(desk.database, job).fraction == 0.5)
    assert refresh(desk.database, job).state == "in progress"
    job = cancel(desk.database, desk.database.jobs.get(job.id))
    assert (job.state, job.run.reason) == ("cancelled", "")
    assert end_of(desk, job, mark).state == "cancelled"
    wait_for(lambda: not list(Path(tempfile.gettempdir()).glob("nnpipe-job-*")), "a folder is left")
    # One whose name Ray has forgotten.
    with create_place(cluster)._client() as client:  # type: ignore[attr-defined]
        client.delete_job(job.folder)
    assert create_place(cluster).look(job.folder).state == "absent"


def test_what_is_sent_and_what_the_job_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: dict[str, bytes] = {}
    asked: dict[str, object] = {}

    class Client:
        def submit_job(self, **given: object) -> None:
            folder = Path(given["runtime_env"]["working_dir"])  # type: ignore[index]
            sent.update(
                {
                    str(p.relative_to(folder)): p.read_bytes()
                    for p in folder.rglob("*")
                    if p.is_file()
                }
            )
            asked.update(given)

    monkeypatch.setattr(RayCluster, "_open_client", lambda self: contextlib.nullcontext(Client()))
    (tmp_path / "far" / "deep").mkdir(parents=True)
    (tmp_path / "far" / "deep" / "x.txt").write_text("samples")
    (tmp_path / "far" / "script").write_text("pass")
    (tmp_path / "data").symlink_to(tmp_path / "far")
    (tmp_path / "train.py").symlink_to(tmp_path / "far" / "script")
    work = JobSpec(
        file=tmp_path / "train.py", directory=tmp_path, python="py", send=[tmp_path / "data"]
    )
    create_place("ray+http://box").start("0123abcd", "0123abcd.2", work, {})
    assert (asked["submission_id"], asked["entrypoint"]) == (
        "0123abcd.2",
        "py -E agent.pyz carry .",
    )
    assert asked["entrypoint_num_cpus"] is None  # it runs on the head node
    assert json.loads(sent.pop("task.json"))["file"] == "train.py"
    assert sorted(sent) == ["agent.pyz", "data/deep/x.txt", "data/script", "train.py"]
    assert sent["train.py"] == b"pass"


def test_a_job_whose_node_died_has_ended_without_its_log(monkeypatch: pytest.MonkeyPatch) -> None:
    class Client:
        status = "FAILED"

        def get_job_info(self, job: str) -> object:
            return SimpleNamespace(
                status=self.status, message="its node died", end_time=2000, metadata={}
            )

        def get_job_logs(self, job: str) -> str:
            raise RuntimeError("Request failed with status code 500")

    monkeypatch.setattr(RayCluster, "_open_client", lambda self: contextlib.nullcontext(Client()))
    look = create_place("ray+http://box").look("0123abcd")
    assert (look.state, look.reason, look.log) == ("failed", "Ray: its node died", b"")
    monkeypatch.setattr(Client, "status", "RUNNING")
    with pytest.raises(RuntimeError, match="500"):
        create_place("ray+http://box").look("0123abcd")


def test_what_is_told_in_the_output_is_taken_out_of_it() -> None:
    text = (
        'a\n\x1e{"progress": "{}\\n"}\x1f\nb\x1e{"ended": {"state": '
        '"failed"}}\x1f\nc\x1e{no}\x1f\x1e{"ended": 1}\x1f'
    )
    assert split_output(text) == ("a\nbc", b"{}\n", {"state": "failed"})


def test_a_cluster_has_the_address_that_workers_of_searches_have() -> None:
    assert (
        create_place("ray://head").address
        == create_place("ray+http://head:8265").address
        == WorkerPlace.parse("ray://head").address
    )


@pytest.mark.parametrize(
    "address", ["ray+http://", "ray+ftp://x", "ray+http://a b", "ray+http://x:8265?y"]
)
def test_bad_addresses(address: str) -> None:
    with pytest.raises(ConfigError, match=r"Ray's dashboard|expected here"):
        create_place(address)


@pytest.mark.filterwarnings("ignore")
def test_a_cluster_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="Ray is not installed")
    script = tmp_path / "train.py"
    script.write_text("pass")
    with RunDatabase(tmp_path / "runs.sqlite") as database:
        with pytest.raises(JobError, match=r"ray\+http://127\.0\.0\.1:1: .*onnect"):
            submit(database, JobSpec(file=script), create_place("ray+http://127.0.0.1:1"))
        (job,) = database.jobs.find()
        assert job.state == "failed"
