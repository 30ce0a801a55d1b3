"""Is the file that lies there the published one?  Asked on every start, answered cheaply."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import zlib
from pathlib import Path

from nnpipe.core.files import sha256_of, write_text

_BLOCK = 1 << 20


def known_sha256(path: Path) -> str:
    """SHA-256 of ``path``, from the stamp beside it if the file is as it was when last read.

    The stamp ``.NAME.checked`` holds the file's size, times and inode besides
    the sum; any write to the file changes one of them.  Where no stamp can be
    written (a read-only folder) the file is read every time.
    """
    stamp_path = path.with_name(f".{path.name}.checked")
    before = _identity(path)
    try:
        stamp = json.loads(stamp_path.read_text(encoding="utf-8"))
        if stamp["file"] == before and isinstance(stamp["sha256"], str):
            return str(stamp["sha256"])
    except (OSError, ValueError, KeyError, TypeError):
        pass  # no stamp, or none that can be used
    found = sha256_of(path)
    if _identity(path) == before:
        try:
            write_text(stamp_path, json.dumps({"sha256": found, "file": before}) + "\n")
        except OSError:
            pass
    return found


def content_sha256(path: Path) -> str | None:
    """SHA-256 of what a gzip file unpacks to; None if it is no whole gzip file."""
    digest = hashlib.sha256()
    try:
        with gzip.open(path, "rb") as content:
            while block := content.read(_BLOCK):
                digest.update(block)
    except (OSError, EOFError, zlib.error):
        return None
    return digest.hexdigest()


def _identity(path: Path) -> list[int]:
    status = os.stat(path)
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]
