"""Jobs of real processes; after each test none of them is left."""

from __future__ import annotations

import os
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from nnpipe.experiment.database.database import RunDatabase
from nnpipe.experiment.database.jobs import JobRecord
from nnpipe.jobs.agent import control
from nnpipe.jobs.agent.processes import find_processes_with_variable
from nnpipe.jobs.agent.termination import end
from nnpipe.jobs.job_spec import JobSpec
from nnpipe.jobs.jobs import refresh, submit
from nnpipe.jobs.local import LocalPlace

pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed")
if not sys.platform.startswith("linux"):
    pytest.skip("looks for processes in /proc", allow_module_level=True)

MARK = "NNPIPE_TEST_MARK"


def wait_for(what: Callable[[], object], said: str = "", seconds: float = 120.0) -> None:
    """Wait until something holds; a busy machine may take long, and looking more seldom leaves
    it more time.
    """
    limit, pause = time.monotonic() + seconds, 0.01
    while not what():
        assert time.monotonic() < limit, said or "it never came"
        time.sleep(pause)
        pause = min(1.5 * pause, 0.25)


@dataclass(frozen=True)
class Desk:
    """A run database, a folder of scripts, and a mark that all processes of the test's jobs
    bear.
    """

    database: RunDatabase
    folder: Path
    mark: str

    def left(self) -> set[int]:
        return find_processes_with_variable(MARK, self.mark) - {os.getpid()}

    def script(self, text: str, name: str = "train.py") -> Path:
        path = self.folder / name
        path.write_text(text)
        return path

    def submit(self, text: str, *outputs: str, name: str = "train.py", **more: object) -> JobRecord:
        work = {
            "file": self.script(text, name),
            "outputs": outputs,
            "directory": self.folder,
            "grace": 0.3,
            **more,
        }
        return submit(self.database, JobSpec(**work), LocalPlace(self.folder / "jobs"))  # type: ignore[arg-type]

    def there(self, name: str) -> None:
        """Wait for a file."""
        wait_for((self.folder / name).exists, f"{name} was never written")

    def end_of(self, job: JobRecord) -> JobRecord:
        """Wait for a job's end, and for that of all its processes."""
        wait_for(
            lambda: refresh(self.database, self.database.jobs.get(job.id)).ended, "it never ended"
        )
        wait_for(lambda: not self.left(), "processes are left")
        return refresh(self.database, self.database.jobs.get(job.id))


@pytest.fixture
def settled_by_who_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave what follows the end of a job to those who look at it.

    A job starts a process of nnpipe for this, too, which is most of what a test costs that looks
    for something else.
    """
    start = control.start
    monkeypatch.setattr(
        control, "start", lambda folder, job, way: start(folder, {**job, "afterwards": None}, way)
    )


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    mark = uuid.uuid4().hex
    monkeypatch.setenv(MARK, mark)
    with RunDatabase(tmp_path / "runs.sqlite") as database:
        made = Desk(database, tmp_path, mark)
        yield made
        try:
            wait_for(lambda: not made.left(), "the test left processes", seconds=30.0)
        finally:
            end(made.left, 0.0)
