"""A storage does the same on a folder and on a local S3 server."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from nnpipe.core.errors import ConfigError, NNPipeError, StorageError
from nnpipe.storage.storage import Storage, open_storage
from nnpipe.storage.store import SHELVES, FileChanged

SOURCE = str(Path(__file__).resolve().parents[2] / "src")

# Publishes files of one repeated letter under one name until told to stop.
_WRITER = """
import sys
from pathlib import Path
from nnpipe.storage.storage import open_storage
address, letter, folder = sys.argv[1:]
storage, source = open_storage(address), Path(folder) / letter
print("ready", flush=True)
sys.stdin.readline()
length = 400_000
while not (Path(folder) / "enough").exists():
    source.write_bytes(letter.encode() * length)
    storage.put("test-data", "shared/one.bin", source, replace=True)
    length = length + 1 if length < 400_019 else 400_000
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "lenet.pt"
    path.write_bytes(os.urandom(100_000))
    return path


def test_a_file_comes_back_from_every_shelf(storage, file, tmp_path):
    for shelf in SHELVES:
        told: list[int] = []
        storage.put(shelf.name, "cnn/lenet.pt", file, advance=told.append)
        assert sum(told) == 100_000
        assert [(e.name, e.size) for e in storage.entries(shelf.name)] == [
            ("cnn/lenet.pt", 100_000)
        ]
        assert abs(storage.find(shelf.name, "cnn/lenet.pt").changed - time.time()) < 3600
        told.clear()
        storage.get(shelf.name, "cnn/lenet.pt", tmp_path / "back", advance=told.append)
        assert (tmp_path / "back").read_bytes() == file.read_bytes()
        assert sum(told) == 100_000


def test_what_is_listed_is_what_lies_below(storage, file):
    for name in ("b/2", "b/1", "bb/3", "a"):
        storage.put("datasets", name, file)
    assert [entry.name for entry in storage.entries("datasets")] == ["a", "b/1", "b/2", "bb/3"]
    assert [entry.name for entry in storage.entries("datasets", "b")] == ["b/1", "b/2"]
    assert storage.entries("datasets", "a") == []
    assert storage.entries("datasets", "nowhere") == []
    assert storage.entries("plugins") == []


