"""Reading the bytes of a compiled file of any kind."""

from __future__ import annotations

import zipfile
from pathlib import Path

from nnpipe.core.errors import ArtifactError

_LARGEST = 1 << 28  # bytes of a file that are looked through


def content_of(path: Path) -> bytes:
    """Return a file's bytes, an archive's unpacked one behind the other.

    Raises
    ------
    ArtifactError
        If it is damaged.
    """
    if not zipfile.is_zipfile(path):
        with open(path, "rb") as handle:
            return handle.read(_LARGEST)
    parts, left = [], _LARGEST
    try:
        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                with archive.open(info) as member:
                    part = member.read(left)
                parts.append(part + bytes(-len(part) % 16))  # numbers of one part are whole numbers apart
                left -= len(part)
    except (zipfile.BadZipFile, EOFError, OSError, NotImplementedError, RuntimeError, ValueError) as error:
        raise ArtifactError(f"{path}: a damaged archive: {error}") from None
    return b"".join(parts)
