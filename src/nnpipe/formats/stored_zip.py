"""ZIP archives whose entries are stored uncompressed, for models that consist of several files."""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Mapping
from pathlib import Path

from nnpipe.core.errors import ArtifactError

# A fixed date, so that equal models give equal files.
_DATE = (1980, 1, 1, 0, 0, 0)
_BLOCK = 1 << 20

ZIP_ERRORS = (zipfile.BadZipFile, EOFError, OSError, NotImplementedError, RuntimeError, ValueError)
"""What :mod:`zipfile` raises if an archive is damaged."""


def write_stored(path: Path, parts: Mapping[str, bytes | Path]) -> None:
    """Write an archive of parts by name; those that are files are copied in blocks."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, part in parts.items():
            info = zipfile.ZipInfo(name, _DATE)
            if isinstance(part, bytes):
                archive.writestr(info, part)
                continue
            info.file_size = part.stat().st_size  # otherwise zipfile rejects more than 2 GB
            with open(part, "rb") as source, archive.open(info, "w") as handle:
                shutil.copyfileobj(source, handle, _BLOCK)


def check_stored(path: Path, archive: zipfile.ZipFile, what: str) -> None:
    """Check that nothing is compressed or encrypted, so that the parts cannot be larger than the file.

    Raises
    ------
    ArtifactError
        If this is not so; ``what`` names the models that the archive should hold.
    """
    infos = archive.infolist()
    if any(info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1 for info in infos):
        raise ArtifactError(f"{path}: compressed or encrypted, which {what} written here never are")
    if sum(info.file_size for info in infos) > path.stat().st_size:
        raise ArtifactError(f"{path}: damaged: its parts are larger than the whole")
