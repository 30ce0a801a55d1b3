"""Check whether files were written by this job or are left from an earlier one."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

_BLOCK = 1 << 20


def snapshot(outputs: Iterable[str], directory: Path) -> dict[str, Any]:
    """Return the present state of each output: inode, time of change, size and SHA-256; None if it is missing."""
    return {name: _seen(directory / name) for name in outputs}


def checked(outputs: Iterable[str], directory: Path, before: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Check the outputs of a job that has finished.

    Returns
    -------
    list of dict
        The ``path``, ``size``, ``sha256`` and ``fault`` of each output.  ``fault`` is empty if the file exists, is not
        empty, and was written by the job.
    """
    return [_checked(name, directory / name, before.get(name)) for name in outputs]


def _checked(name: str, path: Path, before: Any) -> dict[str, Any]:
    try:
        now = _seen(path)
    except OSError as error:
        return _faulty(name, f"cannot be read ({error.strerror or error})")
    if now is None:
        return _faulty(name, "is no file" if path.exists() else "was not written")
    if not now["size"]:
        return _faulty(name, "is empty")
    stale = now == before
    fault = "lay there before the job began, and was not written anew" if stale else ""
    return {"path": name, "size": now["size"], "sha256": now["sha256"], "fault": fault}


def _faulty(name: str, fault: str) -> dict[str, Any]:
    return {"path": name, "size": 0, "sha256": "", "fault": fault}


def _seen(path: Path) -> dict[str, Any] | None:
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # opening a pipe would wait for its other end
            return None
        with open(path, "rb") as handle:
            found = os.fstat(handle.fileno())
            digest = hashlib.sha256()
            while block := handle.read(_BLOCK):
                digest.update(block)
    except FileNotFoundError:
        return None
    return {
        "inode": found.st_ino, "mtime_ns": found.st_mtime_ns, "size": found.st_size, "sha256": digest.hexdigest(),
    }  # fmt: skip
