from __future__ import annotations

import hashlib
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nnpipe.protocols._frame import Code
from nnpipe.protocols._payloads import Offer
from nnpipe.protocols._store import ModelStore, Refusal

PART = 4096
CONTENT = os.urandom(10 * PART + 123)


def offer(content: bytes = CONTENT, **description: object) -> Offer:
    return Offer(len(content), hashlib.sha256(content).digest(), {"suffix": ".fake", **description})


def send(store: ModelStore, content: bytes, begin: int, parts: int | None = None) -> None:
    for at in range(begin, len(content), PART)[:parts]:
        piece = content[at : at + PART]
        memory = store.buffer(8 + len(piece))
        memory[8:] = piece
        store.add(at, memory[8:])


def send_all(store: ModelStore, content: bytes) -> None:
    send(store, content, 0)
    store.finish()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ModelStore]:
    store = ModelStore(tmp_path, 1 << 20, PART)
    yield store
    store.abandon()


def test_a_model_is_kept_under_its_digest(store: ModelStore, tmp_path: Path) -> None:
    assert store.begin(offer()) == 0
    send(store, CONTENT, 0)
    path, digest = store.finish()
    assert path.read_bytes() == CONTENT
    assert path.parent == tmp_path
    assert path.name == digest[:16] + ".fake"
    assert digest == hashlib.sha256(CONTENT).hexdigest()
    assert [*tmp_path.iterdir()] == [path]


def test_a_model_is_kept_under_a_name_if_one_is_given(store: ModelStore, tmp_path: Path) -> None:
    store.begin(offer(name="my-model.fake"))
    send(store, CONTENT, 0)
    assert store.finish()[0] == tmp_path / "my-model.fake"


def test_a_file_that_was_named_is_written(tmp_path: Path) -> None:
    store = ModelStore(tmp_path / "new" / "model.bin", 1 << 20, PART)
    for content in (CONTENT, CONTENT[::-1]):
        store.begin(offer(content, name="ignored"))
        send(store, content, 0)
        assert store.finish()[0].read_bytes() == content
    assert [*(tmp_path / "new").iterdir()] == [tmp_path / "new" / "model.bin"]


@pytest.mark.parametrize("name", ["../up", "/etc/passwd", "a/b", ".hidden", "..", "x" * 200, "a\0b", "a b", 7, ["x"]])
def test_a_name_that_is_a_path_is_refused(store: ModelStore, name: object) -> None:
    with pytest.raises(Refusal) as caught:
        store.begin(offer(name=name))
    assert caught.value.failure.code == Code.MODEL


@pytest.mark.parametrize("suffix", ["/../x", ".a/b", "x", ".a.b.c", "." + "x" * 17, 5])
def test_a_suffix_that_is_none_is_refused(store: ModelStore, suffix: object) -> None:
    with pytest.raises(Refusal):
        store.begin(offer(suffix=suffix))


def test_what_has_come_is_not_sent_again(tmp_path: Path) -> None:
    first = ModelStore(tmp_path, 1 << 20, PART)
    first.begin(offer())
    send(first, CONTENT, 0, parts=4)
    first.abandon()
    second = ModelStore(tmp_path, 1 << 20, PART)
    had = second.begin(offer())
    assert had == 4 * PART
    send(second, CONTENT, had)
    path, _ = second.finish()
    assert path.read_bytes() == CONTENT
    assert ModelStore(tmp_path, 1 << 20, PART).begin(offer()) == len(CONTENT)


def test_a_model_that_is_there_is_used_again(tmp_path: Path) -> None:
    for _ in range(2):
        store = ModelStore(tmp_path, 1 << 20, PART)
        had = store.begin(offer())
        send(store, CONTENT, had)
        path, _ = store.finish()
    assert had == len(CONTENT)
    assert path.read_bytes() == CONTENT


def test_a_model_that_was_spoiled_on_the_disk_is_taken_anew(tmp_path: Path) -> None:
    store = ModelStore(tmp_path, 1 << 20, PART)
    store.begin(offer())
    send(store, CONTENT, 0)
    path, _ = store.finish()
    path.write_bytes(bytes(len(CONTENT)))
    assert store.begin(offer()) == 0
    send(store, CONTENT, 0)
    assert store.finish()[0].read_bytes() == CONTENT


def test_a_partial_file_that_was_spoiled_is_found_out_and_removed(tmp_path: Path) -> None:
    store = ModelStore(tmp_path, 1 << 20, PART)
    store.begin(offer())
    send(store, CONTENT, 0, parts=4)
    store.abandon()
    (partial,) = tmp_path.iterdir()
    partial.write_bytes(bytes(4 * PART))
    had = store.begin(offer())
    send(store, CONTENT, had)
    with pytest.raises(Refusal) as caught:
        store.finish()
    assert caught.value.failure.code == Code.DAMAGED
    assert store.begin(offer()) == 0
    send(store, CONTENT, 0)
    assert store.finish()[0].read_bytes() == CONTENT


