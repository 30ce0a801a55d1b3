"""A file is there whole, or as it was."""

from __future__ import annotations

import errno
import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nnpipe.core.errors import ConfigError
from nnpipe.core.files import (
    check_writable,
    compute_sha256,
    remove_abandoned,
    replace_atomically,
    replace_folder_atomically,
    reserve,
    write_bytes,
    write_text,
)

WRITER = """
import sys, itertools
from nnpipe.core.files import write_bytes
print("ready", flush=True)
for n in itertools.count():
    write_bytes(sys.argv[1], bytes([n % 256]) * 300_000)
"""


def names_in(folder: Path) -> list[str]:
    return [entry.name for entry in folder.iterdir()]


def test_what_is_written_is_there(tmp_path: Path) -> None:
    write_text(tmp_path / "deep" / "er" / "a.txt", "grün")
    assert (tmp_path / "deep" / "er" / "a.txt").read_bytes() == "grün".encode()
    assert names_in(tmp_path / "deep" / "er") == ["a.txt"]


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    write_bytes(path, b"old")

    def fail_half_way() -> None:
        with replace_atomically(path) as temporary:
            temporary.write_bytes(b"new but")
            raise RuntimeError("half way")

    with pytest.raises(RuntimeError, match="half way"):
        fail_half_way()
    assert path.read_bytes() == b"old"
    assert names_in(tmp_path) == ["a.bin"]


def test_the_temporary_name_keeps_the_suffix_and_folder(tmp_path: Path) -> None:
    with replace_atomically(tmp_path / "model.keras") as temporary:
        assert temporary.suffix == ".keras"
        assert temporary.parent == tmp_path
        temporary.write_bytes(b"")


def test_kill_9_while_writing_leaves_a_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    for delay in (0.002, 0.005, 0.01, 0.02, 0.04, 0.08):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(delay)
            process.send_signal(signal.SIGKILL)
        if path.exists():
            content = path.read_bytes()
            assert len(content) == 300_000
            assert len(set(content)) == 1


def test_a_checksum_is_that_of_the_content(tmp_path: Path) -> None:
    write_bytes(tmp_path / "a", b"abc")
    assert (
        compute_sha256(tmp_path / "a")
        == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    )


FOLDER_WRITER = """
import sys, itertools
from nnpipe.core.files import replace_folder_atomically
print("ready", flush=True)
for n in itertools.count():
    with replace_folder_atomically(sys.argv[1]) as folder:
        for name in "abc":
            (folder / name).write_text(str(n))
"""


