"""A storage: the shelves of a store, with checked names, size limits, atomic transfers, and a
cache.
"""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from nnpipe.core.argument_checks import check_call
from nnpipe.core.bounded_json import parse_json
from nnpipe.core.errors import ConfigError, StorageError
from nnpipe.core.files import compute_sha256, replace_atomically, write_text
from nnpipe.core.leases import remove_abandoned_file
from nnpipe.core.messages import suggest_name
from nnpipe.storage.s3 import S3Store
from nnpipe.storage.store import (
    Advance,
    Entry,
    FileAbsent,
    FileChanged,
    LocalStore,
    Store,
    get_shelf,
    validate_name,
)

# A cache of files from a remote store, identified by the tags of their content.
#
# Each copy consists of two files: the content, and a line of JSON with its size and SHA-256, which
# is written last.  A copy is verified at each use, so a damaged cache only costs another download.
# Several processes may share a folder.

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

    def record_copy(self, source: str, entry: Entry, sha256: str) -> Copy:
        """Record the content that was written to :meth:`place`, and remove old copies if the
        cache is too large.
        """
        path = self.place(source, entry)
        note = {
            "source": source,
            "name": entry.name,
            "tag": entry.tag,
            "size": entry.size,
            "sha256": sha256,
        }
        write_text(path.with_suffix(".json"), json.dumps(note) + "\n")
        for older in path.parent.iterdir():
            # Remove copies of the file's former content, but not those that another process is
            # writing.
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
                    remove_abandoned_file(path, _ABANDONED)
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


_BLOCK = 4 << 20
_ATTEMPTS = 10


def _ignore_progress(_: int) -> None:
    """Ignore the progress: the default of ``advance``."""


