"""A job is submitted, looked at, cancelled and resumed by one call each."""

from __future__ import annotations

import sys
import time

import pytest

from nnpipe.core.errors import ConfigError
from nnpipe.workflows.background_jobs import cancel_jobs, list_jobs, resume_job, submit_job

pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed")
if not sys.platform.startswith("linux"):
    pytest.skip("looks for processes in /proc", allow_module_level=True)

from nnpipe.experiment.database.database import RunDatabase

SCRIPT = """
import sys, time
if len(sys.argv) > 1:
    time.sleep(1000)
open("model.pt", "w").write("weights")
"""


@pytest.fixture
def database(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(SCRIPT)
    with RunDatabase(str(tmp_path / "runs.sqlite"), create=True) as database:
        yield database


def ended(database, job):
    for _ in range(600):
        (found,) = list_jobs(database, [job.id]).jobs
        if found.ended:
            return found
        time.sleep(0.1)
    raise AssertionError(f"{job.id} goes on")


def test_a_script_is_submitted_and_completes(database, tmp_path) -> None:
    job = submit_job(database, "train.py", outputs=["model.pt"])
    assert ended(database, job).state == "completed"
    assert (tmp_path / "model.pt").read_text() == "weights"
    assert (tmp_path / "runs.sqlite.jobs").is_dir()


@pytest.mark.slow
def test_a_job_is_cancelled_and_resumed_and_what_could_not_be_done_is_told(database) -> None:
    job = submit_job(database, "train.py", ["stay"], without_output=True, name="stays")
    found = cancel_jobs(database, ["stays"], grace=0)
    assert [each.state for each in found.jobs] == ["cancelled"]
    again, goes_on = resume_job(database, "stays")
    assert (again.id, again.attempt, goes_on) == (job.id, 2, False)
    done = submit_job(database, "train.py", without_output=True)
    ended(database, done)
    found = cancel_jobs(database, [done.id, job.id], grace=0)
    assert [each.id for each in found.jobs] == [job.id]
    assert "completed; there is nothing to cancel" in str(found.faults[done.id])


def test_a_script_without_an_output_is_refused_before_anything_begins(database) -> None:
    with pytest.raises(ConfigError, match="which file shows that it worked"):
        submit_job(database, "train.py")
    with pytest.raises(ConfigError, match="grace: expected 0 to 3600"):
        cancel_jobs(database, [], grace=-1)
    assert list_jobs(database).jobs == ()