def test_a_taken_name_is_replaced_only_when_told(storage, file, tmp_path):
    storage.put("plugins", "p.py", file)
    other = tmp_path / "other"
    other.write_bytes(b"other")
    with pytest.raises(StorageError, match=r"plugins/p\.py: the name is taken"):
        storage.put("plugins", "p.py", other)
    storage.get("plugins", "p.py", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == file.read_bytes()
    storage.put("plugins", "p.py", other, replace=True)
    storage.get("plugins", "p.py", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == b"other"


def test_one_of_many_at_once_gets_a_free_name(storage, tmp_path):
    barrier, won, lost = threading.Barrier(8), [], []

    def publish(number: int) -> None:
        source = tmp_path / str(number)
        source.write_bytes(b"%d" % number)
        barrier.wait()
        try:
            storage.put("plugins", "p.py", source)
            won.append(number)
        except StorageError:
            lost.append(number)

    threads = [threading.Thread(target=publish, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert len(lost) == 7
    storage.get("plugins", "p.py", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == b"%d" % won[0]


def test_what_is_removed_is_gone_and_its_folder_may_become_a_file(storage, file):
    storage.put("datasets", "x/y/z", file)
    storage.remove("datasets", "x/y/z")
    assert storage.find("datasets", "x/y/z") is None
    assert storage.entries("datasets") == []
    with pytest.raises(StorageError, match="no file 'x/y/z'"):
        storage.remove("datasets", "x/y/z")
    storage.put("datasets", "x", file)
    assert [entry.name for entry in storage.entries("datasets")] == ["x"]


def test_a_missing_file_is_told_with_the_nearest_name(storage, file, tmp_path):
    storage.put("untrained-models", "lenet.pt", file)
    with pytest.raises(StorageError, match=r"no file 'lenet\.tp'; did you mean lenet\.pt\?"):
        storage.get("untrained-models", "lenet.tp", tmp_path / "back")
    with pytest.raises(ConfigError, match="no shelf 'dataset'; did you mean datasets"):
        storage.get("dataset", "x", tmp_path / "back")
    assert not (tmp_path / "back").exists()


@pytest.mark.parametrize("name", ["../x", "/x", "a\nb", ""])
def test_bad_names_reach_no_store(storage, file, tmp_path, name):
    for act in (
        lambda: storage.put("datasets", name, file),
        lambda: storage.get("datasets", name, tmp_path / "back"),
        lambda: storage.find("datasets", name),
        lambda: storage.remove("datasets", name),
    ):
        with pytest.raises(ConfigError, match="name"):
            act()


def test_sizes_are_bounded_before_anything_is_carried(storage, file, tmp_path):
    large = tmp_path / "large.py"
    with open(large, "wb") as handle:
        handle.truncate((16 << 20) + 1)
    with pytest.raises(
        StorageError, match=r"large\.py: 16,777,217 bytes; a file in plugins may have 16,777,216"
    ):
        storage.put("plugins", "large.py", large)
    assert storage.entries("plugins") == []
    storage.put("plugins", "p.py", file)
    told: list[int] = []
    with pytest.raises(StorageError, match="100,000 bytes, more than the 99,999 allowed"):
        storage.get("plugins", "p.py", tmp_path / "back", limit=99_999, advance=told.append)
    assert told == []
    assert not (tmp_path / "back").exists()


def test_files_that_are_not_there_or_empty(storage, tmp_path):
    with pytest.raises(StorageError, match="no such file"):
        storage.put("datasets", "x", tmp_path / "nowhere")
    (tmp_path / "empty").touch()
    storage.put("datasets", "empty", tmp_path / "empty")
    assert storage.get("datasets", "empty", tmp_path / "back").size == 0
    assert (tmp_path / "back").read_bytes() == b""


@pytest.mark.slow
def test_two_processes_write_one_name_and_no_reader_sees_a_mixture(address, tmp_path):
    environment = {**os.environ, "PYTHONPATH": SOURCE}
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", _WRITER, address, letter, str(tmp_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for letter in "ab"
    ]
    storage, back, seen, refused = open_storage(address), tmp_path / "back", set(), []
    try:
        for writer in writers:
            assert writer.stdout.readline() == "ready\n"
        for writer in writers:
            writer.stdin.write("go\n")
            writer.stdin.flush()
        while len(seen) < 10 or {letter for letter, _ in seen} != {b"a", b"b"}:
            assert [writer.poll() for writer in writers] == [None, None]
            try:
                entry = storage.get("test-data", "shared/one.bin", back)
            except StorageError as error:
                refused.append(str(error))
                continue
            content = back.read_bytes()
            assert set(content) in ({ord("a")}, {ord("b")})
            assert 400_000 <= len(content) == entry.size < 400_020
            seen.add((content[:1], len(content)))
        (tmp_path / "enough").touch()
        assert [writer.wait(60) for writer in writers] == [0, 0]
    finally:
        for writer in writers:
            writer.kill()
            writer.communicate()
    # Nothing published yet, or replaced each time: told, never a mixture.
    assert all("no file" in error or "replaced 10 times" in error for error in refused)
    assert [entry.name for entry in storage.entries("test-data")] == ["shared/one.bin"]


def test_an_object_replaced_between_two_blocks_is_never_mixed(storage, tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    old.write_bytes(b"o" * 9_000_000)  # three blocks
    new.write_bytes(b"n" * 9_000_000)
    storage.put("datasets", "x", old)

    def meddle(_: int) -> None:
        if not replaced:
            replaced.append(True)
            storage.put("datasets", "x", new, replace=True)

    replaced: list[bool] = []
    storage.get("datasets", "x", tmp_path / "back", advance=meddle)
    assert replaced
    assert len(set((tmp_path / "back").read_bytes())) == 1


def test_a_file_that_never_rests_is_told(storage, file, tmp_path, monkeypatch):
    storage.put("datasets", "x", file)

    def restless(*_: object) -> None:
        raise FileChanged

    monkeypatch.setattr(Storage, "_fetch", restless)
    (tmp_path / "back").write_bytes(b"old")
    with pytest.raises(StorageError, match="replaced 10 times"):
        storage.get("datasets", "x", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == b"old"


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("", "empty"),
        ("s3://", "s3://BUCKET/PREFIX"),
        ("s3://key:secret@bucket/x", "s3://BUCKET/PREFIX"),
        ("s3://bucket/../x", "no part may begin with a dot"),
        ("ftp://host/x", "ftp://: a storage is a folder"),
        ("file://host/x", "a storage is a folder"),
        ("a\nb", "control"),
    ],
)
def test_bad_addresses(address, told):
    with pytest.raises(ConfigError) as caught:
        open_storage(address)
    assert told in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_folder_has_no_endpoint_and_may_be_an_address(tmp_path):
    with pytest.raises(ConfigError, match="no endpoint"):
        open_storage(str(tmp_path), endpoint="http://localhost")
    assert open_storage(tmp_path.as_uri()).store.location == str(tmp_path)


def test_errors_are_of_nnpipe():
    assert issubclass(StorageError, NNPipeError)
