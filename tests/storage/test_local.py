"""A folder holds whole files only, whatever else lies there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from nnpipe.core.errors import StorageError
from nnpipe.storage import store
from nnpipe.storage.storage import open_storage

SOURCE = str(Path(__file__).resolve().parents[2] / "src")


@pytest.fixture
def root(tmp_path):
    return tmp_path / "store"


@pytest.fixture
def storage(root):
    return open_storage(str(root))


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"content")
    return path


def test_lists_all_of_2000_files(root, storage):
    (root / "datasets" / "x").mkdir(parents=True)
    for number in range(2000):
        (root / "datasets" / "x" / f"{number:04}").touch()
    assert [entry.name for entry in storage.entries("datasets")] == [
        f"x/{number:04}" for number in range(2000)
    ]


def test_more_files_than_a_listing_takes_are_told(root, storage, file, monkeypatch):
    monkeypatch.setattr(store, "MAX_ENTRIES", 3)
    for number in range(4):
        storage.put("datasets", f"x/{number}", file)
    with pytest.raises(StorageError, match="more than 3 files below 'datasets'"):
        storage.entries("datasets")


def test_links_are_neither_listed_nor_followed(root, storage, file, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    (root / "datasets").mkdir(parents=True)
    (root / "datasets" / "way").symlink_to(outside)
    (root / "datasets" / "leaf").symlink_to(outside / "secret")
    assert storage.entries("datasets") == []
    assert storage.find("datasets", "leaf") is None
    with pytest.raises(StorageError, match="leads out of it"):
        storage.get("datasets", "way/secret", tmp_path / "back")
    with pytest.raises(StorageError, match="leads out of it"):
        storage.put("datasets", "way/new", file)
    assert [path.name for path in outside.iterdir()] == ["secret"]


def test_a_killed_writer_leaves_the_old_file_and_nothing_that_is_listed(
    root, storage, file, tmp_path
):
    storage.put("datasets", "x", file)
    code = """
import sys, time
from pathlib import Path
from nnpipe.storage.storage import open_storage
def stop(count):
    print("half", flush=True)
    time.sleep(600)
open_storage(sys.argv[1]).put("datasets", "x", Path(sys.argv[2]), replace=True, advance=stop)
"""
    large = tmp_path / "large"
    large.write_bytes(b"z" * 3_000_000)
    environment = {**os.environ, "PYTHONPATH": SOURCE}
    with subprocess.Popen(
        [sys.executable, "-c", code, str(root), str(large)],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as writer:
        assert writer.stdout.readline() == "half\n"
        writer.send_signal(signal.SIGKILL)
    assert [entry.name for entry in storage.entries("datasets")] == ["x"]
    storage.get("datasets", "x", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == b"content"


KILLED = """
import sys, time
from pathlib import Path
from nnpipe.storage.storage import open_storage
def stop(count):
    print("half", flush=True)
    time.sleep(600)
open_storage(sys.argv[1]).put("datasets", "a/x", Path(sys.argv[2]), replace=sys.argv[3] == "True", advance=stop)
"""
"""Writes half of a file, says so, and waits to be killed."""


@pytest.mark.parametrize("replace", [False, True])
def test_what_a_killed_writer_left_is_removed_by_the_next_who_looks(
    root, storage, tmp_path, replace
):
    pytest.importorskip("fcntl", reason="files cannot be locked here")
    large = tmp_path / "large"
    large.write_bytes(b"z" * 3_000_000)
    folder = root / "datasets" / "a"
    command = [sys.executable, "-c", KILLED, str(root), str(large), str(replace)]
    environment = {**os.environ, "PYTHONPATH": SOURCE}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as writer:
        try:
            assert writer.stdout.readline() == "half\n"
            (partial,) = folder.iterdir()
            os.utime(partial, (1, 1))
            assert storage.entries("datasets") == []
            assert partial.exists()  # somebody is writing it
        finally:
            writer.send_signal(signal.SIGKILL)
    os.utime(partial)
    storage.entries("datasets")
    assert partial.exists()  # perhaps another machine is writing it
    os.utime(partial, (1, 1))
    assert storage.entries("datasets") == []
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("replace", [False, True])
def test_what_a_killed_writer_left_is_removed_by_the_next_writer(root, storage, tmp_path, replace):
    pytest.importorskip("fcntl", reason="files cannot be locked here")
    large = tmp_path / "large"
    large.write_bytes(b"z" * 3_000_000)
    command = [sys.executable, "-c", KILLED, str(root), str(large), str(replace)]
    environment = {**os.environ, "PYTHONPATH": SOURCE}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as writer:
        assert writer.stdout.readline() == "half\n"
        (partial,) = (root / "datasets" / "a").iterdir()
        storage.put("datasets", "a/y", large)
        assert partial.exists()  # somebody is writing it
        writer.send_signal(signal.SIGKILL)
    storage.put("datasets", "a/x", large, replace=replace)
    assert sorted(path.name for path in (root / "datasets" / "a").iterdir()) == ["x", "y"]


def test_other_hidden_files_stay(root, storage, file):
    storage.put("datasets", "x", file)
    others = [
        root / "datasets" / name
        for name in (".lock", ".notes.partial", ".x.0123abcd.old", "x.0123abcd.partial")
    ]
    for other in others:
        other.touch()
        os.utime(other, (1, 1))
    storage.entries("datasets")
    assert all(other.exists() for other in others)


def test_a_file_where_a_folder_is_needed_is_one_line(storage, file, tmp_path):
    storage.put("datasets", "x", file)
    with pytest.raises(StorageError, match="datasets/x/y"):
        storage.put("datasets", "x/y", file)
    storage.put("datasets", "folder/y", file)
    with pytest.raises(StorageError, match="datasets/folder"):
        storage.put("datasets", "folder", file, replace=True)
    assert [entry.name for entry in storage.entries("datasets")] == ["folder/y", "x"]


def test_without_hard_links_a_taken_name_is_still_refused(storage, file, monkeypatch):
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(store.os, "link", refuse)
    storage.put("datasets", "x", file)
    assert storage.find("datasets", "x").size == 7
    with pytest.raises(StorageError, match="taken"):
        storage.put("datasets", "x", file)


def test_a_folder_removed_while_its_next_file_is_copied_does_not_matter(storage, file):
    storage.put("datasets", "deep/old", file)
    storage.put(
        "datasets",
        "deep/new",
        file,
        advance=lambda _: storage.find("datasets", "deep/old") and _drop(storage),
    )
    assert [entry.name for entry in storage.entries("datasets")] == ["deep/new"]


def _drop(storage):
    storage.remove("datasets", "deep/old")
