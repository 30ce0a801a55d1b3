from __future__ import annotations

import hashlib
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nnpipe.protocols.conversation.frame import ErrorCode
from nnpipe.protocols.conversation.payloads import ModelOffer
from nnpipe.protocols.server.model_store import ModelStore, Refusal, remove_leftovers

PART = 4096
CONTENT = os.urandom(10 * PART + 123)


def offer(content: bytes = CONTENT, **description: object) -> ModelOffer:
    return ModelOffer(
        len(content), hashlib.sha256(content).digest(), {"suffix": ".fake", **description}
    )


def send(store: ModelStore, content: bytes, begin: int, parts: int | None = None) -> None:
    for at in range(begin, len(content), PART)[:parts]:
        piece = content[at : at + PART]
        memory = store.buffer(8 + len(piece))
        memory[8:] = piece
        store.add(at, memory[8:])


def send_all(store: ModelStore, content: bytes) -> None:
    send(store, content, 0)
    store.finish()


def shown(folder: Path) -> list[Path]:
    """What is in a folder, but for the workers' own places."""
    return [path for path in folder.iterdir() if not path.name.startswith(".nnpipe-")]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ModelStore]:
    store = ModelStore(tmp_path, 1 << 20, PART)
    yield store
    store.close()


def test_a_model_is_kept_under_its_digest(store: ModelStore, tmp_path: Path) -> None:
    assert store.begin(offer()) == 0
    send(store, CONTENT, 0)
    kept = store.finish()
    path, digest = kept.path, kept.sha256
    assert path.read_bytes() == CONTENT
    assert path.parent == tmp_path
    assert path.name == digest[:16] + ".fake"
    assert digest == hashlib.sha256(CONTENT).hexdigest()
    assert shown(tmp_path) == [path]


def test_a_model_is_kept_under_a_name_if_one_is_given(store: ModelStore, tmp_path: Path) -> None:
    store.begin(offer(name="my-model.fake"))
    send(store, CONTENT, 0)
    assert store.finish().path == tmp_path / "my-model.fake"


def test_a_file_that_was_named_is_written(tmp_path: Path) -> None:
    store = ModelStore(tmp_path / "new" / "model.bin", 1 << 20, PART)
    for content in (CONTENT, CONTENT[::-1]):
        store.begin(offer(content, name="ignored"))
        send(store, content, 0)
        assert store.finish().path.read_bytes() == content
    assert shown(tmp_path / "new") == [tmp_path / "new" / "model.bin"]


@pytest.mark.parametrize(
    "name", ["../up", "/etc/passwd", "a/b", ".hidden", "..", "x" * 200, "a\0b", "a b", 7, ["x"]]
)
def test_a_name_that_is_a_path_is_refused(store: ModelStore, name: object) -> None:
    with pytest.raises(Refusal) as caught:
        store.begin(offer(name=name))
    assert caught.value.failure.code == ErrorCode.MODEL


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
    path = second.finish().path
    assert path.read_bytes() == CONTENT
    assert ModelStore(tmp_path, 1 << 20, PART).begin(offer()) == len(CONTENT)


def test_a_model_that_is_there_is_used_again(tmp_path: Path) -> None:
    for _ in range(2):
        store = ModelStore(tmp_path, 1 << 20, PART)
        had = store.begin(offer())
        send(store, CONTENT, had)
        path = store.finish().path
    assert had == len(CONTENT)
    assert path.read_bytes() == CONTENT


def test_a_model_that_was_spoiled_on_the_disk_is_taken_anew(tmp_path: Path) -> None:
    store = ModelStore(tmp_path, 1 << 20, PART)
    store.begin(offer())
    send(store, CONTENT, 0)
    path = store.finish().path
    path.write_bytes(bytes(len(CONTENT)))
    assert store.begin(offer()) == 0
    send(store, CONTENT, 0)
    assert store.finish().path.read_bytes() == CONTENT


def test_a_partial_file_that_was_spoiled_is_found_out_and_removed(tmp_path: Path) -> None:
    store = ModelStore(tmp_path, 1 << 20, PART)
    store.begin(offer())
    send(store, CONTENT, 0, parts=4)
    store.abandon()
    (partial,) = shown(tmp_path)
    partial.write_bytes(bytes(4 * PART))
    had = store.begin(offer())
    send(store, CONTENT, had)
    with pytest.raises(Refusal) as caught:
        store.finish()
    assert caught.value.failure.code == ErrorCode.DAMAGED
    assert store.begin(offer()) == 0
    send(store, CONTENT, 0)
    assert store.finish().path.read_bytes() == CONTENT


