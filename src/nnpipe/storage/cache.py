"""A cache of files from a remote store, identified by the tags of their content.

Each copy consists of two files: the content, and a line of JSON with its size and
SHA-256, which is written last.  A copy is verified at each use, so a damaged cache
only costs another download.  Several processes may share a folder.
"""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from nnpipe.core.bounded_json import parse_json
from nnpipe.core.files import write_text
from nnpipe.core.leases import sweep_file
from nnpipe.storage.store import Entry

LIMIT = 20 << 30
"""The default size of a cache in bytes; the least recently used copies are removed first."""

_NOTE_LIMIT = 10_000
_ABANDONED = 86_400.0  # seconds after which an unfinished download counts as abandoned


@dataclass(frozen=True)
class Copy:
    """A file in the cache, and the SHA-256 that its content should have."""

    path: Path
    sha256: str


@dataclass(frozen=True)
class Cache:
    """A folder of copies.

    Parameters
    ----------
    folder
        The folder; it is made for the first copy, and may be removed at any time.
    limit
        The total size limit of all copies in bytes.
    """

    folder: Path
    limit: int = LIMIT

    def place(self, source: str, entry: Entry) -> Path:
        """Return the path for the copy of this content; ``source`` identifies the store."""
        file = hashlib.sha256(f"{source}\n{entry.name}".encode()).hexdigest()[:32]
        content = hashlib.sha256(f"{entry.tag}\n{entry.size}".encode()).hexdigest()[:32]
        return self.folder / file / content

    def find(self, source: str, entry: Entry) -> Copy | None:
        """Return the copy of exactly this content, or None."""
        path = self.place(source, entry)
        try:
            with open(path.with_suffix(".json"), "rb") as handle:
                note = parse_json(handle.read(_NOTE_LIMIT))
            if path.stat().st_size != entry.size or note["size"] != entry.size:
                return None
            os.utime(path)
            return Copy(path, str(note["sha256"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def keep(self, source: str, entry: Entry, sha256: str) -> Copy:
        """Record the content that was written to :meth:`place`, and remove old copies if the cache is too large."""
        path = self.place(source, entry)
        note = {"source": source, "name": entry.name, "tag": entry.tag, "size": entry.size, "sha256": sha256}
        write_text(path.with_suffix(".json"), json.dumps(note) + "\n")
        for older in path.parent.iterdir():
            # Remove copies of the file's former content, but not those that another process is writing.
            if older.stem != path.stem and not older.name.startswith("."):
                older.unlink(missing_ok=True)
        self._evict(path)
        return Copy(path, sha256)

    def drop(self, copy: Copy) -> None:
        """Remove a copy."""
        copy.path.with_suffix(".json").unlink(missing_ok=True)
        copy.path.unlink(missing_ok=True)

    def _evict(self, newest: Path) -> None:
        sizes: list[tuple[float, int, Path]] = []
        for path in self.folder.glob("*/*"):
            with suppress(FileNotFoundError):
                if path.name.startswith("."):
                    sweep_file(path, _ABANDONED)
                elif not path.suffix:
                    status = path.stat()
                    sizes.append((status.st_mtime, status.st_size, path))
        total = sum(size for _, size, _ in sizes)
        for _, size, path in sorted(sizes):
            if total <= self.limit:
                break
            if path != newest:
                self.drop(Copy(path, ""))
                total -= size
