"""The folder of a run: names, who may write there, what lies in it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnpipe.core.errors import ConfigError
from nnpipe.training.run_folder import RunFolder, make_file_name

COURSE = {"seed": 1, "splits": ("train",)}


def written(path: Path, text: str = "x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@given(st.lists(st.text(min_size=1, max_size=20), min_size=1, max_size=3))
def test_whatever_the_parts_a_name_is_that_of_one_file_in_its_folder(parts: list[str]) -> None:
    folder = RunFolder(Path("/run"))
    assert folder.picture(*parts).parent == Path("/run/pictures")
    assert folder.table(*parts, ending="npz").parent == Path("/run/tables")
    assert make_file_name(make_file_name(*parts)) == make_file_name(*parts)


def test_naming_makes_nothing(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.picture("a")
    folder.checkpoint("last.state")
    assert [folder.pictures(), folder.tables(), folder.list_others()] == [[], [], []]
    assert not folder.path.exists()


def test_what_lies_in_it_is_listed_once(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    pictures = [written(folder.picture("b")), written(folder.picture("c", "d/e"))]
    tables = [written(folder.table("a")), written(folder.table("a", ending="txt"))]
    others = [
        written(folder.checkpoint("last.state")),
        written(folder.begun),
        written(folder.table("a", ending="npz")),
        written(folder.events),
        written(folder.get_projector_path("x/y", "tensors.tsv")),
    ]
    written(folder.page)
    written(tmp_path / "pictures" / ".b.abcd.partial.png")
    assert [path.name for path in pictures] == ["b.png", "c-d-e.png"]
    assert (folder.pictures(), folder.tables()) == (pictures, tables)
    assert sorted(folder.list_others()) == sorted(others)


def test_a_run_is_continued_only_as_it_was_begun(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "new" / "run")
    for _ in range(2):
        with folder.lock_for_training(COURSE, resume=True):
            assert json.loads(folder.begun.read_text()) == {"seed": 1, "splits": ["train"]}
    with pytest.raises(
        ConfigError,
        match=(
            r"run\.json: this run was started with different settings: seed was 1 and is 2; use "
            r"another"
        ),
    ):
        with folder.lock_for_training({**COURSE, "seed": 2}, resume=True):
            pytest.fail("was let in")
    assert json.loads(folder.begun.read_text())["seed"] == 1
    with folder.lock_for_training({**COURSE, "seed": 2}, resume=False):
        assert json.loads(folder.begun.read_text())["seed"] == 2


def test_of_a_run_that_begins_anew_nothing_of_the_one_before_is_left(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    theirs = [
        folder.picture("worst", "other"),
        folder.table("worst"),
        folder.table("e", ending="npz"),
        folder.events,
        folder.projector,
        folder.checkpoint("last.state"),
    ]
    with folder.lock_for_training(COURSE, resume=True):
        for path in theirs:
            written(path)
    mine = written(tmp_path / "pictures" / "notes.md")
    with folder.lock_for_training(COURSE, resume=True):
        assert all(path.exists() for path in theirs)
    with folder.lock_for_training(COURSE, resume=False):
        assert [path for path in theirs if path.exists()] == []
    assert mine.exists()


@pytest.mark.parametrize("text", ["{", "[]", '{"seed": ' + "1" * 2_000_000 + "}"])
def test_a_damaged_record_is_named(tmp_path: Path, text: str) -> None:
    folder = RunFolder(tmp_path)
    written(folder.begun, text)
    with (
        pytest.raises(ConfigError, match=r"run\.json is damaged"),
        folder.lock_for_training(COURSE, resume=True),
    ):
        pytest.fail("was let in")


@pytest.mark.parametrize("name", ["index.html", "model/theirs.h5", "pictures/holiday.png"])
@pytest.mark.parametrize("resume", [True, False])
def test_files_that_are_no_runs_are_not_written_over(
    tmp_path: Path, name: str, resume: bool
) -> None:
    written(tmp_path / name)
    with pytest.raises(
        ConfigError, match=f"{tmp_path} holds {name.partition('/')[0]} of something else"
    ):
        with RunFolder(tmp_path).lock_for_training(COURSE, resume=resume):
            pytest.fail("was let in")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [tmp_path / name]


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    path = written(tmp_path / "file")
    with pytest.raises(ConfigError, match="file is a file; a run needs a folder"):
        with RunFolder(path).lock_for_training(COURSE, resume=True):
            pytest.fail("was let in")


HOLDER = """
import sys, time
from pathlib import Path
from nnpipe.training.run_folder import RunFolder
with RunFolder(Path(sys.argv[1])).lock_for_training({"seed": 1}, resume=True):
    print("in", flush=True)
    time.sleep(600)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fcntl")
def test_two_trainings_do_not_share_a_folder_and_a_dead_one_gives_it_back(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", HOLDER, str(folder.path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "in\n"
            with pytest.raises(ConfigError, match="another training is writing into it"):
                with folder.lock_for_training({"seed": 1}, resume=True):
                    pytest.fail("was let in")
        finally:
            holder.send_signal(signal.SIGKILL)
    partial = written(folder.path / "tables" / ".history.12ab.partial.csv")
    whole = written(folder.table("history", ending="csv"))
    with folder.lock_for_training({"seed": 1}, resume=True):
        assert whole.exists()
        assert not partial.exists()
