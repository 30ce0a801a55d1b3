"""Writing files so that an interruption never leaves half of one.

A file is written under a temporary name in the destination's own folder,
flushed to the disk and then renamed over the destination.  Whoever opens the
destination sees the old content or the new content, never a mixture.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import os
import secrets
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from nnpipe.core.errors import ConfigError

_BLOCK = 1 << 20
_PROBE = 1 << 16  # enough for a file system that keeps small files in its directory
_LONGEST_NAME, _TEMPORARY = 255, len(".12345678.partial.")
_HERE, _EXCHANGE = -100, 2  # AT_FDCWD in fcntl.h, RENAME_EXCHANGE in linux/fs.h


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path that becomes ``path`` when the block ends well.

    Parameters
    ----------
    path
        The destination.  Missing parent folders are made.

    Yields
    ------
    Path
        A name in the same folder with the same suffix (writers that choose a
        format by suffix keep working); the block creates the file.

    Notes
    -----
    When the block raises, the temporary file is removed and ``path`` is left
    as it was.  After ``kill -9`` a file whose name starts with ``.`` and ends
    in ``.partial`` plus the suffix may remain; ``path`` itself is whole.
    """
    destination = Path(path)
    destination.parent.mkdir(parents=True, exist_ok=True)
    temporary = destination.with_name(f".{destination.stem}.{secrets.token_hex(4)}.partial{destination.suffix}")
    try:
        yield temporary
        with open(temporary, "rb") as handle:
            os.fsync(handle.fileno())
        os.replace(temporary, destination)
    finally:
        temporary.unlink(missing_ok=True)
    _sync_folder(destination.parent)


@contextmanager
def replacing_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a new empty folder that becomes ``path`` when the block ends well; what was there is removed.

    Parameters
    ----------
    path
        The destination.  Missing parent folders are made.  Whether what lies
        there may go is for the caller to know.

    Notes
    -----
    When the block raises, the new folder is removed and ``path`` is left as it
    was.  Where the system can exchange two names (Linux), ``path`` is the old
    folder or the new one at any moment; elsewhere there is an instant without
    either.  After ``kill -9`` a folder whose name starts with ``.`` and ends
    in ``.partial`` may remain.
    """
    destination = Path(path).absolute()
    destination.parent.mkdir(parents=True, exist_ok=True)
    temporary = destination.with_name(f".{destination.name}.{secrets.token_hex(4)}.partial")
    temporary.mkdir()
    try:
        yield temporary
        if not os.path.lexists(destination):
            temporary.rename(destination)
        elif not _exchanged(temporary, destination):
            aside = temporary.with_name(f".{destination.name}.{secrets.token_hex(4)}.partial")
            destination.rename(aside)
            temporary.rename(destination)
            temporary = aside
        _sync_folder(destination.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)  # by now, perhaps, the old one


def _exchanged(one: Path, other: Path) -> bool:
    """Let two paths change places at once, where the system can."""
    exchange = getattr(ctypes.CDLL(None), "renameat2", None) if sys.platform == "linux" else None
    return exchange is not None and exchange(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE) == 0


def reserve(file: BinaryIO, size: int) -> None:
    """Take the room for a file that is about to be written as a whole, where its file system can do that at once.

    Writing then costs a fifth less.  Where it fails nothing is different: writing will tell.
    """
    if sys.platform != "linux" or not size:
        return
    system = ctypes.CDLL(None)
    take = getattr(system, "fallocate64", None) or getattr(system, "fallocate", None)  # the former: 64 bits everywhere
    with suppress(OSError):  # a file in memory has no number
        if take is not None:
            take(file.fileno(), 0, ctypes.c_int64(0), ctypes.c_int64(size))


def check_writable(path: str | os.PathLike[str], *, folder: bool = False) -> Path:
    """Return the path if a file, or a folder with files in it, can be written there now; make nothing that stays.

    Long work calls this before it begins, so that what comes of it is not lost at its end.  A block is written and
    flushed beside the destination, since neither permissions nor the free space that a system reports tell what a
    file system will do.

    Parameters
    ----------
    path
        The destination; missing parent folders count as writable where they can be made.
    folder
        Whether a folder is to be written, or a file.

    Raises
    ------
    ConfigError
        With the path, and what the system says.
    """
    destination = Path(path)
    try:
        if not folder and destination.is_dir():
            raise ConfigError(f"{destination} is a folder: name a file in it")
        if folder and destination.exists() and not destination.is_dir():
            raise ConfigError(f"{destination} is a file: name a folder")
        if not folder and destination.exists() and not destination.is_file():
            raise ConfigError(f"{destination} is a device or the like, which writing would replace: name a file")
        above = destination.absolute() if folder else destination.absolute().parent
        while not above.exists():
            _check_name(above)
            above = above.parent
        if not above.is_dir():
            raise ConfigError(f"{destination} cannot be written: {above} is a file, not a folder")
        if not folder:
            _check_name(destination)
        probe = above / f".{secrets.token_hex(8)}.partial"
        try:
            with open(probe, "wb") as handle:
                handle.write(bytes(_PROBE))
                handle.flush()
                os.fsync(handle.fileno())
        finally:
            probe.unlink(missing_ok=True)
    except (OSError, ValueError) as error:  # a ValueError is a NUL in a name
        if isinstance(error, ConfigError):
            raise
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ConfigError(f"{shortened_path(destination)} cannot be written: {reason}") from None
    return destination


def _check_name(path: Path) -> None:
    """Raise ``OSError`` if the file system takes no such name."""
    with suppress(FileNotFoundError, NotADirectoryError):
        os.lstat(path)
    longest = len(os.fsencode(path.name)) + _TEMPORARY
    if longest > _LONGEST_NAME:
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))


def shortened_path(path: str | bytes | os.PathLike[str]) -> str:
    """Return a path as one line of at most 181 characters, for messages."""
    text = os.fsdecode(path).replace("\0", "\\0")
    return text if len(text) <= 200 else f"{text[:120]}…{text[-60:]}"


def write_bytes(path: str | os.PathLike[str], data: bytes) -> None:
    """Write ``data`` to ``path``, whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_bytes(data)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write ``text`` as UTF-8 to ``path``, whole or not at all."""
    write_bytes(path, text.encode("utf-8"))


def sha256_of(path: str | os.PathLike[str]) -> str:
    """SHA-256 of a file's content, as 64 hexadecimal digits."""
    digest = hashlib.sha256()
    with open(path, "rb") as handle:
        while block := handle.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def _sync_folder(folder: Path) -> None:
    # A rename is only durable once its folder is; systems that cannot open folders skip this.
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    except OSError:
        pass
    finally:
        os.close(descriptor)