@dataclass(frozen=True)
class Storage:
    """Models, data and results by shelf and name.

    Threads may share a storage, and other processes may use the same store.

    Parameters
    ----------
    store
        The store of the files.
    cache
        A cache of files that were read; with None, each read uses the store.
    """

    store: Store
    cache: Cache | None = None

    def entries(self, shelf: str, below: str = "") -> list[Entry]:
        """Return the files of a shelf, or of a folder in it, sorted by name; names are relative
        to the shelf.
        """
        root = get_shelf(shelf).name
        folder = f"{root}/{validate_name(below)}" if below else root
        with _convert_os_errors(f"{self.store.location}/{folder}"):
            found = self.store.entries(folder)
        return [dataclasses.replace(entry, name=entry.name[len(root) + 1 :]) for entry in found]

    def find(self, shelf: str, name: str) -> Entry | None:
        """Return the file with this name, or None."""
        path = _build_path(shelf, name)
        with _convert_os_errors(f"{self.store.location}/{path}"):
            found = self.store.find(path)
        return None if found is None else dataclasses.replace(found, name=name)

    def put(
        self,
        shelf: str,
        name: str,
        source: Path,
        *,
        replace: bool = False,
        advance: Advance = _ignore_progress,
    ) -> None:
        """Publish a file atomically.

        Raises
        ------
        ConfigError
            If the name is invalid.
        StorageError
            If there is no such file, it is too large, its name is taken without
            ``replace``, or the store failed.
        """
        path, limit = _build_path(shelf, name), get_shelf(shelf).limit
        if not source.is_file():
            raise StorageError(f"{source}: no such file")
        size = source.stat().st_size
        if size > limit:
            raise StorageError(f"{source}: {size:,} bytes; a file in {shelf} may have {limit:,}")
        where = f"{self.store.location}/{path}"
        with _convert_os_errors(where):
            try:
                self.store.put(path, source, replace, advance)
            except FileExistsError:
                raise StorageError(
                    f"{where}: the name is taken; publish under another one, or replace it"
                ) from None

    def get(
        self,
        shelf: str,
        name: str,
        destination: Path,
        *,
        limit: int | None = None,
        advance: Advance = _ignore_progress,
    ) -> Entry:
        """Fetch a file, and replace ``destination`` atomically.

        Parameters
        ----------
        shelf, name
            The shelf and the name of the file.
        destination
            The path to write to; an existing file is replaced.
        limit
            The size limit in bytes; by default the shelf's.
        advance
            Called with the number of received bytes, from the store or from the cache.

        Raises
        ------
        StorageError
            If there is no such file, it is too large, it was replaced repeatedly
            while it was read, or the store failed.
        """
        path, bound = _build_path(shelf, name), get_shelf(shelf).limit if limit is None else limit
        where = f"{self.store.location}/{path}"
        with _convert_os_errors(where):
            for _ in range(_ATTEMPTS):
                try:
                    return self._get(path, destination, bound, advance)
                except FileChanged:
                    continue
                except FileAbsent:
                    raise self._build_missing_error(shelf, name) from None
        raise StorageError(
            f"{where}: replaced {_ATTEMPTS} times while it was read; try again when its writers "
            f"are done"
        )

    def remove(self, shelf: str, name: str) -> None:
        """Remove a file; raise :class:`StorageError` if there is none."""
        path = _build_path(shelf, name)
        with _convert_os_errors(f"{self.store.location}/{path}"):
            if self.store.find(path) is None:
                raise self._build_missing_error(shelf, name)
            self.store.remove(path)

    def _get(self, path: str, destination: Path, limit: int, advance: Advance) -> Entry:
        if self.cache is None:
            with replace_atomically(destination) as temporary:
                return self._fetch(path, temporary, limit, advance)[0]
        entry = self.store.find(path)
        if entry is None:
            raise FileAbsent(path)
        self._check_size(entry, limit)
        known = self.cache.find(self._source, entry)
        if known is None or not _copy_from_cache(known, destination, advance):
            if known is not None:
                self.cache.drop(known)
            with replace_atomically(self.cache.place(self._source, entry)) as temporary:
                fetched, sha256 = self._fetch(path, temporary, limit, advance)
                if fetched.tag != entry.tag:
                    raise FileChanged(path)
            if not _copy_from_cache(
                self.cache.record_copy(self._source, entry, sha256), destination, _ignore_progress
            ):
                raise FileChanged(
                    path
                )  # another process has removed it to free space, or replaced it
        return entry

    def _fetch(
        self, path: str, destination: Path, limit: int, advance: Advance
    ) -> tuple[Entry, str]:
        with self.store.open(path) as opened:
            entry = opened.entry
            self._check_size(entry, limit)
            size, sha256 = _copy(opened.handle, destination, entry.size, advance)
        if size != entry.size:
            raise StorageError(
                f"{self.store.location}/{path}: {size:,} bytes came, {entry.size:,} were announced"
            )
        return entry, sha256

    def _check_size(self, entry: Entry, limit: int) -> None:
        if entry.size > limit:
            where = f"{self.store.location}/{entry.name}"
            raise StorageError(
                f"{where}: {entry.size:,} bytes, more than the {limit:,} allowed; nothing was "
                f"fetched"
            )

    @property
    def _source(self) -> str:
        return f"{self.store.location} {getattr(self.store, 'endpoint', None) or ''}"

    def _build_missing_error(self, shelf: str, name: str) -> StorageError:
        known = [entry.name for entry in self.entries(shelf)]
        hint = suggest_name(name, known) or f"; nnpipe storage list {shelf} shows what there is"
        return StorageError(f"{self.store.location}/{shelf} has no file {name!r}{hint}")


def open_storage(
    location: str, *, endpoint: str | None = None, cache: Path | None = None
) -> Storage:
    """Return the storage in a folder or at ``s3://BUCKET/PREFIX``, without accessing it yet.

    Parameters
    ----------
    location
        A folder, with or without ``file://``, or an address in S3.
    endpoint
        A server with the API of S3, such as ``http://localhost:9000``.
    cache
        The folder of the cache.

    Raises
    ------
    ConfigError
        If the address is of another kind.
    """
    check_call(open_storage, locals())
    scheme, sign, rest = location.partition("://")
    if not location or any(ord(character) < 32 for character in location):
        raise ConfigError("the address of the storage is empty, or holds control characters")
    kept = None if cache is None else Cache(cache)
    if sign and scheme == "s3":
        bucket, _, prefix = rest.partition("/")
        return Storage(S3Store(bucket, prefix.strip("/"), endpoint), kept)
    if endpoint is not None:
        raise ConfigError(f"{location}: a folder has no endpoint; write s3://BUCKET/PREFIX")
    if sign and scheme == "file" and rest.startswith("/"):
        return Storage(LocalStore(Path(rest)), kept)
    if sign:
        raise ConfigError(
            f"{scheme}://: a storage is a folder, file:///FOLDER or s3://BUCKET/PREFIX"
        )
    return Storage(LocalStore(Path(location).expanduser()), kept)


