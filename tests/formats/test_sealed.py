"""A sealed file gives back what was put in, and notices every change."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnpipe.core.errors import ArtifactError
from nnpipe.formats.sealed import SealedFile, read_sealed, write_sealed
from nnpipe.testing.model_files import NETWORK_IO

FILE = SealedFile(b"machine code", "tvm", NETWORK_IO, {"max_batch": 3})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sealed")


@given(st.binary(max_size=200))
def test_what_was_sealed_is_read_and_comes_first(folder: Path, content: bytes) -> None:
    file = SealedFile(content, "tvm", NETWORK_IO, {"max_batch": 3})
    write_sealed(folder / "m.so", file)
    assert read_sealed(folder / "m.so", "tvm") == file
    assert (folder / "m.so").read_bytes().startswith(content)


@given(st.data())
def test_every_change_is_noticed(folder: Path, data: st.DataObject) -> None:
    write_sealed(folder / "m.so", FILE)
    whole = (folder / "m.so").read_bytes()
    place = data.draw(st.integers(0, len(whole) - 1))
    kind = data.draw(st.sampled_from(["flipped", "dropped", "cut", "added"]))
    (folder / "m.so").write_bytes(
        {
            "flipped": whole[:place]
            + bytes([whole[place] ^ 1 << data.draw(st.integers(0, 7))])
            + whole[place + 1 :],
            "dropped": whole[:place] + whole[place + 1 :],
            "cut": whole[:place],
            "added": whole[:place] + b"\0" + whole[place:],
        }[kind]
    )
    with pytest.raises(ArtifactError, match=r"m\.so: damaged"):
        read_sealed(folder / "m.so", "tvm")


@given(st.binary(max_size=300))
def test_other_files_are_refused(folder: Path, content: bytes) -> None:
    (folder / "m.so").write_bytes(content)
    with pytest.raises(ArtifactError, match=r"m\.so: damaged, or not compiled by nnpipe"):
        read_sealed(folder / "m.so", "tvm")


def test_other_formats_are_refused(folder: Path) -> None:
    write_sealed(folder / "m.so", FILE)
    with pytest.raises(ArtifactError, match="format tvm, not executorch"):
        read_sealed(folder / "m.so", "executorch")


@given(st.binary(max_size=100), st.integers(0, 1 << 64 - 1))
def test_a_seal_around_nonsense_is_refused(folder: Path, said: bytes, length: int) -> None:
    import hashlib

    for size in (len(said), length):
        whole = said + size.to_bytes(8, "little")
        (folder / "m.so").write_bytes(whole + hashlib.sha256(whole).digest() + b"NNPIPE-1")
        with pytest.raises(
            ArtifactError, match=r"m\.so: (the description at its end is damaged|damaged)"
        ) as caught:
            read_sealed(folder / "m.so", "tvm")
        assert "\n" not in str(caught.value)
