"""Reading the bytes of a compiled file of any kind."""

from __future__ import annotations

import zipfile
from pathlib import Path

from nnpipe.core.errors import ArtifactError

_LARGEST = 1 << 28  # bytes; larger files are not searched


def content_of(path: Path) -> bytes:
    """Return a file's bytes; for an archive, those of its unpacked files joined together.

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
                parts.append(part + bytes(-len(part) % 16))  # so that the numbers of each part are aligned
                left -= len(part)
    except (zipfile.BadZipFile, EOFError, OSError, NotImplementedError, RuntimeError, ValueError) as error:
        raise ArtifactError(f"{path}: a damaged archive: {error}") from None
    return b"".join(parts)
