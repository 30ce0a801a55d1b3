"""Transfer files and folders, named ``SHELF/NAME``, to a storage and back; nothing is replaced
without ``replace``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import StorageError
from nnpipe.storage.storage import Storage
from nnpipe.storage.store import MAX_ENTRIES, Advance, get_shelf, validate_name

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
        for file in sorted(
            (*files, *(item for item in folders if (Path(place) / item).is_symlink()))
        ):
            path = Path(place) / file
            if _UNFINISHED.fullmatch(file):
                continue
            if path.is_symlink():
                raise StorageError(f"{path}: a link; copy what it leads to, or leave it out")
            relative = path.relative_to(folder).as_posix()
            found.append((path, validate_name("/".join(filter(None, (name, relative))), str(path))))
        if len(found) > MAX_ENTRIES:
            raise StorageError(f"{folder}: more than {MAX_ENTRIES:,} files")
    if not found:
        raise StorageError(f"{folder}: no files in it")
    return found


def to_fetch(storage: Storage, shelf: str, name: str, folder: Path) -> list[tuple[str, Path, int]]:
    """Return the files of a folder in a storage: name on the shelf, destination below ``folder``,
    and size in bytes.

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
    return [(validate_name(e.name, where), folder / e.name[skipped:], e.size) for e in entries]


ByteProgress = Callable[[str, int], AbstractContextManager[Advance]]
"""Shows a transfer: receives a description and the total size in bytes, and then the size of
each piece.
"""


@contextmanager
def suppress_progress(what: str, total: int) -> Iterator[Advance]:
    """Show nothing: the default of every transfer."""

    def advance(count: int) -> None:
        del count

    yield advance


def split_address(address: str) -> tuple[str, str]:
    """Return the shelf and the name on it of ``SHELF/NAME``.

    Raises
    ------
    ConfigError
        If there is no such shelf.
    """
    shelf, _, name = address.partition("/")
    return get_shelf(shelf).name, name


def put(
    storage: Storage,
    source: str | Path,
    address: str,
    *,
    replace: bool = False,
    progress: ByteProgress = suppress_progress,
) -> list[str]:
    """Publish a file, or a folder file by file.

    Parameters
    ----------
    storage
        The storage to publish in.
    source
        The file or folder.
    address
        ``SHELF/NAME``; with ``SHELF`` or ``SHELF/FOLDER/`` it keeps its own name.
    replace
        Whether to replace existing files.
    progress
        Shows the progress.

    Returns
    -------
    list of str
        The addresses of all files that were published.

    Raises
    ------
    ConfigError
        If there is no such shelf, or a name is invalid.
    StorageError
        If there is no such file, or a name is taken; then nothing has been published.

    Examples
    --------
    >>> import tempfile
    >>> from nnpipe.storage.storage import open_storage
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model = Path(folder, "lenet.pt")
    ...     _ = model.write_bytes(b"weights")
    ...     put(open_storage(f"{folder}/store"), model, "untrained-models")
    ['untrained-models/lenet.pt']
    """
    check_call(put, locals())
    path = Path(source)
    shelf, name = split_address(address)
    if not name or name.endswith("/"):
        name += path.resolve().name
    if not path.exists():
        raise StorageError(f"{source}: no such file")
    files = (
        to_publish(path, validate_name(name)) if path.is_dir() else [(path, validate_name(name))]
    )
    if not replace:
        present = (
            storage.entries(shelf, name)
            if path.is_dir()
            else filter(None, [storage.find(shelf, name)])
        )
        taken = {entry.name for entry in present}.intersection(name for _, name in files)
        if taken:
            raise StorageError(
                f"{storage.store.location}/{shelf}/{min(taken)}: the name is taken; nothing was "
                f"put, --replace replaces"
            )
    with progress("put", sum(path.stat().st_size for path, _ in files)) as advance:
        for file, name in files:
            storage.put(shelf, name, file, replace=replace, advance=advance)
    return [f"{shelf}/{name}" for _, name in files]


