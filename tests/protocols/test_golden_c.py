"""The frames can be read and written in C99 without malloc: what the example in C makes of the
golden conversations.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from golden import FILES, FOLDER, FRAMED, read

from nnpipe.protocols.conversation.frame import HEADER_SIZE, FrameKind
from nnpipe.protocols.target_c import FOLDER as CORE

SOURCE = Path(__file__).parents[2] / "examples" / "target_c" / "frames.c"
UNCHECKED = {"xxh3.txt"}  # the example passes over its payloads


@pytest.fixture(scope="module")
def frames(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    program = tmp_path_factory.mktemp("c") / "frames"
    strict = [
        "-std=c99",
        "-pedantic",
        "-Wall",
        "-Wextra",
        "-Wconversion",
        "-Wno-sign-conversion",
        "-Werror",
        "-O1",
    ]
    sources = [str(SOURCE), str(CORE / "nnpipe_frames.c")]
    done = subprocess.run(
        [compiler, *strict, "-I", str(CORE), "-o", str(program), *sources],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return program


def run(program: Path, path: Path) -> subprocess.CompletedProcess[str]:
    options = ["-s"] if path.name == "serial.txt" else []
    return subprocess.run(
        [str(program), *options, str(path)], capture_output=True, text=True, timeout=60
    )


def test_it_takes_no_memory_while_it_runs() -> None:
    text = SOURCE.read_text("utf-8")
    assert not any(f"{word}(" in text for word in ("malloc", "calloc", "realloc", "alloca"))


@pytest.mark.parametrize("path", FRAMED, ids=lambda path: path.stem)
def test_it_reads_what_python_reads_and_would_write_the_same(frames: Path, path: Path) -> None:
    done = run(frames, path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        f"{frame.direction} {FrameKind(frame.kind).name} {frame.flags} {frame.number} "
        f"{len(frame.payload)}"
        for frame in read(path)
    ]


def test_it_finds_packets_in_noise(frames: Path) -> None:
    done = run(frames, FOLDER / "serial.txt")
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stdout.splitlines() if "packet" not in line]
    assert said == run(frames, FOLDER / "handshake.txt").stdout.splitlines()


@pytest.mark.parametrize("path", FRAMED, ids=lambda path: path.stem)
def test_it_refuses_a_changed_byte(frames: Path, path: Path, tmp_path: Path) -> None:
    chance = random.Random(path.name)
    good = read(path)
    spoilt = tmp_path / path.name
    for number in chance.sample(range(len(good)), min(len(good), 6)):
        size = HEADER_SIZE if path.name in UNCHECKED else len(good[number].data)
        for at in chance.sample(range(size), 3):
            lines = []
            for which, frame in enumerate(good):
                data = bytearray(frame.data)
                if which == number:
                    data[at] ^= chance.randint(1, 255)
                lines.append(f"{frame.direction} {data.hex()}\n")
            spoilt.write_text("".join(lines))
            done = run(frames, spoilt)
            assert done.returncode == 1, (number, at)
            assert done.stderr.count("\n") == 1
            assert len(done.stdout.splitlines()) == number  # nothing is taken from there on


def test_there_is_something_to_read() -> None:
    assert len(FILES) > 15
