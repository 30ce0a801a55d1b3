"""Extraction of archives into a folder, whole or not at all, and never outside it.

Archives are not trusted: names and links that lead out of the folder, devices,
and archives with more content than allowed are rejected before anything gets
its final name.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import shutil
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from lzma import LZMAError
from pathlib import Path, PurePosixPath
from tarfile import TarError
from typing import IO, Any, Literal, TextIO, cast

from nnpipe.core.bounded_json import parse_json
from nnpipe.core.errors import DatasetError
from nnpipe.core.files import write_text
from nnpipe.datasets._progress import ByteProgress, file_lock

# Limit of one read by tarfile, which reads headers of any claimed length into memory as a whole.
_LARGEST_READ = 1 << 24
_LONGEST_LINK = 4096


class UnsafeArchive(Exception):
    """Raised if an archive is damaged or has an unsafe entry; the message names the entry and
    the reason.
    """


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


def split_entry_name(name: str) -> tuple[str, ...]:
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
def open_archive(archive: Path, max_bytes: int) -> Iterator[tuple[Iterator[ArchiveEntry], Any]]:
    """Open ``archive``; yield its entries, in order, and its file object, whose position shows the
    progress.

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
                yield _iter_zip_entries(packed), raw
            return
        with _open_decompressed(raw, head) as plain, _BoundedStream(plain, max_bytes) as bounded:
            with tarfile.open(fileobj=bounded, mode="r:") as tar:
                yield _iter_tar_entries(tar, bounded), raw


def _iter_tar_entries(tar: tarfile.TarFile, stream: _BoundedStream) -> Iterator[ArchiveEntry]:
    while (member := tar.next()) is not None:
        tar.members = []  # type: ignore[attr-defined]  # otherwise millions of headers would fill the memory
        parts = split_entry_name(member.name)
        if member.isreg():
            yield ArchiveEntry(parts, "file", content=tar.extractfile(member))
        elif member.isdir():
            yield ArchiveEntry(parts, "folder")
        elif member.issym():
            yield ArchiveEntry(parts, "symlink", target=member.linkname)
        elif member.islnk():
            yield ArchiveEntry(parts, "hardlink", target=member.linkname)
        else:
            raise UnsafeArchive(
                f"the entry {member.name!r} is a device, a pipe or of an unknown kind"
            )
    # tarfile treats an incomplete header as the end.  A whole archive ends with zeros, and a
    # compressed one with a checksum that is verified only when everything has been read.
    stream.seek(tar.offset)
    if stream.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
        raise UnsafeArchive("it breaks off before its end")
    while stream.read(_LARGEST_READ):
        pass


def _iter_zip_entries(packed: zipfile.ZipFile) -> Iterator[ArchiveEntry]:
    for info in packed.infolist():
        parts = split_entry_name(info.filename)
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
            raise UnsafeArchive(
                f"the entry {info.filename!r} is a device, a pipe or of an unknown kind"
            )


def _open_decompressed(raw: Any, head: bytes) -> Any:
    if head.startswith(b"\x1f\x8b"):
        return gzip.GzipFile(fileobj=raw)
    if head.startswith(b"BZh"):
        return bz2.BZ2File(raw)
    if head.startswith(b"\xfd7zXZ\x00"):
        return lzma.LZMAFile(raw)
    return raw


class _BoundedStream(io.RawIOBase):
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


STAMP = ".extracted.json"
_BLOCK = 1 << 18
# Exceptions that the standard library raises for damaged or unknown archives.
_DAMAGED = (
    *(TarError, zipfile.BadZipFile, zlib.error, LZMAError, EOFError, struct.error),
    *(RuntimeError, NotImplementedError, ValueError, OverflowError),
)


def extract(
    archive: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    members: Collection[str] | None = None,
    *,
    strip: int = 0,
    max_bytes: int = 64 << 30,
    max_members: int = 5_000_000,
    progress: bool = True,
    stream: TextIO | None = None,
) -> Path:
    """Extract a tar (plain, gz, bz2, xz) or zip archive into a new folder.

    Parameters
    ----------
    archive
        The archive file.
    folder
        The folder to create.  It appears whole, or not at all.  If it exists from
        an earlier extraction of an archive of that name, nothing happens.
    members
        Entries to extract, folders with their content; by default all.
    strip
        Number of leading folders to remove from each entry's name; entries
        without further parts are skipped.
    max_bytes, max_members
        Greatest total size of the content, and greatest number of entries.
    progress, stream
        Whether to show the progress, and the stream for it (``None`` for standard error).

    Returns
    -------
    Path
        ``folder``.

    Raises
    ------
    DatasetError
        If the archive is damaged, unsafe or lacks one of ``members``, or a folder
        from another source exists, which is not changed.
    """
    archive, folder = Path(archive), Path(folder)
    wanted = None if members is None else sorted(set(members))
    if _is_done(archive, folder, wanted):
        return folder
    temporary = folder.with_name(f".{folder.name}.partial")
    with ByteProgress(f"unpacking {archive.name}", shown=progress, stream=stream) as display:
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            with file_lock(
                folder.with_name(f".{folder.name}.lock"),
                lambda: display.print_line(
                    f"waiting for another process that is unpacking {archive.name}"
                ),
            ):
                if _is_done(archive, folder, wanted):
                    return folder
                _remove(temporary)  # left by a killed run; the lock ensures that nobody uses it
                try:
                    _Extraction(temporary, wanted, strip, max_bytes, max_members).run(
                        archive, display
                    )
                    write_text(
                        temporary / STAMP,
                        json.dumps({"archive": archive.name, "members": wanted}) + "\n",
                    )
                    temporary.rename(folder)
                finally:
                    _remove(temporary)
        except UnsafeArchive as error:
            raise DatasetError(
                f"{archive} was not unpacked: {error}; get the archive again"
            ) from None
        except _DAMAGED as error:
            raise DatasetError(
                f"{archive} is damaged and was not unpacked "
                f"({str(error) or type(error).__name__}); "
                "move it away and get it again"
            ) from None
        except OSError as error:
            place = error.filename or folder
            raise DatasetError(
                f"cannot unpack {archive} to {folder}: {place}: {error.strerror or error}"
            ) from None
    return folder


