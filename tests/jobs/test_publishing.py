"""What a job was, how far it is and what came of it lies on the shelves of a storage."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nnpipe.core.errors import ConfigError, StorageError
from nnpipe.jobs.jobs import cancel, refresh
from nnpipe.jobs.place import JobError
from nnpipe.jobs.publishing import build_folder_name, map_published_names, publish_end
from nnpipe.storage.storage import open_storage

from .conftest import Desk, wait_for
from .test_local import WAITS, WRITES

TELLS = (
    "import os\nopen(os.environ['NNPIPE_PROGRESS'], 'a').write('{\"fraction\": 0.5, "
    '"metrics": {"loss": 2}}\\n\')\n'
)


def stored(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.slow
def test_a_completed_job_is_published(desk: Desk) -> None:
    place = desk.folder / "store"
    (desk.folder / "out").mkdir()
    text = TELLS + "print('hello')\n" + WRITES + "open('out/curve.csv', 'w').write('1,2')\n"
    outputs = ("model.pt", "out/curve.csv", str(desk.folder / "far.txt"))
    job = desk.submit(
        text + f"open({outputs[2]!r}, 'w').write('far')\n", *outputs, storage=str(place)
    )
    job = desk.end_of(job)
    assert (job.state, job.settled) == ("completed", True)
    found = stored(place)
    name = build_folder_name("train.py", job.id)
    assert name == f"train.py-{job.id[:12]}"
    assert set(found) == {
        f"training-scripts/{name}/train.py",
        *(f"training-progress/{name}/{file}" for file in ("progress.jsonl", "job.json")),
        *(
            f"training-results/{name}/{file}"
            for file in ("model.pt", "out/curve.csv", "far.txt", "log.txt", "job.json")
        ),
    }
    assert found[f"training-results/{name}/model.pt"] == b"weights"
    assert found[f"training-results/{name}/log.txt"] == b"hello\n"
    for shelf in ("training-progress", "training-results"):
        told = json.loads(found[f"{shelf}/{name}/job.json"])
        assert (told["state"], told["metrics"], len(told["outputs"])) == (
            "completed",
            {"loss": 2.0},
            3,
        )
    assert open_storage(str(place)).find("training-results", f"{name}/model.pt") is not None
    # What was changed since is not published in its name.
    (desk.folder / "model.pt").write_text("others")
    with pytest.raises(JobError, match=r"model\.pt is not what the job left"):
        publish_end(job, b"", b"")


@pytest.mark.slow
def test_progress_is_published_while_nobody_looks(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nnpipe.jobs.local._EVERY", 0.1)
    place = desk.folder / "store"
    job = desk.submit(TELLS + WAITS, "model.pt", storage=str(place), name="digits run.py")
    file = place / "training-progress" / build_folder_name("digits run.py", job.id) / "job.json"
    wait_for(lambda: file.exists() and json.loads(file.read_text())["state"] == "in progress")
    assert json.loads(file.read_text())["fraction"] == 0.5
    # told by the same process, and by nobody else
    assert desk.database.jobs.get(job.id).state == "in progress"
    cancel(desk.database, desk.database.jobs.get(job.id))
    desk.end_of(job)
    assert json.loads(file.read_text())["state"] == "cancelled"
    assert file.with_name("log.txt").exists()
    assert not (place / "training-results").exists()


def test_a_storage_that_cannot_be_written_to_is_found_out_before_the_job_starts(desk: Desk) -> None:
    (desk.folder / "store").write_text("a file")
    with pytest.raises(StorageError):
        desk.submit(WRITES, "model.pt", storage=str(desk.folder / "store"))
    (job,) = desk.database.jobs.find()
    assert job.state == "failed"
    assert refresh(desk.database, job).settled
    assert not (desk.folder / "model.pt").exists()


@pytest.mark.parametrize("name", ["../x", "...", "", "a/b\\c", "con", "é" * 300, "x" * 500, " -"])
def test_any_name_gives_a_folder(name: str) -> None:
    assert build_folder_name(name, "0123456789abcdef").endswith("-0123456789ab")


@pytest.mark.parametrize(
    "outputs", [["a/x", "/b/a/x", "/c/x", "x"], [".hidden"], ["log.txt"], ["/a/job.json"]]
)
def test_names_that_cannot_be_published(outputs: list[str]) -> None:
    with pytest.raises(ConfigError):
        map_published_names(outputs)
