"""A folder on this machine, or one that is mounted here.

The standard library and no fsspec: fsspec's local file system gathers a file
in the system's temporary folder, from where a rename may be a copy, which
another process can see half done.  It also needs no package on a small board.
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
from nnpipe.core.files import replacing
from nnpipe.core.leases import leased, sweep_file
from nnpipe.storage.store import MAX_ENTRIES, Absent, Advance, Entry, Opened, Store

_BLOCK = 1 << 20
_UNFINISHED = re.compile(r"\..+\.[0-9a-f]{8}\.(partial|new)(\.[^.]*)?")
_IDLE = 600.0  # seconds without a write, beside the lock, which other machines may not see
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}


class LocalStore(Store):
    """Files below a folder, which is made when the first one is published.

    Links in it are passed over: they could lead anywhere.
    """

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self.location = str(self.root)

    def entries(self, below: str) -> list[Entry]:
        """Walk through the folder; what begins with a dot is unfinished or not ours.

        What processes that are gone left half-written is removed on the way.
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
        """Look at the file."""
        try:
            status = self._path(name).lstat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return _entry(name, status) if stat.S_ISREG(status.st_mode) else None

    @contextmanager
    def open(self, name: str) -> Iterator[Opened]:
        """Open the file; a rename over it leaves what is open as it was."""
        if self.find(name) is None:
            raise Absent(name)
        with ExitStack() as stack:
            try:
                handle = stack.enter_context(open(self._path(name), "rb"))
            except FileNotFoundError:  # removed since
                raise Absent(name) from None
            yield Opened(_entry(name, os.fstat(handle.fileno())), handle)

    def put(self, name: str, source: Path, replace: bool, advance: Advance) -> None:
        """Copy beside the destination, then rename; or link, which fails where the name is taken."""
        destination = self._path(name)
        if destination.is_dir():
            _prune(destination)
        for attempt in range(10):
            try:
                self._put(destination, source, replace, advance)
                return
            except FileNotFoundError:
                # Somebody removed the last file beside ours, and its folder with it, while we were copying.
                if attempt == 9 or not source.exists():
                    raise

    def _put(self, destination: Path, source: Path, replace: bool, advance: Advance) -> None:
        with ExitStack() as leases:  # which hold beyond the renaming
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
                # No hard links here (FAT, some network drives): the moment since the check above is the gap.
                os.replace(whole, destination)
        finally:
            whole.unlink(missing_ok=True)

    def remove(self, name: str) -> None:
        """Remove the file, and the folders that it leaves empty."""
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
        # Names are checked, so only a link inside the folder could lead out of it.
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
    """Remove a tree of folders without files; nothing where there is one."""
    for path, _, _ in os.walk(folder, topdown=False):
        with suppress(OSError):
            Path(path).rmdir()


def _entry(name: str, status: os.stat_result) -> Entry:
    tag = f"{status.st_mtime_ns}-{status.st_size}-{status.st_ino}"
    return Entry(name, status.st_size, status.st_mtime, tag)
