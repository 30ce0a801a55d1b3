"""Reading FlatBuffers with every offset checked.

The layout is that of https://flatbuffers.dev/internals/: a table starts with
the signed distance back to its vtable, which holds the sizes of itself and of
the table and then, field by field, the distance from the table's start or 0.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nnpipe.formats._errors import Damaged

_STRING_LIMIT = 1 << 16  # a tensor's name; far above any real one


@dataclass(frozen=True)
class FlatBufferTable:
    """A table at ``position`` in ``data``; fields are asked for by their number in the schema."""

    data: memoryview
    position: int

    @classmethod
    def root(cls, data: memoryview) -> FlatBufferTable:
        """Return the table that the file is about."""
        return cls(data, _unsigned(data, 0))

    def integer(self, field: int, code: str) -> int:
        """Read an integer of a :mod:`struct` format code; absent ones are 0."""
        at = self._at(field)
        return 0 if at is None else int(_unpack(self.data, code, at))

    def table(self, field: int) -> FlatBufferTable | None:
        """Return the table that a field leads to."""
        at = self._at(field)
        return None if at is None else FlatBufferTable(self.data, at + _unsigned(self.data, at))

    def text(self, field: int) -> str:
        """Read a string; an absent one is empty."""
        start, count = self._vector(field, 1)
        if count > _STRING_LIMIT:
            raise Damaged(f"a name of {count} bytes")
        try:
            return bytes(self.data[start : start + count]).decode("utf-8")
        except UnicodeDecodeError:
            raise Damaged("a name that is not UTF-8") from None

    def numbers(self, field: int, dtype: str, limit: int) -> npt.NDArray[np.generic]:
        """Return a vector of at most ``limit`` numbers, as a view; an absent one is empty."""
        kind = np.dtype(dtype)
        start, count = self._vector(field, kind.itemsize)
        if count > limit:
            raise Damaged(f"a list of {count} numbers where {limit} would be many")
        return np.frombuffer(self.data, kind, count, start) if count else np.empty(0, kind)

    def count(self, field: int) -> int:
        """Length of a vector of tables."""
        return self._vector(field, 4)[1]

    def tables(self, field: int) -> Iterator[FlatBufferTable]:
        """Go through a vector of tables."""
        start, count = self._vector(field, 4)
        for at in range(start, start + 4 * count, 4):
            yield FlatBufferTable(self.data, at + _unsigned(self.data, at))

    def _vector(self, field: int, size: int) -> tuple[int, int]:
        at = self._at(field)
        if at is None:
            return 0, 0
        at += _unsigned(self.data, at)
        count = _unsigned(self.data, at)
        if count * size > len(self.data) - at - 4:
            raise Damaged("a list reaches beyond the end of the file")
        return at + 4, count

    def _at(self, field: int) -> int | None:
        vtable = self.position - int(_unpack(self.data, "<i", self.position))
        size = _unpack(self.data, "<H", vtable)
        where = 4 + 2 * field
        if where + 2 > size:
            return None
        distance = _unpack(self.data, "<H", vtable + where)
        return self.position + int(distance) if distance else None


def _unsigned(data: memoryview, at: int) -> int:
    return int(_unpack(data, "<I", at))


def _unpack(data: memoryview, code: str, at: int) -> int:
    if at < 0:  # struct would count from the end
        raise Damaged("a reference to before the start of the file")
    try:
        value: int = struct.unpack_from(code, data, at)[0]
    except struct.error:
        raise Damaged("a reference to beyond the end of the file") from None
    return value
