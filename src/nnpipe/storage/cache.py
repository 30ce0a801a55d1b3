"""Copies of files from a far store, kept by what their content was tagged with.

Each copy is two files: the content, and a line of JSON with its size and
SHA-256, written last.  A copy is checked against it whenever it is used, so a
damaged cache costs a download and nothing else.  Several processes may share
a folder.
"""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from nnpipe.core.files import write_text
from nnpipe.core.leases import sweep_file
from nnpipe.storage.store import Entry

LIMIT = 20 << 30
"""Bytes that a cache holds by default; what was used longest ago goes first."""

_NOTE_LIMIT = 10_000
_ABANDONED = 86_400.0  # seconds after which what began to be fetched will not be finished


@dataclass(frozen=True)
class Copy:
    """Content in the cache, and the SHA-256 that it should have."""

    path: Path
    sha256: str


@dataclass(frozen=True)
class Cache:
    """A folder of copies.

    Parameters
    ----------
    folder
        Made when the first copy is kept.  It may be removed at any time.
    limit
        Bytes of all copies together.
    """

    folder: Path
    limit: int = LIMIT

    def place(self, source: str, entry: Entry) -> Path:
        """Say where the copy of this content belongs; ``source`` tells stores apart."""
        file = hashlib.sha256(f"{source}\n{entry.name}".encode()).hexdigest()[:32]
        content = hashlib.sha256(f"{entry.tag}\n{entry.size}".encode()).hexdigest()[:32]
        return self.folder / file / content

    def find(self, source: str, entry: Entry) -> Copy | None:
        """Return the copy, unless there is none of this very content."""
        path = self.place(source, entry)
        try:
            with open(path.with_suffix(".json"), "rb") as handle:
                note = json.loads(handle.read(_NOTE_LIMIT))
            if path.stat().st_size != entry.size or note["size"] != entry.size:
                return None
            os.utime(path)
            return Copy(path, str(note["sha256"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def keep(self, source: str, entry: Entry, sha256: str) -> Copy:
        """Note down the content that lies at :meth:`place` now, and make room for it."""
        path = self.place(source, entry)
        note = {"source": source, "name": entry.name, "tag": entry.tag, "size": entry.size, "sha256": sha256}
        write_text(path.with_suffix(".json"), json.dumps(note) + "\n")
        for older in path.parent.iterdir():
            # What the file held before is of no more use; what another process is writing is left alone.
            if older.stem != path.stem and not older.name.startswith("."):
                older.unlink(missing_ok=True)
        self._evict(path)
        return Copy(path, sha256)

    def drop(self, copy: Copy) -> None:
        """Forget a copy."""
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