def get(
    storage: Storage,
    address: str,
    target: str | Path | None = None,
    *,
    replace: bool = False,
    limit: int | None = None,
    progress: ByteProgress = suppress_progress,
) -> list[Path]:
    """Fetch a file, or the files of a folder.

    Parameters
    ----------
    storage
        The storage to fetch from.
    address
        ``SHELF/NAME`` for a file; ``SHELF`` or ``SHELF/FOLDER/`` for all its files.
    target
        The destination; by default the same name in the current folder.  If it is an existing
        folder, a file is written into it.
    replace
        Whether to replace existing files.
    limit
        The size limit of a file in bytes; by default that of its shelf.
    progress
        Shows the progress.

    Returns
    -------
    list of Path
        The files that were written.

    Raises
    ------
    ConfigError
        If there is no such shelf, or a name would lead out of the folder.
    StorageError
        If there is no such file, it is too large, or a file would be replaced; then nothing has
        been fetched.

    Examples
    --------
    >>> import tempfile
    >>> from nnpipe.storage.storage import open_storage
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model, back = Path(folder, "lenet.pt"), Path(folder, "back.pt")
    ...     _ = model.write_bytes(b"weights")
    ...     storage = open_storage(f"{folder}/store")
    ...     _ = put(storage, model, "untrained-models")
    ...     get(storage, "untrained-models/lenet.pt", back) == [back], back.read_bytes()
    (True, b'weights')
    """
    check_call(get, locals())
    shelf, name = split_address(address)
    folder = not name or name.endswith("/")
    name = name.rstrip("/")
    own = Path((name or shelf).rpartition("/")[2])
    path = own if target is None else Path(target)
    if folder:
        files = to_fetch(storage, shelf, name, path)
    else:
        validate_name(name)
        path = path / own if target is not None and path.is_dir() else path
        entry = storage.find(shelf, name)
        files = [(name, path, entry.size if entry else 0)]
    taken = [path for _, path, _ in files if path.exists()]
    if taken and not replace:
        raise StorageError(
            f"{taken[0]}: there is such a file; nothing was fetched, --replace replaces it"
        )
    with progress("get", sum(size for _, _, size in files)) as advance:
        for name, path, _ in files:
            storage.get(shelf, name, path, limit=limit, advance=advance)
    return [path for _, path, _ in files]


def remove(storage: Storage, addresses: Sequence[str], *, dry_run: bool = False) -> list[str]:
    """Remove files and folders; if one of them does not exist, remove nothing.

    Parameters
    ----------
    storage
        The storage to remove from.
    addresses
        ``SHELF/NAME`` for a file; ``SHELF`` or ``SHELF/FOLDER/`` for all its files.
    dry_run
        Whether to only return what would be removed.

    Returns
    -------
    list of str
        The addresses of the files that were removed, or would be.

    Raises
    ------
    ConfigError
        If there is no such shelf.
    StorageError
        If there is no such file; then nothing has been removed.

    Examples
    --------
    >>> import tempfile
    >>> from nnpipe.storage.storage import open_storage
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model = Path(folder, "lenet.pt")
    ...     _ = model.write_bytes(b"weights")
    ...     storage = open_storage(f"{folder}/store")
    ...     _ = put(storage, model, "untrained-models")
    ...     remove(storage, ["untrained-models/"]), storage.entries("untrained-models")
    (['untrained-models/lenet.pt'], [])
    """
    check_call(remove, locals())
    found: list[tuple[str, str]] = []
    for address in addresses:
        shelf, name = split_address(address)
        if not name or name.endswith("/"):
            found += [
                (shelf, name) for name, _, _ in to_fetch(storage, shelf, name.rstrip("/"), Path())
            ]
        elif storage.find(shelf, name) is None:
            raise StorageError(
                f"{storage.store.location}/{shelf} has no file {name!r}; nothing was removed"
            )
        else:
            found.append((shelf, name))
    if not dry_run:
        for shelf, name in found:
            storage.remove(shelf, name)
    return [f"{shelf}/{name}" for shelf, name in found]