def test_content_that_is_not_what_was_announced_is_refused(store: ModelStore, tmp_path: Path) -> None:
    store.begin(offer())
    send(store, bytes(len(CONTENT)), 0)
    with pytest.raises(Refusal) as caught:
        store.finish()
    assert caught.value.failure.code == Code.DAMAGED
    assert [*tmp_path.iterdir()] == []


def test_a_file_that_ends_too_early_is_refused(store: ModelStore) -> None:
    store.begin(offer())
    send(store, CONTENT, 0, parts=3)
    with pytest.raises(Refusal, match="ends at byte"):
        store.finish()


@pytest.mark.parametrize("offset", [0, PART + 8, 1 << 62])
def test_parts_must_follow_one_another(store: ModelStore, offset: int) -> None:
    store.begin(offer())
    send(store, CONTENT, 0, parts=1)
    with pytest.raises(Refusal, match="comes next"):
        store.add(offset, CONTENT[:PART])


def test_more_than_was_announced_is_refused(store: ModelStore) -> None:
    store.begin(offer())
    send(store, CONTENT, 0)
    with pytest.raises(Refusal):
        store.add(len(CONTENT), b"more")


def test_a_model_that_is_too_large_is_refused_before_anything_is_written(store: ModelStore, tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="1,048,576") as caught:
        store.begin(Offer((1 << 20) + 1, bytes(32), {}))
    assert caught.value.failure.code == Code.NO_SPACE
    assert [*tmp_path.iterdir()] == []


def test_a_model_larger_than_the_disk_is_refused_at_once(tmp_path: Path) -> None:
    store = ModelStore(tmp_path, 1 << 62, PART)
    with pytest.raises(Refusal) as caught:
        store.begin(Offer(1 << 60, bytes(32), {}))
    assert caught.value.failure.code == Code.NO_SPACE


def test_a_disk_that_fills_up_is_a_refusal_and_leaves_no_rest(tmp_path: Path) -> None:
    """A limit on file sizes stands for a full disk: the write fails in the middle, whoever is root."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    store = ModelStore(tmp_path, 1 << 20, PART)
    store.begin(offer())
    resource.setrlimit(resource.RLIMIT_FSIZE, (3 * PART + 100, before[1]))
    try:
        with pytest.raises(Refusal) as caught:
            send_all(store, CONTENT)
        store.abandon()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert caught.value.failure.code == Code.NO_SPACE
    assert [*tmp_path.iterdir()] == []
    assert store.begin(offer()) == 0
    send(store, CONTENT, 0)
    assert store.finish()[0].read_bytes() == CONTENT


@pytest.mark.skipif(os.getuid() != 0, reason="only root can mount a small disk")
def test_a_disk_that_is_really_full(tmp_path: Path) -> None:
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", tmp_path], capture_output=True).returncode:
        pytest.skip("this system does not let us mount a small disk")
    try:
        content = os.urandom(1 << 20)
        store = ModelStore(tmp_path, 1 << 30, PART)
        (tmp_path / "other").write_bytes(bytes(900 << 10))
        with pytest.raises(Refusal) as caught:
            store.begin(offer(content))
        assert caught.value.failure.code == Code.NO_SPACE
        (tmp_path / "other").unlink()
        store.begin(offer(content))
        (tmp_path / "other").write_bytes(bytes(1500 << 10))  # it fills up only now
        with pytest.raises(Refusal) as caught:
            send_all(store, content)
        assert caught.value.failure.code == Code.NO_SPACE
        store.abandon()
        assert [*tmp_path.iterdir()] == [tmp_path / "other"]
    finally:
        subprocess.run(["umount", tmp_path], check=True)


def test_a_folder_that_cannot_be_written_is_a_refusal() -> None:
    store = ModelStore(Path("/proc/nnpipe/model"), 1 << 20, PART)
    with pytest.raises(Refusal) as caught:
        store.begin(offer())
    assert caught.value.failure.code == Code.MODEL


def test_an_empty_model_is_a_model(store: ModelStore) -> None:
    assert store.begin(offer(b"")) == 0
    assert store.finish()[0].read_bytes() == b""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is reserved")
def test_no_more_room_is_kept_than_was_written(tmp_path: Path) -> None:
    """Room is reserved ahead of the writing: what was not needed is given back when the upload breaks off."""
    content = os.urandom(3 << 20)
    store = ModelStore(tmp_path, 1 << 30, 1 << 20)
    store.begin(offer(content))
    memory = store.buffer(8 + (1 << 20))
    memory[8:] = content[: 1 << 20]
    store.add(0, memory[8:])
    (partial,) = tmp_path.iterdir()
    reserved = partial.stat().st_blocks * 512
    store.abandon()
    kept = partial.stat()
    assert kept.st_size == 1 << 20
    assert kept.st_blocks * 512 <= (1 << 20) + (64 << 10)
    if reserved <= kept.st_blocks * 512:
        pytest.skip("this file system does not reserve room")
    assert reserved <= len(content) + (64 << 10)
