"""Save results of long work: check at the beginning that it is possible, and write elsewhere if it fails."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from nnpipe.core.errors import ArtifactError, ConfigError
from nnpipe.core.files import FULL, check_writable, shortened_path
from nnpipe.core.leases import shared_temporary_folder

T = TypeVar("T")


def check_destination(path: str | os.PathLike[str], size: int = 0) -> None:
    """Raise :class:`ConfigError` unless a file of this size can be written; nothing is left behind.

    Parameters
    ----------
    path
        The file.  Missing folders count as writable if they can be made.
    size
        The size of the file in bytes, or a lower bound of it.
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
        if error.errno in FULL:  # other errors mean that the file system cannot reserve space
            told = f"{error.strerror}; {_shown(size)} are needed there"
            raise ConfigError(f"{shortened_path(path)} cannot be written: {told}") from None


def save(write: Callable[[Path], T], path: str | os.PathLike[str]) -> T:
    """Write a file; if that fails, write it to another folder and name that in the error.

    Parameters
    ----------
    write
        Writes the file at the given path, atomically.
    path
        The intended path.

    Raises
    ------
    ArtifactError
        If the file cannot be written there; the message says where it is instead.
    """
    path = Path(path)
    try:
        return write(path)
    except OSError as error:
        kept = kept_elsewhere(write, path.name)
        where = f"it is kept as {kept}: move it from there" if kept else "nor can it anywhere else: it is lost"
        raise ArtifactError(f"{path} cannot be written: {error.strerror or error}; {where}") from error


def kept_elsewhere(write: Callable[[Path], object], name: str) -> Path | None:
    """Write a file to the first folder that accepts it, and return its path, or None if all fail."""
    for place in dict.fromkeys((Path.cwd(), shared_temporary_folder(), Path.home(), Path("/dev/shm"))):
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
