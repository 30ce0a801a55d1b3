"""List the files of a folder to publish or fetch; each file is transferred atomically."""

from __future__ import annotations

import os
import re
from pathlib import Path

from nnpipe.core.errors import StorageError
from nnpipe.storage.names import checked_name
from nnpipe.storage.storage import Storage
from nnpipe.storage.store import MAX_ENTRIES

_UNFINISHED = re.compile(r"\.lock|\..+\.partial(\.[^.]*)?")
"""Names of nnpipe's internal files: the lock of a run's folder, and unfinished files."""


def to_publish(folder: Path, name: str) -> list[tuple[Path, str]]:
    """Return the files in a folder with their names in a storage, below ``name``.

    Locks and unfinished files of nnpipe are left out, so that the folder of a
    run can be published while it is being written.

    Raises
    ------
    ConfigError, StorageError
        If a storage does not accept the name of a file, a file is a link, or there
        are no files.  So nothing is published unless everything can be.
    """
    found: list[tuple[Path, str]] = []

    def fail(error: OSError) -> None:
        raise StorageError(f"{error.filename}: {error.strerror}")

    for place, folders, files in os.walk(folder, onerror=fail):
        folders[:] = sorted(item for item in folders if not _UNFINISHED.fullmatch(item))
        for file in sorted((*files, *(item for item in folders if (Path(place) / item).is_symlink()))):
            path = Path(place) / file
            if _UNFINISHED.fullmatch(file):
                continue
            if path.is_symlink():
                raise StorageError(f"{path}: a link; copy what it leads to, or leave it out")
            relative = path.relative_to(folder).as_posix()
            found.append((path, checked_name("/".join(filter(None, (name, relative))), str(path))))
        if len(found) > MAX_ENTRIES:
            raise StorageError(f"{folder}: more than {MAX_ENTRIES:,} files")
    if not found:
        raise StorageError(f"{folder}: no files in it")
    return found


def to_fetch(storage: Storage, shelf: str, name: str, folder: Path) -> list[tuple[str, Path, int]]:
    """Return the files of a folder in a storage: name on the shelf, destination below ``folder``, and size in bytes.

    Raises
    ------
    ConfigError, StorageError
        If a name would lead out of ``folder`` or is not valid, or there are no
        files.
    """
    entries = storage.entries(shelf, name)
    if not entries:
        raise StorageError(f"{storage.store.location}/{shelf}: no files below {name or 'it'!r}")
    skipped = len(name) + 1 if name else 0
    where = f"a file in {storage.store.location}/{shelf}"
    return [(checked_name(e.name, where), folder / e.name[skipped:], e.size) for e in entries]
