"""Sizes of what C compilers write, read from ELF files."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

# The constants and structures of elf(5).
_LOAD = 1  # PT_LOAD
_NO_BITS, _ALLOCATED = 8, 2  # SHT_NOBITS, SHF_ALLOC


def loaded_size(program: Path) -> int:
    """Return the bytes of an ELF file that are loaded to memory from it; of another file, its own."""
    data = program.read_bytes()
    if not _is_elf(data):
        return len(data)
    size_at = 5 if _is_wide(data) else 4
    segments = _headers(data, (32, 54) if _is_wide(data) else (28, 42))
    return sum(segment[size_at] for segment in segments if segment[0] == _LOAD)


def built_size(compiled: Path) -> int | None:
    """Return the bytes of code, constants and initial values in an object file; None if it is no ELF file.

    Memory that is zero at the beginning takes none.
    """
    data = compiled.read_bytes()
    if not _is_elf(data):
        return None
    found = 0
    for _, kind, flags, _, _, size in _headers(data, (40, 58) if _is_wide(data) else (32, 46)):
        found += size if flags & _ALLOCATED and kind != _NO_BITS else 0
    return found


def _is_elf(data: bytes) -> bool:
    return data[:4] == b"\x7fELF"


def _is_wide(data: bytes) -> bool:
    return data[4] == 2


def _headers(data: bytes, stated: tuple[int, int]) -> Iterator[tuple[int, ...]]:
    """Yield the headers of which a file states the place, and the length and number, at these places."""
    order, word = "<" if data[5] == 1 else ">", "Q" if _is_wide(data) else "I"
    (at,) = struct.unpack_from(order + word, data, stated[0])
    length, count = struct.unpack_from(order + "HH", data, stated[1])
    for begin in range(at, at + length * count, length):
        yield struct.unpack_from(f"{order}II4{word}", data, begin)
