"""The entries of tar and zip archives, each checked before its content is read."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import stat
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, Literal

# Limit of one read by tarfile, which reads headers of any claimed length into memory as a whole.
_LARGEST_READ = 1 << 24
_LONGEST_LINK = 4096


class UnsafeArchive(Exception):
    """Raised if an archive is damaged or has an unsafe entry; the message names the entry and the reason."""


@dataclass(frozen=True)
class ArchiveEntry:
    """One entry of an archive.

    ``parts`` is its path below the folder, without ``.`` and ``..``;
    ``content`` is the open content of a file; ``target`` is the target of a
    link: as written for a symbolic link, another entry's path for a hard link.
    """

    parts: tuple[str, ...]
    kind: Literal["file", "folder", "symlink", "hardlink"]
    content: IO[bytes] | None = None
    target: str = ""


def safe_parts(name: str) -> tuple[str, ...]:
    """Split an entry's name into path parts.

    Raises
    ------
    UnsafeArchive
        If the name leads out of the folder on this or another system.
    """
    path = name.replace("\\", "/")
    if not path or "\0" in path or path.startswith("/") or (len(path) > 1 and path[1] == ":"):
        raise UnsafeArchive(f"the entry {name!r} has no relative path")
    parts = PurePosixPath(path).parts
    if ".." in parts:
        raise UnsafeArchive(f"the entry {name!r} leads out of the folder")
    return parts


@contextmanager
def entries_of(archive: Path, max_bytes: int) -> Iterator[tuple[Iterator[ArchiveEntry], Any]]:
    """Open ``archive``; yield its entries, in order, and its file object, whose position shows the progress.

    The entries must be used one by one.

    Raises
    ------
    tarfile.TarError, zipfile.BadZipFile
        If it is neither tar nor zip, or damaged.
    OSError
        If it cannot be read.
    """
    with open(archive, "rb") as raw:
        head = raw.read(6)
        raw.seek(0)
        if head.startswith(b"PK"):
            with zipfile.ZipFile(raw) as packed:
                yield _zip_entries(packed), raw
            return
        with _decompressed(raw, head) as plain, _Bounded(plain, max_bytes) as bounded:
            with tarfile.open(fileobj=bounded, mode="r:") as tar:
                yield _tar_entries(tar, bounded), raw


def _tar_entries(tar: tarfile.TarFile, stream: _Bounded) -> Iterator[ArchiveEntry]:
    while (member := tar.next()) is not None:
        tar.members = []  # type: ignore[attr-defined]  # otherwise millions of headers would fill the memory
        parts = safe_parts(member.name)
        if member.isreg():
            yield ArchiveEntry(parts, "file", content=tar.extractfile(member))
        elif member.isdir():
            yield ArchiveEntry(parts, "folder")
        elif member.issym():
            yield ArchiveEntry(parts, "symlink", target=member.linkname)
        elif member.islnk():
            yield ArchiveEntry(parts, "hardlink", target=member.linkname)
        else:
            raise UnsafeArchive(f"the entry {member.name!r} is a device, a pipe or of an unknown kind")
    # tarfile treats an incomplete header as the end.  A whole archive ends with zeros, and a
    # compressed one with a checksum that is verified only when everything has been read.
    stream.seek(tar.offset)
    if stream.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
        raise UnsafeArchive("it breaks off before its end")
    while stream.read(_LARGEST_READ):
        pass


def _zip_entries(packed: zipfile.ZipFile) -> Iterator[ArchiveEntry]:
    for info in packed.infolist():
        parts = safe_parts(info.filename)
        mode = info.external_attr >> 16
        if info.is_dir():
            yield ArchiveEntry(parts, "folder")
        elif stat.S_ISLNK(mode):
            with packed.open(info) as content:
                target = content.read(_LONGEST_LINK + 1)
            if len(target) > _LONGEST_LINK:
                raise UnsafeArchive(f"the entry {info.filename!r} is too long for a link")
            yield ArchiveEntry(parts, "symlink", target=target.decode("utf-8", "surrogateescape"))
        elif stat.S_IFMT(mode) in {0, stat.S_IFREG}:
            with packed.open(info) as content:
                yield ArchiveEntry(parts, "file", content=content)
        else:
            raise UnsafeArchive(f"the entry {info.filename!r} is a device, a pipe or of an unknown kind")


def _decompressed(raw: Any, head: bytes) -> Any:
    if head.startswith(b"\x1f\x8b"):
        return gzip.GzipFile(fileobj=raw)
    if head.startswith(b"BZh"):
        return bz2.BZ2File(raw)
    if head.startswith(b"\xfd7zXZ\x00"):
        return lzma.LZMAFile(raw)
    return raw


class _Bounded(io.RawIOBase):
    """A readable stream that raises for more than ``limit`` bytes in all, or too many at once."""

    def __init__(self, stream: Any, limit: int):
        super().__init__()
        self._stream = stream
        # Headers and padding come in addition to the contents.
        self._limit = limit + limit // 8 + (1 << 20)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return int(self._stream.tell())

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence != io.SEEK_SET:
            raise io.UnsupportedOperation("only absolute positions")
        if offset > self._limit:
            raise UnsafeArchive("it unpacks to more than it may")
        return int(self._stream.seek(offset))

    def read(self, size: int = -1) -> bytes:
        if size < 0 or size > _LARGEST_READ:
            raise UnsafeArchive("a header in it claims to be unreasonably long")
        data = bytes(self._stream.read(size))
        if self._stream.tell() > self._limit:
            raise UnsafeArchive("it unpacks to more than it may")
        return data