def test_content_that_is_not_what_was_announced_is_refused(
    store: ModelStore, tmp_path: Path
) -> None:
    store.begin(offer())
    send(store, bytes(len(CONTENT)), 0)
    with pytest.raises(Refusal) as caught:
        store.finish()
    assert caught.value.failure.code == ErrorCode.DAMAGED
    assert shown(tmp_path) == []


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


def test_a_model_that_is_too_large_is_refused_before_anything_is_written(
    store: ModelStore, tmp_path: Path
) -> None:
    with pytest.raises(Refusal, match="1,048,576") as caught:
        store.begin(ModelOffer((1 << 20) + 1, bytes(32), {}))
    assert caught.value.failure.code == ErrorCode.NO_SPACE
    assert shown(tmp_path) == []


def test_a_model_larger_than_the_disk_is_refused_at_once(tmp_path: Path) -> None:
    store = ModelStore(tmp_path, 1 << 62, PART)
    with pytest.raises(Refusal) as caught:
        store.begin(ModelOffer(1 << 60, bytes(32), {}))
    assert caught.value.failure.code == ErrorCode.NO_SPACE


def test_a_disk_that_fills_up_is_a_refusal_and_leaves_no_rest(tmp_path: Path) -> None:
    """A limit on file sizes stands for a full disk: the write fails in the middle, whoever is
    root.
    """
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
    assert caught.value.failure.code == ErrorCode.NO_SPACE
    assert shown(tmp_path) == []
    assert store.begin(offer()) == 0
    send(store, CONTENT, 0)
    assert store.finish().path.read_bytes() == CONTENT


@pytest.mark.skipif(os.getuid() != 0, reason="only root can mount a small disk")
def test_a_disk_that_is_really_full(tmp_path: Path) -> None:
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "none", tmp_path], capture_output=True
    ).returncode:
        pytest.skip("this system does not let us mount a small disk")
    try:
        content = os.urandom(1 << 20)
        store = ModelStore(tmp_path, 1 << 30, PART)
        (tmp_path / "other").write_bytes(bytes(900 << 10))
        with pytest.raises(Refusal) as caught:
            store.begin(offer(content))
        assert caught.value.failure.code == ErrorCode.NO_SPACE
        (tmp_path / "other").unlink()
        store.begin(offer(content))
        (tmp_path / "other").write_bytes(bytes(1500 << 10))  # it fills up only now
        with pytest.raises(Refusal) as caught:
            send_all(store, content)
        assert caught.value.failure.code == ErrorCode.NO_SPACE
        store.close()
        assert [*tmp_path.iterdir()] == [tmp_path / "other"]
    finally:
        subprocess.run(["umount", tmp_path], check=True)


def test_a_folder_that_cannot_be_written_is_a_refusal() -> None:
    store = ModelStore(Path("/proc/nnpipe/model"), 1 << 20, PART)
    with pytest.raises(Refusal) as caught:
        store.begin(offer())
    assert caught.value.failure.code == ErrorCode.MODEL


def test_an_empty_model_is_a_model(store: ModelStore) -> None:
    assert store.begin(offer(b"")) == 0
    assert store.finish().path.read_bytes() == b""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is reserved")
def test_no_more_room_is_kept_than_was_written(tmp_path: Path) -> None:
    """Space is reserved ahead of the writing: what was not needed is given back when the upload
    breaks off.
    """
    content = os.urandom(3 << 20)
    store = ModelStore(tmp_path, 1 << 30, 1 << 20)
    store.begin(offer(content))
    memory = store.buffer(8 + (1 << 20))
    memory[8:] = content[: 1 << 20]
    store.add(0, memory[8:])
    (partial,) = shown(tmp_path)
    reserved = partial.stat().st_blocks * 512
    store.abandon()
    kept = partial.stat()
    assert kept.st_size == 1 << 20
    assert kept.st_blocks * 512 <= (1 << 20) + (64 << 10)
    if reserved <= kept.st_blocks * 512:
        pytest.skip("this file system does not reserve room")
    assert reserved <= len(content) + (64 << 10)


