"""Save results of long work: check at the beginning that it will be possible, and keep a copy elsewhere if it fails."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from nnpipe.core.errors import ArtifactError, ConfigError
from nnpipe.core.files import check_writable, shortened_path

T = TypeVar("T")
FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""What a disk that is full says."""


def check_destination(path: str | os.PathLike[str], size: int = 0) -> None:
    """Raise :class:`ConfigError` unless a file of this size can be written; nothing is left behind.

    Parameters
    ----------
    path
        The file.  Folders that are missing will be made.
    size
        Bytes that it will have, or the least that it will have.
    """
    path = check_writable(path)
    if not size or not hasattr(os, "posix_fallocate"):
        return
    folder = path.absolute().parent
    while not folder.exists():
        folder = folder.parent
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            os.posix_fallocate(file.fileno(), 0, size)
    except OSError as error:
        if error.errno in FULL:  # else the file system cannot reserve
            told = f"{error.strerror}; {_shown(size)} are needed there"
            raise ConfigError(f"{shortened_path(path)} cannot be written: {told}") from None


def save(write: Callable[[Path], T], path: str | os.PathLike[str]) -> T:
    """Write a file; where that fails, write it somewhere else and say where.

    Parameters
    ----------
    write
        Writes the file that it is given, whole or not at all.
    path
        Where it should be.

    Raises
    ------
    ArtifactError
        If it cannot be written there; the message says where it is instead.
    """
    path = Path(path)
    try:
        return write(path)
    except OSError as error:
        kept = kept_elsewhere(write, path.name)
        where = f"it is kept as {kept}: move it from there" if kept else "nor can it anywhere else: it is lost"
        raise ArtifactError(f"{path} cannot be written: {error.strerror or error}; {where}") from error


def kept_elsewhere(write: Callable[[Path], object], name: str) -> Path | None:
    """Write a file in the first place that takes it, and give where that is; None where no place does."""
    for place in dict.fromkeys((Path.cwd(), Path(tempfile.gettempdir()), Path.home(), Path("/dev/shm"))):
        folder: Path | None = None
        try:
            folder = Path(tempfile.mkdtemp(prefix="nnpipe-kept-", dir=place))
            write(folder / name)
            return folder / name
        except OSError:
            if folder is not None:
                _remove(folder)
    return None


def _remove(folder: Path) -> None:
    for path in folder.glob("*"):
        path.unlink(missing_ok=True)
    folder.rmdir()


def _shown(size: int) -> str:
    return f"{size / 1e6:.1f} MB" if size >= 1e5 else f"{size:,} bytes"
