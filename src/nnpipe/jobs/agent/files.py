"""Read the files of a job's folder, with size limits, and write them atomically."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from pathlib import Path
from typing import Any

JOB = "job.json"  # the job
BEFORE = "before.json"  # the outputs as they were before
PROCESSES = "processes.json"  # its processes
CANCEL = "cancel.json"  # a request to cancel it
ENDED = "ended.json"  # how it ended
PROGRESS = "progress.jsonl"  # appended to by the script
LOG = "log.txt"  # what the script and its supervisor wrote
LOCK = "lock"  # held by the process that starts or supervises the job

REPLY = b"\0nnpipe\n"
"""The mark before an answer in the output, since the start files of a shell may print text
before it.
"""

_LARGEST = 64 << 20  # bytes; a job may have many outputs


def read(folder: Path, name: str) -> dict[str, Any] | None:
    """Return the JSON object in a file; None if the file is missing or contains no object."""
    try:
        path = folder / name
        if path.stat().st_size > _LARGEST:
            return None
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def write(folder: Path, name: str, value: dict[str, Any]) -> None:
    """Write an object atomically: after a power failure, the old file or the new one exists.

    No other user may read it, since variables and addresses hold passwords.
    """
    temporary = folder / f".{name}.{secrets.token_hex(4)}.partial"
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "w", encoding="utf-8") as handle:
            json.dump(value, handle)
            handle.flush()
            os.fsync(handle.fileno())
        os.replace(temporary, folder / name)
    finally:
        temporary.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # some file systems cannot flush folders
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_end(folder: Path, record: dict[str, Any]) -> None:
    """Write how a job ended, and remove the request to cancel it, which has been answered."""
    write(folder, ENDED, record)
    (folder / CANCEL).unlink(missing_ok=True)


def read_piece(folder: Path, name: str, begin: int, most: int) -> tuple[bytes, int]:
    """Return up to ``most`` bytes of a file from ``begin`` on (negative: from the end), and the
    file's size.
    """
    try:
        with open(folder / name, "rb") as handle:
            size = os.fstat(handle.fileno()).st_size
            handle.seek(max(0, size + begin) if begin < 0 else begin)
            return handle.read(most), size
    except OSError:
        return b"", 0