def test_a_folder_takes_the_place_of_another_with_nothing_left_of_it(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "folder"
    with replace_folder_atomically(path) as folder:
        (folder / "old").write_text("1")
        assert not path.exists()
    with replace_folder_atomically(path) as folder:
        (folder / "new").write_text("2")
        assert names_in(path) == ["old"]
    assert names_in(path) == ["new"]
    assert names_in(path.parent) == ["folder"]


def test_a_failure_leaves_the_old_folder(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    with replace_folder_atomically(path) as folder:
        (folder / "old").write_text("1")

    def fail() -> None:
        with replace_folder_atomically(path) as folder:
            (folder / "new").write_text("2")
            raise RuntimeError("half way")

    with pytest.raises(RuntimeError, match="half way"):
        fail()
    assert names_in(path) == ["old"]
    assert names_in(tmp_path) == ["folder"]


def test_without_an_exchange_of_names_the_folder_is_replaced_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nnpipe.core.files._exchange_paths", lambda one, other: False)
    test_a_folder_takes_the_place_of_another_with_nothing_left_of_it(tmp_path)


@pytest.mark.skipif(sys.platform != "linux", reason="names are exchanged on Linux alone")
def test_a_folder_is_there_as_a_whole_at_any_moment(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    command = [sys.executable, "-c", FOLDER_WRITER, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
        while not path.exists():
            time.sleep(0.001)
        seen = set()
        while len(seen) < 20:
            assert path.is_dir()
            try:
                texts = [(path / name).read_text() for name in "ab"]
            # the folder was another one between two names, and the old one is going
            except FileNotFoundError:
                continue
            seen.add(texts[0])
        writer.send_signal(signal.SIGKILL)
    assert sorted(names_in(path)) == ["a", "b", "c"]
    assert len({(path / name).read_text() for name in "abc"}) == 1


@pytest.mark.parametrize("name", ["new.json", "deep/er/new.json", "old.json"])
def test_what_can_be_written_is_let_pass_and_nothing_stays(tmp_path: Path, name: str) -> None:
    (tmp_path / "old.json").write_text("kept")
    assert check_writable(tmp_path / name) == tmp_path / name
    assert check_writable(tmp_path / "results", folder=True) == tmp_path / "results"
    assert [path.name for path in tmp_path.iterdir()] == ["old.json"]
    assert (tmp_path / "old.json").read_text() == "kept"


@pytest.mark.parametrize(
    ("name", "folder", "told"),
    [
        ("file/x.json", False, "is a file, not a folder"),
        ("file/deep/er", True, "is a file, not a folder"),
        ("folder", False, "is a folder: name a file in it"),
        ("file", True, "is a file: name a folder"),
        ("n" * 250, False, "File name too long"),
        ("n" * 300, True, "File name too long"),
        ("d/" * 3000, True, "File name too long"),
        ("a\0b", False, "null"),
        ("/proc/nothing/x", False, "cannot be written"),
        ("/dev/full", False, "device"),
        ("/dev/null", False, "device"),
    ],
)
def test_what_cannot_be_written_is_told_in_one_line(
    tmp_path: Path, name: str, folder: bool, told: str
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    with pytest.raises(ConfigError) as error:
        check_writable(tmp_path / name, folder=folder)
    assert told in str(error.value)
    assert len(str(error.value).splitlines()) == 1
    assert len(str(error.value)) < 500
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]


def test_a_full_disk_is_told_whatever_the_system_says_of_its_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ConfigError, match="No space left on device"):
        check_writable(tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform != "linux", reason="room is reserved on Linux alone")
def test_room_is_reserved_before_writing(tmp_path: Path) -> None:
    with open(tmp_path / "a.bin", "wb") as file:
        reserve(file, 1 << 20)
        if not os.fstat(file.fileno()).st_size:
            pytest.skip("this file system reserves nothing")
        assert os.fstat(file.fileno()).st_blocks * 512 >= 1 << 20
        file.write(b"x" * (1 << 20))
    assert (tmp_path / "a.bin").read_bytes() == b"x" * (1 << 20)


def test_what_cannot_be_reserved_is_no_matter() -> None:
    with open(os.devnull, "wb") as file:
        reserve(file, 1 << 20)
    reserve(io.BytesIO(), 1 << 20)


# -- what killed processes leave
# --------------------------------------------------------------------

KILLED = """
import os, signal, sys
from pathlib import Path
from nnpipe.core.files import replace_atomically, replace_folder_atomically
with replace_atomically(sys.argv[1]) as file, replace_folder_atomically(sys.argv[2]) as folder:
    file.write_bytes(b"half")
    (folder / "deep").mkdir()
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills a process")
def test_what_a_killed_process_left_is_removed_before_the_next_work_but_not_what_somebody_writes(
    tmp_path: Path,
) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [
        sys.executable,
        "-c",
        KILLED,
        str(tmp_path / "a.json"),
        str(tmp_path / "deeper" / "b"),
    ]
    assert subprocess.run(command, env=environment, check=False).returncode == -signal.SIGKILL
    assert len(names_in(tmp_path)) == 2
    with replace_atomically(tmp_path / "c.json") as living:
        living.write_bytes(b"mine")
        check_writable(tmp_path / "a.json")
        assert sorted(names_in(tmp_path)) == sorted([living.name, "deeper"])
        assert len(names_in(tmp_path / "deeper")) == 1
        remove_abandoned(tmp_path, within=True)
        assert names_in(tmp_path / "deeper") == []
    assert sorted(names_in(tmp_path)) == ["c.json", "deeper"]


def test_what_another_machine_writes_stays_for_a_day(tmp_path: Path) -> None:
    theirs = tmp_path / ".a.00000000-1-1-0000.partial.json"
    theirs.write_bytes(b"half")
    remove_abandoned(tmp_path)
    assert names_in(tmp_path) == [theirs.name]
    os.utime(theirs, (time.time() - 90_000,) * 2)
    remove_abandoned(tmp_path)
    assert names_in(tmp_path) == []


# -- full disks
# ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a.bin", "folder"])
def test_a_full_disk_is_named_by_the_destination_whatever_a_library_raised(
    tmp_path: Path, name: str
) -> None:
    write = replace_folder_atomically if name == "folder" else replace_atomically
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with pytest.raises(OSError, match="No space left on device") as caught:
        with write(tmp_path / name):
            raise RuntimeError("writing failed") from full
    assert caught.value.filename == str(tmp_path / name)
    assert names_in(tmp_path) == []


def write_as_a_library_does(path: Path) -> None:
    said = ""
    try:
        path.write_bytes(bytes(1 << 20))
    except OSError:
        said = "the stream is bad"
    raise RuntimeError(said)


@pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="only root can mount a small disk"
)
def test_a_disk_that_is_full_is_named_though_the_library_does_not_say_so(tmp_path: Path) -> None:
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(tmp_path)], check=False
    )
    if mounted.returncode:
        pytest.skip("this system lets nobody mount a disk")
    try:
        with (
            pytest.raises(OSError, match="No space left on device") as caught,
            replace_atomically(tmp_path / "a.bin") as path,
        ):
            write_as_a_library_does(path)
        assert caught.value.filename == str(tmp_path / "a.bin")
        assert names_in(tmp_path) == []
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)
