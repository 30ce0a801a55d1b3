"""A check of HDF5 files that the library does not make (HDF5 1.14): it walks a damaged heap of
texts for ever.
"""

from __future__ import annotations

import mmap
import struct
from pathlib import Path

_SIGNATURE, _HEADER = b"GCOL\x01\x00\x00\x00", 16  # of a global heap collection, and its bytes
_OBJECT = struct.Struct("<HHIQ")  # index, references, reserved, bytes


def check_text_heaps(source: Path | bytes) -> None:
    """Raise an error if a heap of texts of an HDF5 file has a free part without bytes, at which
    reading never ends.

    See "Disk Format: Level 1E - Global Heap" in the HDF5 File Format Specification, version 3.

    Parameters
    ----------
    source
        The file, or its content.

    Raises
    ------
    ValueError
        If there is such a part.
    """
    if isinstance(source, bytes):
        _check(source)
        return
    with (
        open(source, "rb") as handle,
        mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) as content,
    ):
        _check(content)


def _check(content: bytes | mmap.mmap) -> None:
    # sound heaps do not overlap, so that they have no more parts
    left = len(content) // _OBJECT.size
    start = content.find(_SIGNATURE)
    while start >= 0:
        head = content[start + 8 : start + _HEADER]
        end = min(start + int.from_bytes(head, "little"), len(content))
        place = start + _HEADER
        while place + _OBJECT.size <= end:
            index, _, _, size = _OBJECT.unpack(content[place : place + _OBJECT.size])
            left -= 1
            if (index == 0 and size == 0) or left < 0:
                raise ValueError(f"a heap of texts is damaged at byte {place:,}")
            place += size if index == 0 else _OBJECT.size + (size + 7) // 8 * 8
        start = content.find(_SIGNATURE, start + 1)
