"""A writer that merges an ONNX file and its external weights into one file, in bounded memory.

Field numbers are those of ``onnx/onnx.proto3``.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from nnpipe.core.errors import ArtifactError
from nnpipe.formats._protobuf import Span, iterate_fields, read_text, read_varint
from nnpipe.formats.file_types import Damaged
from nnpipe.formats.onnx import ONNXFile

# The fields of each kind of message whose content may hold weights: number of the field, and kind
# of its message.
_WITHIN: dict[str, dict[int, str]] = {
    "model": {7: "graph", 25: "function"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "function": {7: "node", 11: "attribute"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
}
_DEPTH_LIMIT = 200  # levels of nested messages; graphs may be nested 32 times
_RAW, _EXTERNAL, _LOCATION = 9, 13, 14
_BLOCK = 1 << 20


@dataclass(frozen=True)
class _ExternalPart:
    """A part of another file."""

    path: Path
    start: int
    length: int


_Piece = bytes | Span | _ExternalPart
"""A piece of the output: bytes, a part of the model's own file, or a part of another file."""


def write_joined(file: ONNXFile, path: Path) -> None:
    """Write a model with its external weights as one file.

    Parameters
    ----------
    file
        The model; its ``check_external`` has been called.
    path
        The file to write; it may be incomplete after an error.

    Raises
    ------
    ArtifactError
        If the model is damaged, or if weights reach beyond the end of the files that hold them.
    """
    try:
        with (
            open(file.path, "rb") as handle,
            mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) as content,
        ):
            data = memoryview(content)
            try:
                pieces = _split_message(data, (0, len(data)), "model", file.path.parent, 0)
                with open(path, "wb") as out:
                    for piece in pieces:
                        _write(piece, data, out)
            finally:
                data.release()
    except Damaged as error:
        raise ArtifactError(f"{file.path}: not a usable ONNX model: {error}") from None


def _split_message(
    data: memoryview, span: Span, kind: str, folder: Path, depth: int
) -> list[_Piece]:
    """Return the pieces of a message with its external weights; one piece if the message has
    none.
    """
    if depth > _DEPTH_LIMIT:
        raise Damaged("graphs are nested too deeply")
    if kind == "tensor":
        return _split_tensor(data, span, folder)
    pieces: list[_Piece] = []
    changed = False
    for number, whole, content in _iterate_fields(data, span):
        within = _WITHIN[kind].get(number)
        inner = (
            _split_message(data, content, within, folder, depth + 1) if within and content else []
        )
        if not inner or inner == [content]:
            pieces.append(whole)
        else:
            pieces += [_encode_header(number, sum(map(_get_length, inner))), *inner]
            changed = True
    return pieces if changed else [span]


def _split_tensor(data: memoryview, span: Span, folder: Path) -> list[_Piece]:
    """Return the pieces of a TensorProto, with external data in the place of its reference to
    it.
    """
    entries: dict[str, str] = {}
    kept: list[_Piece] = []
    for number, whole, content in _iterate_fields(data, span):
        if number == _EXTERNAL and content:
            said = {1: "", 2: ""} | {
                part: read_text(data, value) for part, value in iterate_fields(data, content)
            }
            entries[said[1]] = said[2]
        elif number != _LOCATION:
            kept.append(whole)
    if "location" not in entries:
        return [span]
    place = folder / entries["location"]
    size = place.stat().st_size
    try:
        start = int(entries.get("offset", "0"))
        length = int(entries.get("length", str(size - start)))
    except ValueError:
        raise Damaged("the offset or length of an external weight is not a number") from None
    if not 0 <= start <= start + length <= size:
        raise Damaged(f"a weight reaches beyond the end of {entries['location']!r}")
    return [*kept, _encode_header(_RAW, length), _ExternalPart(place, start, length)]


def _encode_header(number: int, length: int) -> bytes:
    return _encode_varint(number << 3 | 2) + _encode_varint(length)


def _encode_varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def _get_length(piece: _Piece) -> int:
    if isinstance(piece, _ExternalPart):
        return piece.length
    return len(piece) if isinstance(piece, bytes) else piece[1] - piece[0]


def _iterate_fields(data: memoryview, span: Span) -> Iterator[tuple[int, Span, Span | None]]:
    """Yield the number of each field of a message, the span of the field, and the span of its
    content if it has one.
    """
    at, end = span
    while at < end:
        start = at
        tag, at = read_varint(data, at, end)
        content: Span | None = None
        if tag & 7 == 0:
            _, at = read_varint(data, at, end)
        elif tag & 7 == 2:
            length, at = read_varint(data, at, end)
            content = (at, at + length)
            at += length
        elif tag & 7 in (1, 5):
            at += 8 if tag & 7 == 1 else 4
        else:
            raise Damaged("a field has an unknown wire type")
        if at > end:
            raise Damaged("a field reaches beyond the end of its message")
        yield tag >> 3, (start, at), content


def _write(piece: _Piece, data: memoryview, out: BinaryIO) -> None:
    if isinstance(piece, bytes):
        out.write(piece)
    elif isinstance(piece, tuple):
        for start in range(piece[0], piece[1], _BLOCK):
            out.write(data[start : min(start + _BLOCK, piece[1])])
    else:
        with open(piece.path, "rb") as source:
            source.seek(piece.start)
            left = piece.length
            while left:
                block = source.read(min(left, _BLOCK))
                if not block:
                    raise Damaged("a file with weights became shorter while it was read")
                out.write(block)
                left -= len(block)
