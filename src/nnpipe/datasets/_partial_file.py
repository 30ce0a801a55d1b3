"""The partial file of a download, with a record of its origin."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import BinaryIO

from nnpipe.core.bounded_json import parse_json
from nnpipe.core.files import write_text


class Partial:
    """``.NAME.partial`` in the destination's folder, with a JSON record beside it.

    Both belong to nnpipe, which may truncate, remove and overwrite them.  The
    record holds the address and the validators (``ETag``, ``Last-Modified``) of
    the response, so that a server resumes only if its file has not changed
    (RFC 9110, 13.1.5, ``If-Range``).
    """

    def __init__(self, destination: Path):
        self.path = destination.with_name(f".{destination.name}.partial")
        self._note = destination.with_name(f".{destination.name}.partial.json")

    def length(self) -> int:
        """Return the number of bytes."""
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            return 0

    def discard(self) -> None:
        """Remove the bytes and the record."""
        self.path.unlink(missing_ok=True)
        self._note.unlink(missing_ok=True)

    def begin(self, url: str, etag: str | None, modified: str | None) -> None:
        """Start over without bytes, and record the origin of those to come."""
        self.discard()
        write_text(self._note, json.dumps({"url": url, "etag": etag, "modified": modified}) + "\n")

    def validator(self, url: str) -> str | None:
        """Return the value of ``If-Range`` for ``url``; ``None`` if no usable validator was recorded."""
        try:
            note = parse_json(self._note.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        if not isinstance(note, dict) or note.get("url") != url:
            return None
        etag, modified = note.get("etag"), note.get("modified")
        # A weak ETag does not guarantee equal bytes, so If-Range must not contain one.
        if isinstance(etag, str) and etag.startswith('"') and etag.isprintable():
            return etag
        return modified if isinstance(modified, str) and modified.isprintable() else None

    def open(self) -> BinaryIO:
        """Open for appending."""
        return open(self.path, "ab")

    def publish(self, destination: Path) -> None:
        """Move the finished file to its final name, atomically and never over another file.

        Raises
        ------
        FileExistsError
            If a file of that name has appeared in the meantime.
        """
        with open(self.path, "rb+") as handle:
            os.fsync(handle.fileno())
        try:
            os.link(self.path, destination)  # unlike a rename, this never replaces
        except FileExistsError:
            raise FileExistsError(errno.EEXIST, "came there during the download", str(destination)) from None
        except OSError:
            self.path.rename(destination)  # a file system without hard links
        else:
            self.path.unlink()
        self._note.unlink(missing_ok=True)
