"""Files by the hash of their content."""

from __future__ import annotations

from pathlib import Path

import pytest

from nnpipe.core.errors import StorageError
from nnpipe.storage.storage import SHELF, get_files, open_storage, put_files


def test_files_are_stored_once_and_come_back_under_their_names(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path / "store"))
    for name, text in (("a", "weights"), ("b", "weights"), ("c", "more")):
        (tmp_path / name).write_text(text)
    digest = put_files(
        storage, {"model.pt": tmp_path / "a", "again/model.pt": tmp_path / "b", "c": tmp_path / "c"}
    )
    assert len(storage.entries(SHELF)) == 3  # two contents and the list
    assert (
        put_files(
            storage,
            {"c": tmp_path / "c", "model.pt": tmp_path / "b", "again/model.pt": tmp_path / "a"},
        )
        == digest
    )
    found = get_files(storage, digest, tmp_path / "there")
    assert {name: path.read_text() for name, path in found.items()} == {
        "model.pt": "weights",
        "again/model.pt": "weights",
        "c": "more",
    }


def test_a_damaged_file_is_refused_and_one_that_was_changed_is_fetched_again(
    tmp_path: Path,
) -> None:
    storage = open_storage(str(tmp_path / "store"))
    (tmp_path / "a").write_text("weights")
    digest = put_files(storage, {"a": tmp_path / "a"})
    (tmp_path / "a").write_text("changed")
    assert get_files(storage, digest, tmp_path)["a"].read_text() == "weights"
    (content,) = [
        path
        for path in (tmp_path / "store").rglob("*")
        if path.is_file() and path.read_text() == "weights"
    ]
    content.write_text("WEIGHTS")
    with pytest.raises(StorageError, match="is damaged: its content has another hash"):
        get_files(storage, digest, tmp_path / "there")
    assert not (tmp_path / "there" / "a").exists()
