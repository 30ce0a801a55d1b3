"""The files of a job's folder, read with bounds and written whole."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from pathlib import Path
from typing import Any

JOB = "job.json"  # what is to be done
BEFORE = "before.json"  # the outputs as they were before
PROCESSES = "processes.json"  # who does it
CANCEL = "cancel.json"  # somebody wants it to end
ENDED = "ended.json"  # how it ended
PROGRESS = "progress.jsonl"  # appended to by the script
LOG = "log.txt"  # what the script and its supervisor wrote
LOCK = "lock"  # held by whoever starts or supervises the job

REPLY = b"\0nnpipe\n"
"""Stands before an answer in the output, for start files of shells may print things."""

_LARGEST = 64 << 20  # the outputs of a job may be many


def read(folder: Path, name: str) -> dict[str, Any] | None:
    """Return the object in a file; None if there is no such file, or it holds no object."""
    try:
        path = folder / name
        if path.stat().st_size > _LARGEST:
            return None
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def write(folder: Path, name: str, value: dict[str, Any]) -> None:
    """Write an object so that a power cut leaves the old file or the new one."""
    temporary = folder / f".{name}.{secrets.token_hex(4)}.partial"
    try:
        with open(temporary, "w", encoding="utf-8") as handle:
            json.dump(value, handle)
            handle.flush()
            os.fsync(handle.fileno())
        os.replace(temporary, folder / name)
    finally:
        temporary.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # a file system may not know how to flush folders
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def piece(folder: Path, name: str, begin: int, most: int) -> tuple[bytes, int]:
    """Return some bytes of a file from a place on, and the file's size; a negative place counts from its end."""
    try:
        with open(folder / name, "rb") as handle:
            size = os.fstat(handle.fileno()).st_size
            handle.seek(max(0, size + begin) if begin < 0 else begin)
            return handle.read(most), size
    except OSError:
        return b"", 0