def _build_path(shelf: str, name: str) -> str:
    return f"{get_shelf(shelf).name}/{validate_name(name)}"


def _copy_from_cache(copy: Copy, destination: Path, advance: Advance) -> bool:
    """Copy from the cache; return False, without a new file, if the content is damaged."""
    with ExitStack() as stack:
        try:
            handle = stack.enter_context(open(copy.path, "rb"))
        except FileNotFoundError:  # another process has removed it to free space
            return False
        try:
            with replace_atomically(destination) as temporary:
                count, sha256 = _copy(handle, temporary, None, _ignore_progress)
                if sha256 != copy.sha256:
                    raise _Damaged
        except _Damaged:
            return False
    advance(count)
    return True


class _Damaged(Exception):
    """A copy in the cache is damaged."""


def _copy(
    handle: BinaryIO, destination: Path, size: int | None, advance: Advance
) -> tuple[int, str]:
    digest, count = hashlib.sha256(), 0
    with open(destination, "wb") as writer:
        while block := handle.read(_BLOCK):
            count += len(block)
            if size is not None and count > size:
                break
            writer.write(block)
            digest.update(block)
            advance(len(block))
    return count, digest.hexdigest()


@contextmanager
def _convert_os_errors(where: str) -> Iterator[None]:
    """Convert errors of the operating system to one line."""
    try:
        yield
    except OSError as error:
        hint = "; free some space" if error.errno == errno.ENOSPC else ""
        raise StorageError(f"{where}: {error.strerror or error}{hint}") from None


SHELF = "training-results"
_FOLDER = "by-hash"
_MOST_LIST = 1 << 20  # bytes of a list of files


def put_files(storage: Storage, files: Mapping[str, Path]) -> str:
    """Publish files, and return the SHA-256 of their list, by which :func:`get_files` finds them.

    Parameters
    ----------
    storage
        Where they are published; those that are there already are not sent again.
    files
        The files by the name that each is to have.

    Raises
    ------
    NNPipeError
        If a name is invalid, a file is missing, or the storage fails.
    """
    listed = {validate_name(name): _put(storage, path) for name, path in sorted(files.items())}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "list.json")
        path.write_text(json.dumps(listed), "utf-8")
        return _put(storage, path)


def get_files(storage: Storage, digest: str, folder: Path) -> dict[str, Path]:
    """Fetch the files of a list into a folder, and return their paths by name.

    Raises
    ------
    StorageError
        If a file is missing, or is not what its SHA-256 says.
    """
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary, "list.json")
        _get(storage, digest, path, _MOST_LIST)
        listed = parse_json(path.read_text("utf-8"))
    found = {validate_name(name): (folder / name, sha256) for name, sha256 in listed.items()}
    for path, sha256 in found.values():
        if not (path.is_file() and compute_sha256(path) == sha256):
            path.parent.mkdir(parents=True, exist_ok=True)
            _get(storage, sha256, path)
    return {name: path for name, (path, _) in found.items()}


def _put(storage: Storage, path: Path) -> str:
    sha256 = compute_sha256(path)
    if storage.find(SHELF, f"{_FOLDER}/{sha256}") is None:
        storage.put(SHELF, f"{_FOLDER}/{sha256}", path, replace=True)
    return sha256


def _get(storage: Storage, sha256: str, path: Path, limit: int | None = None) -> None:
    storage.get(SHELF, f"{_FOLDER}/{sha256}", path, limit=limit)
    if compute_sha256(path) != sha256:
        path.unlink()
        raise StorageError(
            f"{storage.store.location}/{SHELF}/{_FOLDER}/{sha256} is damaged: its content has "
            f"another hash"
        )
