"""The interface of stores, which hold files by name for a storage.

A store does not know shelves or caches.  The names that it is given have been
checked by :func:`nnpipe.storage.names.checked_name`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

MAX_ENTRIES = 1_000_000
"""The largest number of files in a listing; more are considered a mistake, and may not fit into memory."""

Advance = Callable[[int], None]
"""Called with the number of bytes that have been transferred since the last call."""


@dataclass(frozen=True)
class Entry:
    """A file in a store.

    Attributes
    ----------
    name
        The name, relative to the store's root.
    size
        The size in bytes.
    changed
        The time of publication, in seconds since 1970.
    tag
        An identifier of the content: S3's ETag, or time, size and inode of a local file.
    """

    name: str
    size: int
    changed: float
    tag: str


@dataclass(frozen=True)
class Opened:
    """An entry, and a handle that reads exactly this content or raises :class:`Changed`."""

    entry: Entry
    handle: BinaryIO


class Changed(Exception):
    """A file was replaced while it was read; reading must be started again for the new content."""


class Absent(Exception):
    """The file does not exist, or no longer."""


class Store(ABC):
    """Files by name.  All methods may be called from several threads and processes at once.

    Attributes
    ----------
    location
        The address, as users write it.
    """

    location: str

    @abstractmethod
    def entries(self, below: str) -> list[Entry]:
        """Return all files whose name begins with ``below/``, sorted by name; empty if there is no such folder.

        Raises
        ------
        StorageError
            If the store cannot be reached, or there are more than :data:`MAX_ENTRIES` files.
        """

    @abstractmethod
    def find(self, name: str) -> Entry | None:
        """Return the file with this name, or None."""

    @abstractmethod
    def open(self, name: str) -> AbstractContextManager[Opened]:
        """Open a file; raise :class:`Absent` if there is none."""

    @abstractmethod
    def put(self, name: str, source: Path, replace: bool, advance: Advance) -> None:
        """Publish a file atomically.

        If several writers use the same name, the last one wins; a reader never
        sees a mixture.  Without ``replace``, raise ``FileExistsError`` if the
        name is taken, also by a simultaneous writer.
        """

    @abstractmethod
    def remove(self, name: str) -> None:
        """Remove a file if it exists."""
