"""What a storage stands on: whole files by name.

A store knows nothing of shelves or caches.  Names that reach it have been
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
"""Files that a listing gives at most; more is taken for a mistake, and memory would not hold them."""

Advance = Callable[[int], None]
"""Is told how many further bytes were carried."""


@dataclass(frozen=True)
class Entry:
    """A file in a store.

    Attributes
    ----------
    name
        Its name below the store's root.
    size
        Bytes.
    changed
        When it was published, in seconds since 1970.
    tag
        Differs between two contents: S3's ETag, or time, size and inode of a local file.
    """

    name: str
    size: int
    changed: float
    tag: str


@dataclass(frozen=True)
class Opened:
    """An entry, and a handle that reads this very content or raises :class:`Changed`."""

    entry: Entry
    handle: BinaryIO


class Changed(Exception):
    """A file was replaced while it was read; whoever wants the new content starts again."""


class Absent(Exception):
    """There is no such file, or none any more."""


class Store(ABC):
    """Whole files by name.  All methods may be called from several threads and processes at once.

    Attributes
    ----------
    location
        The address, as people write it.
    """

    location: str

    @abstractmethod
    def entries(self, below: str) -> list[Entry]:
        """Return all files whose name begins with ``below/``, by name; none where there is no such folder.

        Raises
        ------
        StorageError
            The store cannot be reached, or holds more than :data:`MAX_ENTRIES` files there.
        """

    @abstractmethod
    def find(self, name: str) -> Entry | None:
        """Return the file of that name, if there is one."""

    @abstractmethod
    def open(self, name: str) -> AbstractContextManager[Opened]:
        """Open a file; raises :class:`Absent` if there is none."""

    @abstractmethod
    def put(self, name: str, source: Path, replace: bool, advance: Advance) -> None:
        """Publish a file, whole or not at all.

        Of several writers to one name the last wins; a reader never sees a
        mixture.  Unless ``replace``, raises ``FileExistsError`` when the name
        is taken, also by a writer at the same time.
        """

    @abstractmethod
    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
