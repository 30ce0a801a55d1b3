"""A store in a local or mounted folder.

It uses the standard library, not fsspec.  fsspec's local file system writes to the
system's temporary folder first; moving the file from there may copy it, so that
another process can see an incomplete file.  It also needs no package on a small
board.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from nnpipe.core.errors import StorageError
from nnpipe.core.files import remove_abandoned, replacing
from nnpipe.core.leases import leased, sweep_file
from nnpipe.storage.store import MAX_ENTRIES, Absent, Advance, Entry, Opened, Store

_BLOCK = 1 << 20
_UNFINISHED = re.compile(r"\..+\.[0-9a-f]{8}[-0-9a-f]*\.(partial|new)(\.[^.]*)?")
_IDLE = 600.0  # seconds without a write; checked in addition to the lock, which other machines may not see
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}


class LocalStore(Store):
    """Files in a folder, which is made when the first file is published.

    Links in the folder are ignored, since they could lead out of it.
    """

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self.location = str(self.root)

    def entries(self, below: str) -> list[Entry]:
        """List the files below a folder, without names that begin with a dot (unfinished or foreign files).

        Unfinished files of ended processes are removed.
        """
        found: list[Entry] = []
        waiting = [below]
        while waiting:
            name = waiting.pop()
            try:
                with os.scandir(self._path(name)) as items:
                    for item in items:
                        if _UNFINISHED.fullmatch(item.name):
                            sweep_file(Path(item.path), _IDLE)
                        if item.name.startswith(".") or item.is_symlink():
                            continue
                        inner = f"{name}/{item.name}"
                        if item.is_dir(follow_symlinks=False):
                            waiting.append(inner)
                        elif item.is_file(follow_symlinks=False):
                            with suppress(FileNotFoundError):  # removed since
                                found.append(_entry(inner, item.stat(follow_symlinks=False)))
            except (FileNotFoundError, NotADirectoryError):
                continue
            if len(found) + len(waiting) > MAX_ENTRIES:
                raise StorageError(f"{self.location}: more than {MAX_ENTRIES:,} files below {below!r}")
        return sorted(found, key=lambda entry: entry.name)

    def find(self, name: str) -> Entry | None:
        """Return the entry of a file, or None."""
        try:
            status = self._path(name).lstat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return _entry(name, status) if stat.S_ISREG(status.st_mode) else None

    @contextmanager
    def open(self, name: str) -> Iterator[Opened]:
        """Open a file; replacing it does not affect the open handle."""
        if self.find(name) is None:
            raise Absent(name)
        with ExitStack() as stack:
            try:
                handle = stack.enter_context(open(self._path(name), "rb"))
            except FileNotFoundError:  # removed in the meantime
                raise Absent(name) from None
            yield Opened(_entry(name, os.fstat(handle.fileno())), handle)

    def put(self, name: str, source: Path, replace: bool, advance: Advance) -> None:
        """Copy the file beside its destination, then rename it, or link it, which fails if the name is taken."""
        destination = self._path(name)
        remove_abandoned(destination.parent)
        if destination.is_dir():
            _prune(destination)
        for attempt in range(10):
            try:
                self._put(destination, source, replace, advance)
                return
            except FileNotFoundError:
                # Another process has removed the last file of the folder, and the folder, during the copy.
                if attempt == 9 or not source.exists():
                    raise

    def _put(self, destination: Path, source: Path, replace: bool, advance: Advance) -> None:
        with ExitStack() as leases:  # they are held until after the rename
            self._publish(destination, source, replace, advance, leases)

    def _publish(self, destination: Path, source: Path, replace: bool, advance: Advance, leases: ExitStack) -> None:
        if replace:
            with replacing(destination) as temporary:
                leases.enter_context(leased(temporary))
                _copy(source, temporary, advance)
            return
        if os.path.lexists(destination):
            raise FileExistsError(errno.EEXIST, "the name is taken", str(destination))
        whole = destination.with_name(f".{destination.stem}.{secrets.token_hex(4)}.new{destination.suffix}")
        try:
            with replacing(whole) as temporary:
                leases.enter_context(leased(temporary))
                _copy(source, temporary, advance)
            try:
                os.link(whole, destination)
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
                # Without hard links (FAT, some network drives), the name may be taken just after the check above.
                os.replace(whole, destination)
        finally:
            whole.unlink(missing_ok=True)

    def remove(self, name: str) -> None:
        """Remove a file, and the folders that become empty."""
        path = self._path(name)
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

    def _path(self, name: str) -> Path:
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


def _prune(folder: Path) -> None:
    """Remove a tree of folders if it contains no files."""
    for path, _, _ in os.walk(folder, topdown=False):
        with suppress(OSError):
            Path(path).rmdir()


def _entry(name: str, status: os.stat_result) -> Entry:
    tag = f"{status.st_mtime_ns}-{status.st_size}-{status.st_ino}"
    return Entry(name, status.st_size, status.st_mtime, tag)
