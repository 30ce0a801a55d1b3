"""The part of a file that a download has so far, and what is remembered of its origin."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import BinaryIO

from nnpipe.core.files import write_text


class Partial:
    """``.NAME.partial`` in the destination's folder, with a JSON note beside it.

    Both belong to nnpipe: they may be cut, removed and written over.  The note
    holds the address and the validators (``ETag``, ``Last-Modified``) of the
    response that the bytes came from, so that a server can be asked to go on
    only if its file is still the same (RFC 9110, 13.1.5, ``If-Range``).
    """

    def __init__(self, destination: Path):
        self.path = destination.with_name(f".{destination.name}.partial")
        self._note = destination.with_name(f".{destination.name}.partial.json")

    def length(self) -> int:
        """Return how many bytes are there."""
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            return 0

    def discard(self) -> None:
        """Remove the bytes and the note."""
        self.path.unlink(missing_ok=True)
        self._note.unlink(missing_ok=True)

    def begin(self, url: str, etag: str | None, modified: str | None) -> None:
        """Start over with no bytes, noting where those to come are from."""
        self.discard()
        write_text(self._note, json.dumps({"url": url, "etag": etag, "modified": modified}) + "\n")

    def validator(self, url: str) -> str | None:
        """What to send as ``If-Range`` to ``url``; None when nothing usable was noted."""
        try:
            note = json.loads(self._note.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        if not isinstance(note, dict) or note.get("url") != url:
            return None
        etag, modified = note.get("etag"), note.get("modified")
        # A weak ETag promises no equal bytes, so If-Range must not carry one.
        if isinstance(etag, str) and etag.startswith('"') and etag.isprintable():
            return etag
        return modified if isinstance(modified, str) and modified.isprintable() else None

    def open(self) -> BinaryIO:
        """Open for appending."""
        return open(self.path, "ab")

    def publish(self, destination: Path) -> None:
        """Give the finished bytes their real name, at once and never over another file.

        Raises
        ------
        FileExistsError
            Somebody put a file of that name there in the meantime.
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
