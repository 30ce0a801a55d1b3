"""A reader of FlatBuffers that checks every offset.

The layout is described at https://flatbuffers.dev/internals/.  A table starts
with the signed distance back to its vtable.  The vtable holds its own size, the
size of the table, and for each field the field's offset from the start of the
table, or 0 if the field is absent.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.formats.file_types import Damaged

_STRING_LIMIT = 1 << 16  # bytes of a tensor's name; far more than any real name has


@dataclass(frozen=True)
class FlatBufferTable:
    """A FlatBuffer table at ``position`` in ``data``, whose fields are read by their number in
    the schema.
    """

    data: memoryview
    position: int

    @classmethod
    def root(cls, data: memoryview) -> FlatBufferTable:
        """Return the root table of the file."""
        return cls(data, _read_unsigned(data, 0))

    def read_integer(self, field: int, code: str) -> int:
        """Return an integer field, read with a :mod:`struct` format code; 0 if the field is
        absent.
        """
        at = self._find_field(field)
        return 0 if at is None else int(_unpack(self.data, code, at))

    def has(self, field: int) -> bool:
        """Return whether a field is there; one that is left out has the schema's default."""
        return self._find_field(field) is not None

    def read_float(self, field: int) -> float:
        """Return a 32-bit float field; 0 if the field is absent."""
        at = self._find_field(field)
        return 0.0 if at is None else float(_unpack(self.data, "<f", at))

    def table(self, field: int) -> FlatBufferTable | None:
        """Return the table that a field refers to, or ``None`` if the field is absent."""
        at = self._find_field(field)
        return (
            None if at is None else FlatBufferTable(self.data, at + _read_unsigned(self.data, at))
        )

    def text(self, field: int) -> str:
        """Return a string field; the empty string if the field is absent."""
        start, count = self._find_vector(field, 1)
        if count > _STRING_LIMIT:
            raise Damaged(f"a name of {count} bytes")
        try:
            return bytes(self.data[start : start + count]).decode("utf-8")
        except UnicodeDecodeError:
            raise Damaged("a name that is not UTF-8") from None

    def numbers(self, field: int, dtype: str, limit: int) -> npt.NDArray[np.generic]:
        """Return a view of a vector of at most ``limit`` numbers; an empty array if the field is
        absent.
        """
        kind = np.dtype(dtype)
        start, count = self._find_vector(field, kind.itemsize)
        if count > limit:
            raise Damaged(f"a list of {count} numbers, more than the limit of {limit}")
        return np.frombuffer(self.data, kind, count, start) if count else np.empty(0, kind)

    def count(self, field: int) -> int:
        """Return the length of a vector of tables; 0 if the field is absent."""
        return self._find_vector(field, 4)[1]

    def tables(self, field: int) -> Iterator[FlatBufferTable]:
        """Yield the tables of a vector of tables."""
        start, count = self._find_vector(field, 4)
        for at in range(start, start + 4 * count, 4):
            yield FlatBufferTable(self.data, at + _read_unsigned(self.data, at))

    def _find_vector(self, field: int, size: int) -> tuple[int, int]:
        """Return the offset of a vector's first element and the number of elements of ``size``
        bytes.
        """
        at = self._find_field(field)
        if at is None:
            return 0, 0
        at += _read_unsigned(self.data, at)
        count = _read_unsigned(self.data, at)
        if count * size > len(self.data) - at - 4:
            raise Damaged("a list reaches beyond the end of the file")
        return at + 4, count

    def _find_field(self, field: int) -> int | None:
        """Return the offset of a field in the file, or ``None`` if the field is absent."""
        vtable = self.position - int(_unpack(self.data, "<i", self.position))
        size = _unpack(self.data, "<H", vtable)
        where = 4 + 2 * field
        if where + 2 > size:
            return None
        distance = _unpack(self.data, "<H", vtable + where)
        return self.position + int(distance) if distance else None


def _read_unsigned(data: memoryview, at: int) -> int:
    return int(_unpack(data, "<I", at))


def _unpack(data: memoryview, code: str, at: int) -> Any:
    if at < 0:  # struct would count a negative offset from the end
        raise Damaged("a reference to before the start of the file")
    try:
        value = struct.unpack_from(code, data, at)[0]
    except struct.error:
        raise Damaged("a reference to beyond the end of the file") from None
    return value
