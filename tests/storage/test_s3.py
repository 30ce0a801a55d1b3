"""What only S3 has: pages, parts, credentials, endpoints, buckets; on a local server of moto."""

from __future__ import annotations

import builtins
import urllib.request

import pytest

from nnpipe.core.errors import ConfigError, MissingDependency, StorageError
from nnpipe.storage import s3 as module
from nnpipe.storage.storage import open_storage


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"content")
    return path


def test_lists_all_of_2000_objects(s3):
    storage = open_storage("s3://crowded/team")
    assert [entry.name for entry in storage.entries("datasets")] == [
        f"x/{number:04}" for number in range(2000)
    ]


def test_more_objects_than_a_listing_takes_are_told(s3, monkeypatch):
    monkeypatch.setattr(module, "MAX_ENTRIES", 1500)
    with pytest.raises(StorageError, match="more than 1,500 files below 'datasets'"):
        open_storage("s3://crowded/team").entries("datasets")


def test_what_another_process_publishes_is_seen_at_once(s3, server, file):
    storage = open_storage(s3)
    assert storage.entries("datasets") == []
    address = f"{server}/{s3.removeprefix('s3://')}/datasets/new"
    urllib.request.urlopen(
        urllib.request.Request(address, data=b"x", method="PUT"), timeout=60
    ).close()
    assert [entry.name for entry in storage.entries("datasets")] == ["new"]
    assert storage.find("datasets", "new").tag


def test_large_files_go_in_parts_and_come_back(s3, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_PART", 5 << 20)
    large, told = tmp_path / "large", []
    with open(large, "wb") as handle:
        for number in range(11):
            handle.write(bytes([number]) * (1 << 20))
    storage = open_storage(s3)
    storage.put("datasets", "large", large, advance=told.append)
    assert len(told) > 1
    assert sum(told) == 11 << 20
    assert storage.get("datasets", "large", tmp_path / "back").size == 11 << 20
    assert (tmp_path / "back").read_bytes() == large.read_bytes()
    with pytest.raises(StorageError, match="taken"):
        storage.put("datasets", "large", large)


def test_an_upload_that_breaks_off_leaves_nothing(s3, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_PART", 5 << 20)
    large = tmp_path / "large"
    with open(large, "wb") as handle:
        handle.truncate(11 << 20)

    def stop(_: int) -> None:
        raise RuntimeError("tripped over the cable")

    storage = open_storage(s3)
    with pytest.raises(RuntimeError, match="tripped"):
        storage.put("datasets", "large", large, advance=stop)
    assert open_storage(s3).entries("datasets") == []


def test_the_endpoint_may_be_given(s3, server, file, monkeypatch):
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    storage = open_storage(s3, endpoint=server)
    storage.put("datasets", "x", file)
    assert storage.find("datasets", "x").size == 7


def test_a_missing_bucket_is_told(s3, file, tmp_path):
    storage = open_storage("s3://cellar/x")
    for act in (
        lambda: storage.put("datasets", "x", file),
        lambda: storage.entries("datasets"),
    ):
        with pytest.raises(StorageError, match="no such bucket"):
            act()
    with pytest.raises(StorageError, match="s3://cellar/x"):
        storage.get("datasets", "x", tmp_path / "back")


def test_missing_credentials_are_told(s3, file, monkeypatch):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(StorageError, match="credentials; set AWS_ACCESS_KEY_ID"):
        open_storage(s3).entries("datasets")


@pytest.mark.slow
def test_a_server_that_is_not_there_is_told(s3):
    with pytest.raises(StorageError, match=r"/datasets: .*connect"):
        open_storage(s3, endpoint="http://127.0.0.1:9").entries("datasets")


def test_keys_are_bounded_with_the_prefix(s3, file):
    storage = open_storage(f"{s3}/{'/'.join(['p' * 100] * 5)}")
    with pytest.raises(ConfigError, match="1024 bytes of a key"):
        storage.put("untrained-models", "/".join(["x" * 101] * 5), file)


def test_without_s3fs_it_says_what_to_install(monkeypatch):
    real = builtins.__import__

    def without(name, *arguments, **named):
        if name == "s3fs":
            raise ImportError("No module named 's3fs'", name=name)
        return real(name, *arguments, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingDependency, match=r"pip install 'nnpipe\[s3\]'"):
        open_storage("s3://kitchen").entries("datasets")


@pytest.fixture
def bucket(server, s3):
    """A bucket with the word in its name."""
    name = "team-bucket"
    urllib.request.urlopen(
        urllib.request.Request(f"{server}/{name}", method="PUT"), timeout=60
    ).close()
    return f"s3://{name}"


def test_a_file_that_is_missing_is_told_as_such_whatever_the_bucket_is_called(bucket, tmp_path):
    storage = open_storage(bucket)
    assert storage.find("datasets", "gone") is None
    with pytest.raises(StorageError, match="has no file 'gone'"):
        storage.get("datasets", "gone", tmp_path / "back")


def test_a_file_that_is_missing_is_told_as_such_whatever_it_is_called(s3, file, tmp_path):
    storage = open_storage(s3)
    storage.put("datasets", "a-bucket-of-digits", file)
    assert storage.get("datasets", "a-bucket-of-digits", tmp_path / "back").size == 7
    assert storage.find("datasets", "no-such-bucket") is None
    with pytest.raises(StorageError, match="has no file 'no-such-bucket'"):
        storage.get("datasets", "no-such-bucket", tmp_path / "back")


def test_a_missing_bucket_is_told_whatever_is_asked(s3, tmp_path):
    storage = open_storage("s3://cellar")
    for act in (
        lambda: storage.entries("datasets"),
        lambda: storage.get("datasets", "x", tmp_path / "back"),
    ):
        with pytest.raises(StorageError, match="no such bucket"):
            act()
