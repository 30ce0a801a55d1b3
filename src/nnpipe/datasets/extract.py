"""Extraction of archives into a folder, whole or not at all, and never outside it.

Archives are not trusted: names and links that lead out of the folder, devices,
and archives with more content than allowed are rejected before anything gets
its final name.
"""

from __future__ import annotations

import json
import os
import shutil
import struct
import zipfile
import zlib
from collections.abc import Collection
from lzma import LZMAError
from pathlib import Path, PurePosixPath
from tarfile import TarError
from typing import IO, TextIO

from nnpipe.core.bounded_json import parse_json
from nnpipe.core.errors import DatasetError
from nnpipe.core.files import write_text
from nnpipe.datasets._archives import ArchiveEntry, UnsafeArchive, entries_of, safe_parts
from nnpipe.datasets._lock import locked
from nnpipe.datasets._progress import ByteProgress

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
            with locked(
                folder.with_name(f".{folder.name}.lock"),
                lambda: display.say(f"waiting for another process that is unpacking {archive.name}"),
            ):
                if _is_done(archive, folder, wanted):
                    return folder
                _remove(temporary)  # left by a killed run; the lock ensures that nobody uses it
                try:
                    _Unpacking(temporary, wanted, strip, max_bytes, max_members).run(archive, display)
                    write_text(temporary / STAMP, json.dumps({"archive": archive.name, "members": wanted}) + "\n")
                    temporary.rename(folder)
                finally:
                    _remove(temporary)
        except UnsafeArchive as error:
            raise DatasetError(f"{archive} was not unpacked: {error}; get the archive again") from None
        except _DAMAGED as error:
            raise DatasetError(
                f"{archive} is damaged and was not unpacked ({str(error) or type(error).__name__}); "
                "move it away and get it again"
            ) from None
        except OSError as error:
            place = error.filename or folder
            raise DatasetError(f"cannot unpack {archive} to {folder}: {place}: {error.strerror or error}") from None
    return folder


def _is_done(archive: Path, folder: Path, wanted: list[str] | None) -> bool:
    if not os.path.lexists(folder):
        return False
    try:
        stamp = parse_json((folder / STAMP).read_text(encoding="utf-8"))
        have = stamp["members"]
        if stamp["archive"] == archive.name and (have is None or (wanted is not None and set(wanted) <= set(have))):
            return True
    except (OSError, ValueError, KeyError, TypeError):
        pass  # without nnpipe's stamp, it is not nnpipe's folder
    raise DatasetError(f"{folder} is in the way of unpacking {archive} and was left as it is; move it away")


class _Unpacking:
    """The extraction of one archive into a folder that nobody else uses."""

    def __init__(self, root: Path, wanted: list[str] | None, strip: int, max_bytes: int, max_members: int):
        self._root = root
        self._strip = strip
        self._wanted = None if wanted is None else {safe_parts(name): name for name in wanted}
        self._bytes_left = max_bytes
        self._members_left = max_members
        self._max_bytes = max_bytes
        self._files: set[tuple[str, ...]] = set()
        self._links: list[ArchiveEntry] = []
        self._seen: set[str] = set()

    def run(self, archive: Path, display: ByteProgress) -> None:
        self._root.mkdir()
        with entries_of(archive, self._max_bytes) as (entries, raw):
            display.begin(0, archive.stat().st_size)
            position = 0
            for entry in entries:
                self._members_left -= 1
                if self._members_left < 0:
                    raise UnsafeArchive("it has more entries than it may")
                if self._is_wanted(entry.parts) and len(entry.parts) > self._strip:
                    self._unpack(entry)
                # The archive may end before its file; of a zip, the central directory is read first.
                display.advance(max(0, raw.tell() - position))
                position = max(position, raw.tell())
        if self._wanted is not None and (lacking := sorted(set(self._wanted.values()) - self._seen)):
            raise UnsafeArchive(f"it lacks {', '.join(lacking)}")
        # Links come last, so that no file is written through one.
        for link in self._links:
            self._place(link.parts).symlink_to(link.target)
        inside = os.path.realpath(self._root)
        for link in self._links:
            real = os.path.realpath(self._place(link.parts))
            if os.path.commonpath([inside, real]) != inside:
                raise UnsafeArchive(f"the link {'/'.join(link.parts)!r} leaves the folder")

    def _place(self, parts: tuple[str, ...]) -> Path:
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
        path = self._place(entry.parts)
        if entry.kind == "folder":
            path.mkdir(parents=True, exist_ok=True)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        if os.path.lexists(path):
            raise UnsafeArchive(f"the entry {name!r} is there twice")
        if entry.kind == "symlink":
            if PurePosixPath(entry.target).is_absolute() or "\\" in entry.target or "\0" in entry.target:
                raise UnsafeArchive(f"the link {name!r} leaves the folder")
            self._links.append(entry)
        elif entry.kind == "hardlink":
            target = safe_parts(entry.target)
            if target not in self._files:
                raise UnsafeArchive(f"the link {name!r} leads to no file before it")
            os.link(self._place(target), path)
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
