"""Folders go file by file, after everything was looked at."""

from __future__ import annotations

from pathlib import Path

import pytest

from nnpipe.core.errors import ConfigError, StorageError
from nnpipe.storage.storage import open_storage
from nnpipe.storage.transfers import to_fetch, to_publish


@pytest.fixture
def folder(tmp_path):
    for name in ("a", "train/b", "train/deep/c"):
        path = tmp_path / "folder" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return tmp_path / "folder"


def test_files_keep_their_place(folder, tmp_path):
    jobs = to_publish(folder, "digits/v1")
    assert [name for _, name in jobs] == [
        "digits/v1/a",
        "digits/v1/train/b",
        "digits/v1/train/deep/c",
    ]
    storage = open_storage(str(tmp_path / "store"))
    for path, name in jobs:
        storage.put("datasets", name, path)
    back = to_fetch(storage, "datasets", "digits/v1", tmp_path / "back")
    assert [
        (name, path.relative_to(tmp_path / "back").as_posix(), size) for name, path, size in back
    ] == [
        ("digits/v1/a", "a", 1),
        ("digits/v1/train/b", "train/b", 7),
        ("digits/v1/train/deep/c", "train/deep/c", 12),
    ]
    assert to_fetch(storage, "datasets", "", Path("x"))[0][1] == Path("x/digits/v1/a")


def test_what_cannot_be_published_stops_all(folder, tmp_path):
    (folder / "train" / ".DS_Store").touch()
    with pytest.raises(ConfigError, match=r"\.DS_Store.*no part may begin with a dot"):
        to_publish(folder, "x")
    (folder / "train" / ".DS_Store").unlink()
    (folder / "train" / "way").symlink_to(tmp_path)
    with pytest.raises(StorageError, match="way: a link"):
        to_publish(folder, "x")
    (tmp_path / "bare" / "inner").mkdir(parents=True)
    with pytest.raises(StorageError, match="no files in it"):
        to_publish(tmp_path / "bare", "x")


def test_the_folder_of_a_run_under_way_is_published_without_its_lock(folder):
    for name in (".lock", "train/.last.0123abcd.partial.state", "train/.b.0123abcd.partial"):
        (folder / name).touch()
    (folder / ".tried.0123abcd.partial" / "output").mkdir(parents=True)  # see replacing_folder
    (folder / ".tried.0123abcd.partial" / "output" / "1.txt").touch()
    assert [name for _, name in to_publish(folder, "x")] == ["x/a", "x/train/b", "x/train/deep/c"]
    (folder / ".locked").touch()
    with pytest.raises(ConfigError, match="no part may begin with a dot"):
        to_publish(folder, "x")


def test_foreign_names_in_a_store_lead_nowhere(tmp_path):
    (tmp_path / "store" / "datasets" / "x").mkdir(parents=True)
    (tmp_path / "store" / "datasets" / "x" / "a\\..\\b").touch()
    storage = open_storage(str(tmp_path / "store"))
    with pytest.raises(ConfigError, match=r"a file in .*must not hold"):
        to_fetch(storage, "datasets", "x", tmp_path / "back")
    with pytest.raises(StorageError, match="no files below 'y'"):
        to_fetch(storage, "datasets", "y", tmp_path / "back")
