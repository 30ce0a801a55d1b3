"""A reader of protocol buffers, field by field, that checks every length.

The wire format is described at https://protobuf.dev/programming-guides/encoding/.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nnpipe.core.errors import ArtifactError
from nnpipe.formats.file_types import Damaged

Span = tuple[int, int]
"""The offsets at which a field's content starts and ends."""

_FIXED = {1: 8, 5: 4}
_VARINT, _LENGTH = 0, 2


def iterate_fields(data: memoryview, span: Span) -> Iterator[tuple[int, int | Span]]:
    """Yield the number of each field of a message, with its integer or the span of its content.

    Integers are yielded as unsigned ones.  For numbers of fixed size the span is yielded.
    """
    at, end = span
    while at < end:
        tag, at = read_varint(data, at, end)
        number, kind = tag >> 3, tag & 7
        if kind == _VARINT:
            value, at = read_varint(data, at, end)
            yield number, value
            continue
        if kind == _LENGTH:
            length, at = read_varint(data, at, end)
        elif kind in _FIXED:
            length = _FIXED[kind]
        else:
            raise Damaged("a field has an unknown wire type")
        if length > end - at:
            raise Damaged("a field reaches beyond the end of its message")
        yield number, (at, at + length)
        at += length


def read_varint(data: memoryview, at: int, end: int) -> tuple[int, int]:
    """Return an integer of variable length, and the offset after it."""
    value = shift = 0
    while True:
        if at >= end or shift > 63:
            raise Damaged("an integer of variable length does not end")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def iterate_spans(data: memoryview, span: Span, wanted: int) -> Iterator[Span]:
    """Yield the span of the content of each field with the number ``wanted``."""
    for number, value in iterate_fields(data, span):
        if number == wanted:
            if isinstance(value, int):
                raise Damaged("a number in the place of a message")
            yield value


def read_text(data: memoryview, value: int | Span) -> str:
    """Return the string that a field holds."""
    if isinstance(value, int):
        raise Damaged("a number in the place of a string")
    try:
        return bytes(data[value[0] : value[1]]).decode("utf-8")
    except UnicodeDecodeError:
        raise Damaged("a string that is not UTF-8") from None


def read_integers(data: memoryview, value: int | Span) -> list[int]:
    """Return the signed integers of a field: one that is stored alone, or several that are
    packed.
    """
    found = [] if isinstance(value, tuple) else [value]
    if isinstance(value, tuple):
        at, end = value
        while at < end:
            number, at = read_varint(data, at, end)
            found.append(number)
    return [number - (1 << 64) if number >= 1 << 63 else number for number in found]


def read_integer(data: memoryview, value: int | Span) -> int:
    """Return the signed integer of a field, the last one if several are packed."""
    found = read_integers(data, value)
    if not found:
        raise Damaged("a number is missing")
    return found[-1]


@contextmanager
def map_onnx_file(path: str | Path) -> Iterator[memoryview]:
    """Yield the content of an ONNX file, mapped into memory.

    Errors inside the ``with`` block that come from reading the file are raised as an
    :class:`ArtifactError` that names the file.
    """
    try:
        with (
            open(path, "rb") as handle,
            mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) as content,
        ):
            with memoryview(content) as data:
                yield data
    except (Damaged, ValueError, OSError, MemoryError) as error:
        raise ArtifactError(f"{path}: not a usable ONNX model: {error}") from None