# -- several at one folder, and what is left behind
# --------------------------------------------------


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[list[ModelStore]]:
    found = [ModelStore(tmp_path, 1 << 20, PART) for _ in range(2)]
    yield found
    for store in found:
        store.close()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".nnpipe-")]


def test_other_bytes_under_the_same_digest_by_another_server_change_nothing(
    stores: list[ModelStore],
) -> None:
    mine, others = stores
    mine.begin(offer())
    send(mine, CONTENT, 0, parts=4)
    assert others.begin(offer()) == 0
    send(others, bytes(len(CONTENT)), 0)
    send(mine, CONTENT, 4 * PART)
    kept = mine.finish()
    with pytest.raises(Refusal) as caught:
        others.finish()
    assert caught.value.failure.code == ErrorCode.DAMAGED
    assert kept.path.read_bytes() == kept.loadable.read_bytes() == CONTENT


def test_two_servers_can_take_the_same_model_at_once(stores: list[ModelStore]) -> None:
    for store in stores:
        store.begin(offer())
    for at in range(0, len(CONTENT), PART):
        for store in stores:
            store.add(at, CONTENT[at : at + PART])
    for store in stores:
        assert store.finish().loadable.read_bytes() == CONTENT


def test_a_model_is_loaded_though_another_has_got_its_name(stores: list[ModelStore]) -> None:
    kept = []
    for store, content in zip(stores, (CONTENT, CONTENT[::-1]), strict=True):
        store.begin(offer(content, name="model.fake"))
        send(store, content, 0)
        kept.append(store.finish())
    assert kept[0].path == kept[1].path
    assert kept[0].path.read_bytes() == kept[1].loadable.read_bytes() == CONTENT[::-1]
    assert kept[0].loadable.read_bytes() == CONTENT
    assert stores[0].begin(offer(name="model.fake")) == 0


def test_a_model_that_is_used_again_keeps_its_content(stores: list[ModelStore]) -> None:
    mine, others = stores
    mine.begin(offer(name="model.fake"))
    send_all(mine, CONTENT)
    assert mine.begin(offer(name="model.fake")) == len(CONTENT)
    others.begin(offer(CONTENT[::-1], name="model.fake"))
    send_all(others, CONTENT[::-1])
    assert mine.finish().loadable.read_bytes() == CONTENT


@pytest.mark.parametrize("kind", ["link", "hard link"])
def test_a_link_at_the_place_of_an_upload_is_not_followed(tmp_path: Path, kind: str) -> None:
    victim, kept = tmp_path / "victim", tmp_path / "kept"
    victim.write_bytes(b"not to be touched")
    kept.mkdir()
    partial = kept / f".{offer().sha256.hex()}.part"
    (partial.symlink_to if kind == "link" else partial.hardlink_to)(victim)
    store = ModelStore(kept, 1 << 20, PART)
    assert store.begin(offer()) == 0
    send(store, CONTENT, 0)
    assert store.finish().path.read_bytes() == CONTENT
    store.close()
    assert victim.read_bytes() == b"not to be touched"


def test_what_one_that_was_killed_has_left_is_removed_and_what_is_in_use_is_not(
    tmp_path: Path,
) -> None:
    script = (
        "import os, sys; from pathlib import Path; from nnpipe.protocols.server.model_store "
        "import ModelStore;"
        "from nnpipe.protocols.conversation.payloads import ModelOffer;"
        "store = ModelStore(Path(sys.argv[1]), 1 << 20, 4096); store.begin(ModelOffer(9, "
        "bytes(32), {}));"
        "store.add(0, b'12345678'); os.kill(os.getpid(), 9)"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], env=environment, timeout=60)
    (left,) = tmp_path.glob(".nnpipe-*")
    (partial,) = tmp_path.glob(".*.part")
    using = ModelStore(tmp_path, 1 << 20, PART)
    using.begin(offer())
    remove_leftovers(tmp_path)
    assert not left.exists()
    assert len([*tmp_path.glob(".nnpipe-*")]) == 1
    assert len([*tmp_path.glob(".*.part")]) == 2
    for path in tmp_path.glob(".*.part"):
        os.utime(path, (0, 0))
    remove_leftovers(tmp_path)
    assert not partial.exists()
    assert len([*tmp_path.glob(".*.part")]) == 1, (
        "what is being written is never removed, however old it looks"
    )
    send(using, CONTENT, 0)
    assert using.finish().path.read_bytes() == CONTENT
    using.close()
