"""What was read once is read from here, as long as its content is the one in the store."""

from __future__ import annotations

import os

import pytest

from nnpipe.storage.storage import Cache, Storage, open_storage
from nnpipe.storage.store import LocalStore


class Counting(LocalStore):
    """Counts how often a file is opened."""

    opened = 0

    def open(self, name):
        self.opened += 1
        return super().open(name)


@pytest.fixture
def storage(tmp_path):
    return Storage(Counting(tmp_path / "store"), Cache(tmp_path / "cache"))


@pytest.fixture
def put(storage, tmp_path):
    def put(name: str, content: bytes) -> None:
        source = tmp_path / "source"
        source.write_bytes(content)
        storage.put("datasets", name, source, replace=True)

    return put


@pytest.fixture
def get(storage, tmp_path):
    def get(name: str) -> bytes:
        storage.get("datasets", name, tmp_path / "back")
        return (tmp_path / "back").read_bytes()

    return get


def copies(storage):
    return [path for path in storage.cache.folder.rglob("*") if path.is_file() and not path.suffix]


def test_the_second_reading_opens_nothing(storage, put, get, tmp_path):
    put("x", b"one")
    assert get("x") == get("x") == b"one"
    assert storage.store.opened == 1
    told: list[int] = []
    storage.get("datasets", "x", tmp_path / "other", advance=told.append)
    assert sum(told) == 3
    assert storage.store.opened == 1


def test_new_content_of_the_same_size_is_fetched_and_replaces_the_copy(storage, put, get):
    put("x", b"one")
    assert get("x") == b"one"
    put("x", b"two")
    assert get("x") == b"two"
    assert storage.store.opened == 2
    assert [path.read_bytes() for path in copies(storage)] == [b"two"]


@pytest.mark.parametrize("damage", [b"onf", b"on", b""])
def test_a_damaged_copy_is_fetched_again(storage, put, get, damage):
    put("x", b"one")
    get("x")
    (copy,) = copies(storage)
    copy.write_bytes(damage)
    assert get("x") == b"one"
    assert storage.store.opened == 2
    assert copy.read_bytes() == b"one"


@pytest.mark.parametrize("note", ["", "{", "[]", '{"size": 3}', '{"size": "3", "sha256": 1}'])
def test_a_damaged_note_is_no_copy(storage, put, get, note):
    put("x", b"one")
    get("x")
    (copy,) = copies(storage)
    copy.with_suffix(".json").write_text(note)
    assert get("x") == b"one"


def test_what_was_used_longest_ago_makes_room(storage, put, get, tmp_path):
    storage = Storage(storage.store, Cache(tmp_path / "cache", limit=10))
    for age, name in enumerate("abc"):
        put(name, name.encode() * 4)
        storage.get("datasets", name, tmp_path / "back")
        for copy in copies(storage):
            if copy.read_bytes().startswith(name.encode()):
                os.utime(copy, (1000 + age, 1000 + age))
    assert sorted(path.read_bytes() for path in copies(storage)) == [b"bbbb", b"cccc"]
    storage.get("datasets", "b", tmp_path / "back")  # used again: now c is the oldest
    put("d", b"dddd")
    storage.get("datasets", "d", tmp_path / "back")
    assert sorted(path.read_bytes() for path in copies(storage)) == [b"bbbb", b"dddd"]


def test_a_file_larger_than_the_cache_is_still_read(storage, put, tmp_path):
    storage = Storage(storage.store, Cache(tmp_path / "cache", limit=1))
    put("x", b"one")
    storage.get("datasets", "x", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == b"one"


def test_stores_that_share_a_cache_are_told_apart(put, get, storage, tmp_path):
    put("x", b"one")
    get("x")
    other = Storage(LocalStore(tmp_path / "other"), storage.cache)
    (tmp_path / "source").write_bytes(b"two")
    other.put("datasets", "x", tmp_path / "source")
    other.get("datasets", "x", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == b"two"
    assert get("x") == b"one"


def test_objects_in_s3_are_known_by_their_etag(s3, tmp_path, monkeypatch):
    storage, source, back = (
        open_storage(s3, cache=tmp_path / "cache"),
        tmp_path / "source",
        tmp_path / "back",
    )
    fetched = []
    plain = Storage._fetch
    monkeypatch.setattr(Storage, "_fetch", lambda *given: fetched.append(given) or plain(*given))
    for content, count in ((b"one", 1), (b"one", 1), (b"two", 2), (b"two", 2)):
        source.write_bytes(content)
        storage.put("datasets", "x", source, replace=True)
        storage.get("datasets", "x", back)
        assert back.read_bytes() == content
        assert len(fetched) == count


def test_what_was_half_fetched_long_ago_goes(tmp_path, put, get):
    put("a", b"one")
    get("a")
    (folder,) = (tmp_path / "cache").iterdir()
    old, new = folder / ".x.0123abcd.partial", folder / ".y.0123abcd.partial"
    for path in (old, new):
        path.touch()
    os.utime(old, (1, 1))
    put("b", b"two")
    get("b")
    assert not old.exists()
    assert new.exists()
