"""Files and folders go to a storage and come back, all of them or none."""

from __future__ import annotations

import doctest
from contextlib import contextmanager

import pytest

from nnpipe.core.errors import ConfigError, StorageError
from nnpipe.storage import transfers
from nnpipe.storage.storage import open_storage
from nnpipe.storage.transfers import get, put, remove


@pytest.fixture
def storage(tmp_path):
    return open_storage(str(tmp_path / "store"))


@pytest.fixture
def scans(tmp_path):
    (tmp_path / "scans" / "train").mkdir(parents=True)
    (tmp_path / "scans" / "train" / "0").write_bytes(b"0")
    (tmp_path / "scans" / "labels").write_bytes(b"labels")
    return tmp_path / "scans"


def test_the_examples_run() -> None:
    found = doctest.testmod(transfers)
    assert found.attempted
    assert not found.failed


def test_a_folder_goes_and_comes_back_and_progress_is_told_of_every_byte(
    storage, scans, tmp_path
) -> None:
    told = []

    @contextmanager
    def progress(what, total):
        yield lambda count: told.append((what, total, count))

    assert put(storage, scans, "datasets/a", progress=progress) == [
        "datasets/a/labels",
        "datasets/a/train/0",
    ]
    assert get(storage, "datasets/a/", tmp_path / "back", progress=progress) == [
        tmp_path / "back" / "labels",
        tmp_path / "back" / "train" / "0",
    ]
    assert (tmp_path / "back" / "labels").read_bytes() == b"labels"
    for what in ("put", "get"):
        assert sum(count for each, total, count in told if each == what and total == 7) == 7


def test_nothing_is_put_or_fetched_where_one_file_is_in_the_way(storage, scans, tmp_path) -> None:
    put(storage, scans / "labels", "datasets/a/labels")
    with pytest.raises(StorageError, match="a/labels: the name is taken; nothing was put"):
        put(storage, scans, "datasets/a")
    assert [entry.name for entry in storage.entries("datasets")] == ["a/labels"]
    put(storage, scans, "datasets/a", replace=True)
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "0").write_bytes(b"mine")
    with pytest.raises(StorageError, match="nothing was fetched"):
        get(storage, "datasets/a/", tmp_path)
    assert not (tmp_path / "labels").exists()
    assert (tmp_path / "train" / "0").read_bytes() == b"mine"


def test_nothing_is_removed_by_a_dry_run_or_where_one_file_is_missing(storage, scans) -> None:
    put(storage, scans, "datasets/a")
    assert remove(storage, ["datasets/a/"], dry_run=True) == [
        "datasets/a/labels",
        "datasets/a/train/0",
    ]
    with pytest.raises(StorageError, match="nothing was removed"):
        remove(storage, ["datasets/a/labels", "datasets/b"])
    assert len(storage.entries("datasets")) == 2
    remove(storage, ["datasets/a/labels"])
    assert [entry.name for entry in storage.entries("datasets")] == ["a/train/0"]


def test_an_unknown_shelf_and_a_wrong_kind_are_named(storage, scans) -> None:
    with pytest.raises(ConfigError, match="there is no shelf 'models'"):
        put(storage, scans, "models/a")
    with pytest.raises(ConfigError, match="remove: addresses takes"):
        remove(storage, "datasets/a")  # type: ignore[arg-type]
