"""A file is there whole, or as it was."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nnpipe.core.files import replacing, sha256_of, write_bytes, write_text

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
        with replacing(path) as temporary:
            temporary.write_bytes(b"new but")
            raise RuntimeError("half way")

    with pytest.raises(RuntimeError, match="half way"):
        fail_half_way()
    assert path.read_bytes() == b"old"
    assert names_in(tmp_path) == ["a.bin"]


def test_the_temporary_name_keeps_the_suffix_and_folder(tmp_path: Path) -> None:
    with replacing(tmp_path / "model.keras") as temporary:
        assert temporary.suffix == ".keras"
        assert temporary.parent == tmp_path
        temporary.write_bytes(b"")


def test_kill_9_while_writing_leaves_a_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    for delay in (0.002, 0.005, 0.01, 0.02, 0.04, 0.08):
        with subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE) as process:
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
    assert sha256_of(tmp_path / "a") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
