"""The interface of stores, which hold files by name for a storage.

A store does not know shelves or caches.  The names that it is given have been
checked by :func:`nnpipe.storage.store.validate_name`.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from nnpipe.core.errors import ConfigError, StorageError
from nnpipe.core.files import remove_abandoned, replace_atomically
from nnpipe.core.leases import lease_file, remove_abandoned_file
from nnpipe.core.messages import suggest_name

MAX_ENTRIES = 1_000_000
"""The largest number of files in a listing; more are considered a mistake, and may not fit into
memory.
"""

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
class OpenedEntry:
    """An entry, and a handle that reads exactly this content or raises :class:`FileChanged`."""

    entry: Entry
    handle: BinaryIO


class FileChanged(Exception):
    """A file was replaced while it was read; reading must be started again for the new content."""


class FileAbsent(Exception):
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
        """Return all files whose name begins with ``below/``, sorted by name; empty if there is no
        such folder.

        Raises
        ------
        StorageError
            If the store cannot be reached, or there are more than :data:`MAX_ENTRIES` files.
        """

    @abstractmethod
    def find(self, name: str) -> Entry | None:
        """Return the file with this name, or None."""

    @abstractmethod
    def open(self, name: str) -> AbstractContextManager[OpenedEntry]:
        """Open a file; raise :class:`FileAbsent` if there is none."""

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


MAX_NAME = 512
"""The size limit of a name in bytes of UTF-8; S3 accepts 1,024 including the prefix."""

_MAX_PART = 200  # file systems accept 255, and temporary names are a little longer than final ones
# characters of Windows, wildcards, and separators of addresses
_FORBIDDEN = frozenset('\\:*?"<>|#')
_UNSEEN = ("C", "Zl", "Zp")  # control and format characters, lone surrogates, line separators
_DEVICES = frozenset(
    (
        "con",
        "prn",
        "aux",
        "nul",
        *(f"{kind}{number}" for kind in ("com", "lpt") for number in range(1, 10)),
    )
)


def validate_name(name: str, what: str = "name") -> str:
    """Return a name if it is valid: relative parts joined by ``/``.

    Raises
    ------
    ConfigError
        If the name is invalid; the message gives the reason.  A name may not lead
        out of the storage (``..``, absolute paths), be hidden (leading dots), or
        look like another name (control characters, decomposed characters).
    """
    fault = _find_fault(name)
    if fault:
        raise ConfigError(f"{what} {name!r}: {fault}")
    return name


def _find_fault(name: str) -> str:
    if not isinstance(name, str) or not name:
        return "it is empty"
    if any(unicodedata.category(character).startswith(_UNSEEN) for character in name):
        return "it holds a control character"
    if len(name.encode()) > MAX_NAME:
        return f"it is longer than {MAX_NAME} bytes"
    if name.startswith("/"):
        return "it must be relative, without a leading /"
    bad = sorted(_FORBIDDEN.intersection(name))
    if bad:
        return f"it must not hold {' '.join(bad)}"
    if not unicodedata.is_normalized("NFC", name):
        return "it is not in Unicode's composed form (NFC)"
    return next(filter(None, map(_find_part_fault, name.split("/"))), "")


def _find_part_fault(part: str) -> str:
    if not part:
        return "a part between two / is empty"
    if part.startswith("."):
        return "no part may begin with a dot"
    if part.endswith((".", " ")) or part.startswith(" "):
        return "no part may end with a dot, or begin or end with a space"
    if len(part.encode()) > _MAX_PART:
        return f"a part is longer than {_MAX_PART} bytes"
    if part.partition(".")[0].lower() in _DEVICES:
        return f"{part!r} is a device on Windows"
    return ""


_MIB, _GIB = 1 << 20, 1 << 30


@dataclass(frozen=True)
class Shelf:
    """A top-level folder of a storage: its name, its content, and the size limit of its files in
    bytes.
    """

    name: str
    holds: str
    limit: int


SHELVES = (
    Shelf("untrained-models", "models before training, and their descriptions", 64 * _GIB),
    Shelf(
        "training-results", "trained models, figures and reports of finished trainings", 64 * _GIB
    ),
    Shelf("training-progress", "status and checkpoints of trainings that still run", 64 * _GIB),
    Shelf("training-scripts", "scripts that train, written by hand or generated", 16 * _MIB),
    Shelf("datasets", "data to train with", 1024 * _GIB),
    Shelf("test-data", "data to try a model with", 1024 * _GIB),
    Shelf("plugins", "Python files that read data and show results", 16 * _MIB),
)


def get_shelf(name: str) -> Shelf:
    """Return the shelf with this name.

    Raises
    ------
    ConfigError
        If there is none; the message lists the shelves.
    """
    known = {shelf.name: shelf for shelf in SHELVES}
    if name not in known:
        raise ConfigError(
            f"there is no shelf "
            f"{name!r}{suggest_name(name, known) or '; there are ' + ', '.join(known)}"
        )
    return known[name]


# A store in a local or mounted folder.
#
# It uses the standard library, not fsspec.  fsspec's local file system writes to the system's
# temporary folder first; moving the file from there may copy it, so that another process can see an
# incomplete file.  It also needs no package on a small board.

_BLOCK = 1 << 20
_UNFINISHED = re.compile(r"\..+\.[0-9a-f]{8}[-0-9a-f]*\.(partial|new)(\.[^.]*)?")
# seconds without a write; checked in addition to the lock, which other machines may not see
_IDLE = 600.0
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}


class LocalStore(Store):
    """Files in a folder, which is made when the first file is published.

    Links in the folder are ignored, since they could lead out of it.
    """

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self.location = str(self.root)

    def entries(self, below: str) -> list[Entry]:
        """List the files below a folder, without names that begin with a dot (unfinished or foreign
        files).

        Unfinished files of ended processes are removed.
        """
        found: list[Entry] = []
        waiting = [below]
        while waiting:
            name = waiting.pop()
            try:
                with os.scandir(self._build_path(name)) as items:
                    for item in items:
                        if _UNFINISHED.fullmatch(item.name):
                            remove_abandoned_file(Path(item.path), _IDLE)
                        if item.name.startswith(".") or item.is_symlink():
                            continue
                        inner = f"{name}/{item.name}"
                        if item.is_dir(follow_symlinks=False):
                            waiting.append(inner)
                        elif item.is_file(follow_symlinks=False):
                            with suppress(FileNotFoundError):  # removed since
                                found.append(_build_entry(inner, item.stat(follow_symlinks=False)))
            except (FileNotFoundError, NotADirectoryError):
                continue
            if len(found) + len(waiting) > MAX_ENTRIES:
                raise StorageError(
                    f"{self.location}: more than {MAX_ENTRIES:,} files below {below!r}"
                )
        return sorted(found, key=lambda entry: entry.name)

    def find(self, name: str) -> Entry | None:
        """Return the entry of a file, or None."""
        try:
            status = self._build_path(name).lstat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return _build_entry(name, status) if stat.S_ISREG(status.st_mode) else None

    @contextmanager
    def open(self, name: str) -> Iterator[OpenedEntry]:
        """Open a file; replacing it does not affect the open handle."""
        if self.find(name) is None:
            raise FileAbsent(name)
        with ExitStack() as stack:
            try:
                handle = stack.enter_context(open(self._build_path(name), "rb"))
            except FileNotFoundError:  # removed in the meantime
                raise FileAbsent(name) from None
            yield OpenedEntry(_build_entry(name, os.fstat(handle.fileno())), handle)

    def put(self, name: str, source: Path, replace: bool, advance: Advance) -> None:
        """Copy the file beside its destination, then rename it, or link it, which fails if the
        name is taken.
        """
        destination = self._build_path(name)
        remove_abandoned(destination.parent)
        if destination.is_dir():
            _remove_empty_folders(destination)
        for attempt in range(10):
            try:
                self._put(destination, source, replace, advance)
                return
            except FileNotFoundError:
                # Another process has removed the last file of the folder, and the folder, during
                # the copy.
                if attempt == 9 or not source.exists():
                    raise

    def _put(self, destination: Path, source: Path, replace: bool, advance: Advance) -> None:
        with ExitStack() as leases:  # they are held until after the rename
            self._publish(destination, source, replace, advance, leases)

    def _publish(
        self, destination: Path, source: Path, replace: bool, advance: Advance, leases: ExitStack
    ) -> None:
        if replace:
            with replace_atomically(destination) as temporary:
                leases.enter_context(lease_file(temporary))
                _copy(source, temporary, advance)
            return
        if os.path.lexists(destination):
            raise FileExistsError(errno.EEXIST, "the name is taken", str(destination))
        whole = destination.with_name(
            f".{destination.stem}.{secrets.token_hex(4)}.new{destination.suffix}"
        )
        try:
            with replace_atomically(whole) as temporary:
                leases.enter_context(lease_file(temporary))
                _copy(source, temporary, advance)
            try:
                os.link(whole, destination)
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
                # Without hard links (FAT, some network drives), the name may be taken just after
                # the check above.
                os.replace(whole, destination)
        finally:
            whole.unlink(missing_ok=True)

    def remove(self, name: str) -> None:
        """Remove a file, and the folders that become empty."""
        path = self._build_path(name)
        if self.find(name) is None:
            return
        path.unlink(missing_ok=True)
        for folder in path.parents:
            if folder == self.root:
                break
            try:
                folder.rmdir()
            except OSError:
                break

    def _build_path(self, name: str) -> Path:
        path = self.root / name
        # Names have been checked, so only a link in the folder could lead out of it.
        inside, root = path.parent.resolve(), self.root.resolve()
        if inside != root and root not in inside.parents:
            raise StorageError(f"{name}: a link in {self.root} leads out of it, to {inside}")
        return path


def _copy(source: Path, destination: Path, advance: Advance) -> None:
    with open(source, "rb") as reader, open(destination, "wb") as writer:
        while block := reader.read(_BLOCK):
            writer.write(block)
            advance(len(block))


def _remove_empty_folders(folder: Path) -> None:
    """Remove a tree of folders if it contains no files."""
    for path, _, _ in os.walk(folder, topdown=False):
        with suppress(OSError):
            Path(path).rmdir()


def _build_entry(name: str, status: os.stat_result) -> Entry:
    tag = f"{status.st_mtime_ns}-{status.st_size}-{status.st_ino}"
    return Entry(name, status.st_size, status.st_mtime, tag)
