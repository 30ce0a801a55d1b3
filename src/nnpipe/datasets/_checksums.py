"""Fast checks at every start that a file is the published one."""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from contextlib import suppress
from pathlib import Path

from nnpipe.core.bounded_json import parse_json
from nnpipe.core.files import sha256_of, write_text

_BLOCK = 1 << 20


def known_sha256(path: Path, *, unpacked: bool = False) -> str:
    """Return the SHA-256 of ``path``, from the stamp beside it if the file has not changed since it was last read.

    The stamp ``.NAME.checked`` holds the file's size, times and inode besides
    the checksums; any write to the file changes one of them.  If no stamp can be
    written, the file is read every time.

    Parameters
    ----------
    path
        The file.
    unpacked
        Whether to return the checksum of the unpacked content of a gzip file;
        empty if this is not a whole gzip file.

    Raises
    ------
    OSError
        If the file cannot be read.
    """
    stamp_path = path.with_name(f".{path.name}.checked")
    before = _identity(path)
    key = "unpacked" if unpacked else "packed"
    sums = _stamped_sums(stamp_path, before)
    if key in sums:
        return sums[key]
    found = _unpacked_sha256(path) if unpacked else sha256_of(path)
    if _identity(path) == before and _may_be_written(path.parent):
        with suppress(OSError):
            write_text(stamp_path, json.dumps({"file": before, "sha256": {**sums, key: found}}) + "\n")
    return found


def _stamped_sums(stamp_path: Path, identity: list[int]) -> dict[str, str]:
    try:
        stamp = parse_json(stamp_path.read_text(encoding="utf-8"))
        if stamp["file"] == identity:
            return {str(key): str(value) for key, value in stamp["sha256"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass  # no stamp, or an unusable one
    return {}


def _unpacked_sha256(path: Path) -> str:
    digest = hashlib.sha256()
    try:
        with gzip.open(path, "rb") as content:
            while block := content.read(_BLOCK):
                digest.update(block)
    except (gzip.BadGzipFile, EOFError, zlib.error):
        return ""
    return digest.hexdigest()


def _may_be_written(folder: Path) -> bool:
    # Root may write everywhere, but a folder without any write permission should stay unchanged.
    return bool(folder.stat().st_mode & 0o222)


def _identity(path: Path) -> list[int]:
    status = path.stat()
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]
