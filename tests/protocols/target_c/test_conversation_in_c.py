"""The target in C answers as the target in Python does, whatever it hears."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from answering import SANITISED, SOURCE, Tape, build, by_program, by_python, tapes
from golden import FRAMED, read

from nnpipe.protocols.target_c import CORE, PROOF


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("c"))


def test_it_answers_as_python_does(program: Path) -> None:
    given = tapes(200, seed=1)
    for tape, found in zip(given, by_program(program, given), strict=True):
        assert found == by_python(tape), tape


def test_a_target_that_keeps_no_inputs_takes_them_anew_for_each_run(program: Path) -> None:
    given = tapes(100, seed=2)
    found = by_program(program, given, "uses-up")
    assert found == [by_python(tape, uses_up=True) for tape in given]
    assert found != [by_python(tape) for tape in given]


@pytest.mark.parametrize("name", ["auth", "auth-refused", "version", "handshake"])
def test_it_answers_the_golden_conversations(program: Path, name: str) -> None:
    (path,) = (path for path in FRAMED if path.stem == name)
    heard = b"".join(frame.data for frame in read(path) if frame.direction == ">")
    tape = Tape(heard, token=name.startswith("auth"))
    assert by_program(program, [tape]) == [by_python(tape)]


def test_nothing_of_it_takes_memory_or_needs_a_library() -> None:
    for path in (*CORE, PROOF):
        included = [
            line for line in path.read_text("utf-8").splitlines() if line.startswith("#include")
        ]
        assert all("nnpipe_" in line for line in included), path


@pytest.mark.slow
@pytest.mark.parametrize("words", [(), ("uses-up",)], ids=["keeps", "uses up"])
def test_the_sanitisers_find_nothing_and_python_no_difference(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    sanitised = build(tmp_path, ("-O1", *SANITISED))
    given = tapes(10_000, seed=3)
    for tape, found in zip(given, by_program(sanitised, given, *words), strict=True):
        assert found == by_python(tape, bool(words)), tape
    assert SOURCE.is_file()
