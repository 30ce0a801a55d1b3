"""A damaged heap of texts is refused: the library would walk it for ever."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from nnpipe.core.errors import ArtifactError
from nnpipe.formats.hdf5_heaps import check_text_heaps
from nnpipe.formats.keras import read_structure

h5py = pytest.importorskip("h5py", reason="h5py is not installed")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a file whose structure is a text of any length, which is in a heap."""
    with h5py.File(tmp_path / "model.h5", "w") as file:
        file.attrs["model_config"] = "{}" * 100
        file["weights"] = [1.0, 2.0]
    return tmp_path / "model.h5"


def free_part(content: bytes) -> int:
    """Return the place of the free part of the first heap."""
    place = content.index(b"GCOL") + 16
    while struct.unpack_from("<H", content, place)[0]:
        (size,) = struct.unpack_from("<Q", content, place + 8)
        place += 16 + (size + 7) // 8 * 8
    return place


def test_a_sound_file_passes(path: Path) -> None:
    check_text_heaps(path)
    check_text_heaps(path.read_bytes())
    assert read_structure(path) == b"{}" * 100


def test_a_free_part_without_bytes_is_refused_in_one_line(path: Path) -> None:
    content = bytearray(path.read_bytes())
    place = free_part(content)
    content[place + 8 : place + 16] = bytes(8)
    path.write_bytes(content)
    with pytest.raises(
        ArtifactError, match=rf"model\.h5: damaged.*a heap of texts is damaged at byte {place:,}"
    ):
        read_structure(path)
    with pytest.raises(ValueError, match="heap of texts"):
        check_text_heaps(bytes(content))


@pytest.mark.parametrize("cut", [1, 9, 17, 60])
def test_a_heap_that_ends_early_is_left_to_the_library(path: Path, cut: int) -> None:
    content = path.read_bytes()
    check_text_heaps(content[: content.index(b"GCOL") + cut])


def test_heaps_within_heaps_are_refused_at_once() -> None:
    """Walking each of them to its end would take days."""
    head = b"GCOL\x01\x00\x00\x00" + (1 << 40).to_bytes(8, "little")
    part = struct.pack("<HHIQ", 1, 0, 0, 16)
    with pytest.raises(ValueError, match="heap of texts"):
        check_text_heaps((head + part) * 100_000)