def _is_done(archive: Path, folder: Path, wanted: list[str] | None) -> bool:
    if not os.path.lexists(folder):
        return False
    try:
        stamp = parse_json((folder / STAMP).read_text(encoding="utf-8"))
        have = stamp["members"]
        if stamp["archive"] == archive.name and (
            have is None or (wanted is not None and set(wanted) <= set(have))
        ):
            return True
    except (OSError, ValueError, KeyError, TypeError):
        pass  # without nnpipe's stamp, it is not nnpipe's folder
    raise DatasetError(
        f"{folder} is in the way of unpacking {archive} and was left as it is; move it away"
    )


class _Extraction:
    """The extraction of one archive into a folder that nobody else uses."""

    def __init__(
        self, root: Path, wanted: list[str] | None, strip: int, max_bytes: int, max_members: int
    ):
        self._root = root
        self._strip = strip
        self._wanted = None if wanted is None else {split_entry_name(name): name for name in wanted}
        self._bytes_left = max_bytes
        self._members_left = max_members
        self._max_bytes = max_bytes
        self._files: set[tuple[str, ...]] = set()
        self._links: list[ArchiveEntry] = []
        self._seen: set[str] = set()

    def run(self, archive: Path, display: ByteProgress) -> None:
        self._root.mkdir()
        with open_archive(archive, self._max_bytes) as (entries, raw):
            display.begin(0, archive.stat().st_size)
            position = 0
            for entry in entries:
                self._members_left -= 1
                if self._members_left < 0:
                    raise UnsafeArchive("it has more entries than it may")
                if self._is_wanted(entry.parts) and len(entry.parts) > self._strip:
                    self._unpack(entry)
                # The archive may end before its file; of a zip, the central directory is read
                # first.
                display.advance(max(0, raw.tell() - position))
                position = max(position, raw.tell())
        if self._wanted is not None and (
            lacking := sorted(set(self._wanted.values()) - self._seen)
        ):
            raise UnsafeArchive(f"it lacks {', '.join(lacking)}")
        # Links come last, so that no file is written through one.
        for link in self._links:
            self._resolve_path(link.parts).symlink_to(link.target)
        inside = os.path.realpath(self._root)
        for link in self._links:
            real = os.path.realpath(self._resolve_path(link.parts))
            if os.path.commonpath([inside, real]) != inside:
                raise UnsafeArchive(f"the link {'/'.join(link.parts)!r} leaves the folder")

    def _resolve_path(self, parts: tuple[str, ...]) -> Path:
        return self._root.joinpath(*parts[self._strip :])

    def _is_wanted(self, parts: tuple[str, ...]) -> bool:
        if self._wanted is None:
            return True
        for length in range(len(parts) + 1):
            if (name := self._wanted.get(parts[:length])) is not None:
                self._seen.add(name)
                return True
        return False

    def _unpack(self, entry: ArchiveEntry) -> None:
        name = "/".join(entry.parts)
        path = self._resolve_path(entry.parts)
        if entry.kind == "folder":
            path.mkdir(parents=True, exist_ok=True)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        if os.path.lexists(path):
            raise UnsafeArchive(f"the entry {name!r} is there twice")
        if entry.kind == "symlink":
            if (
                PurePosixPath(entry.target).is_absolute()
                or "\\" in entry.target
                or "\0" in entry.target
            ):
                raise UnsafeArchive(f"the link {name!r} leaves the folder")
            self._links.append(entry)
        elif entry.kind == "hardlink":
            target = split_entry_name(entry.target)
            if target not in self._files:
                raise UnsafeArchive(f"the link {name!r} leads to no file before it")
            os.link(self._resolve_path(target), path)
            self._files.add(entry.parts)
        else:
            assert entry.content is not None
            self._copy(entry.content, path)
            self._files.add(entry.parts)

    def _copy(self, content: IO[bytes], path: Path) -> None:
        with open(path, "xb") as out:
            while block := content.read(_BLOCK):
                self._bytes_left -= len(block)
                if self._bytes_left < 0:
                    raise UnsafeArchive("it unpacks to more than it may")
                out.write(block)


def _remove(folder: Path) -> None:
    if folder.is_dir() and not folder.is_symlink():
        shutil.rmtree(folder)
    else:
        folder.unlink(missing_ok=True)


class MalformedContent(Exception):
    """Raised inside :func:`open_unpacked` if the content does not match its format."""


@contextmanager
def open_unpacked(path: Path) -> Iterator[IO[bytes]]:
    """Yield the content of ``path``, unpacked if its name ends in ``.gz``.

    Raises
    ------
    DatasetError
        If the file cannot be opened, gzip finds it damaged, or the block raises
        :class:`MalformedContent`.
    """
    try:
        with path.open("rb") as stream:
            if path.suffix == ".gz":
                with gzip.GzipFile(fileobj=stream) as content:
                    yield cast(IO[bytes], content)
            else:
                yield stream
    except (MalformedContent, gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DatasetError(f"{path} is damaged: {error}; move it away and get it again") from None
    except OSError as error:
        raise DatasetError(f"cannot read {path}: {error.strerror or error}") from None
