"""The fuzz target runs, reaches what it is for, and would notice a bug."""

from __future__ import annotations

import importlib.util
import random
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from nnpipe.protocols.conversation.frame import FrameReader
from nnpipe.protocols.conversation.handshake import Limits

PATH = Path(__file__).parents[2] / "fuzz" / "conversation.py"


@pytest.fixture(scope="module")
def target() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fuzz_conversation", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_seeds_reach_both_ends(target: ModuleType) -> None:
    ends = {target.one_input(seed) for seed in target.seeds()}
    assert ends == {"open", "RemoteProtocolError"}


def test_frames_with_right_checks_get_as_far_as_the_model(
    target: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered = []
    answer = target._answer
    monkeypatch.setattr(
        target,
        "_answer",
        lambda side, message: answered.append(message.kind.name) or answer(side, message),
    )
    kinds = {kind.name: kind.value for kind in target.FrameKind}
    data = bytes([target.FRAMED | target.LOADED, 3]) + b"".join(
        bytes([kinds[name], 0, len(payload), 0]) + payload
        for name, payload in (("DATA", b"test"), ("PROCESS", b""), ("OUTPUT", b""), ("STATS", b""))
    )
    assert target.one_input(data) == "open"
    assert answered[-4:] == ["DATA", "PROCESS", "OUTPUT", "STATS"]


def test_random_inputs_find_nothing(target: ModuleType) -> None:
    chance = random.Random(0)
    kept = target.seeds()
    for _ in range(3000):
        spoilt = bytearray(chance.choice(kept) + chance.randbytes(chance.choice((0, 4, 60, 600))))
        for _ in range(chance.randrange(4)):
            spoilt[chance.randrange(len(spoilt))] = chance.choice(
                (0, 1, 2, 255, chance.randrange(256))
            )
        target.one_input(bytes(spoilt))


def test_a_bug_would_be_found(target: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: FrameReader, admit: object) -> None:
        raise IndexError("a bug")

    monkeypatch.setattr(FrameReader, "next_frame", broken)
    with pytest.raises(IndexError, match="a bug"):
        target.one_input(target.seeds()[0])


def test_memory_without_bounds_would_be_found(
    target: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(target, "LIMITS", Limits(largest=1 << 24, part=512, checks=3, extensions=3))
    found = []
    for number in range(10):  # whichever number comes next after loading
        frame = target.pack_header(target.FrameKind.DATA, 0, number, 1 << 23, 0)
        try:
            found.append(target.one_input(bytes([target.LOADED, 255]) + frame + bytes(100)))
        except AssertionError as error:
            found.append(str(error))
    assert any("are held" in end for end in found)


def test_it_runs_on_files_and_on_what_is_piped_in(target: ModuleType, tmp_path: Path) -> None:
    seed = tmp_path / "seed"
    seed.write_bytes(b"\0\0GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    for arguments, piped in (([str(seed)], b""), ([], seed.read_bytes())):
        if target.atheris is not None and not arguments:
            continue
        done = subprocess.run(
            [sys.executable, str(PATH), *arguments], input=piped, capture_output=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip().endswith(b"RemoteProtocolError")
