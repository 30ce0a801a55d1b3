"""Write files atomically: an interruption never leaves half of one.

A file is written under a temporary name in the destination's folder, flushed to
the disk and then renamed to the destination.  A reader of the destination sees
the old content or the new content, never a mixture.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import os
import re
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, TypeVar

from nnpipe.core.errors import ArtifactError, ConfigError
from nnpipe.core.leases import get_owner_token, get_shared_temporary_folder, has_owner_ended

FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""Error numbers of a full disk."""

_BLOCK = 1 << 20
_PROBE = 1 << 16  # bytes; more than any file system stores within a directory entry
_LONGEST_NAME, _TEMPORARY = 255, len(".12345678-123456-123456789-1234.partial.")
_PARTIAL = re.compile(r"\..*\.([0-9a-f]{8}-[0-9a-f]+-[0-9a-f]+)-[0-9a-f]{4}\.partial(\.[^.]*)?")
_OLD = 86_400.0  # seconds after which a temporary file of another machine belongs to nobody
_HERE, _EXCHANGE = -100, 2  # AT_FDCWD in fcntl.h, RENAME_EXCHANGE in linux/fs.h


@contextmanager
def replace_atomically(path: str | os.PathLike[str], *, durable: bool = True) -> Iterator[Path]:
    """Yield a temporary path that becomes ``path`` when the block ends well.

    Parameters
    ----------
    path
        The destination.  Missing parent folders are made.
    durable
        Whether to wait until the file would survive a loss of power.  Otherwise ``path`` may be
        empty afterwards.

    Yields
    ------
    Path
        A path in the same folder with the same suffix, which some writers use to
        choose the format.  The block creates the file.

    Notes
    -----
    When the block raises, the temporary file is removed and ``path`` is left
    as it was.  After ``kill -9`` a file whose name starts with ``.`` and ends
    in ``.partial`` plus the suffix may remain, see :func:`remove_abandoned`;
    ``path`` itself is whole.
    """
    destination = Path(path)
    destination.parent.mkdir(parents=True, exist_ok=True)
    temporary = build_temporary_path(destination)
    try:
        with _report_full_disk(destination):
            yield temporary
            if durable:
                with open(temporary, "rb") as handle:
                    os.fsync(handle.fileno())
            os.replace(temporary, destination)
    finally:
        temporary.unlink(missing_ok=True)
    if durable:
        _sync_folder(destination.parent)


@contextmanager
def replace_folder_atomically(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a new empty folder that becomes ``path`` when the block ends well; an earlier folder
    there is removed.

    Parameters
    ----------
    path
        The destination.  Missing parent folders are made.  The caller must make
        sure that an earlier folder there may be removed.

    Notes
    -----
    When the block raises, the new folder is removed and ``path`` is left as it
    was.  On Linux, which can exchange two names, ``path`` is always the old
    folder or the new one.  On other systems there is a moment without either.
    After ``kill -9``, a folder whose name starts with ``.`` and ends in
    ``.partial`` may remain, see :func:`remove_abandoned`.
    """
    destination = Path(path).absolute()
    destination.parent.mkdir(parents=True, exist_ok=True)
    temporary = build_temporary_path(destination, suffix="")
    temporary.mkdir()
    try:
        with _report_full_disk(destination):
            yield temporary
        if not os.path.lexists(destination):
            temporary.rename(destination)
        elif not _exchange_paths(temporary, destination):
            aside = build_temporary_path(destination, suffix="")
            destination.rename(aside)
            temporary.rename(destination)
            temporary = aside
        _sync_folder(destination.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)  # after an exchange, this is the old folder


@contextmanager
def _report_full_disk(destination: Path) -> Iterator[None]:
    """Let an error in the block name the destination if its disk is full, whatever a library
    made of that.
    """
    try:
        yield
    except Exception as error:
        full = find_full_disk_error(error, destination.parent)
        if full is None:
            raise
        raise OSError(full.errno, full.strerror, str(destination)) from error


def find_full_disk_error(error: BaseException, *folders: Path) -> OSError | None:
    """Return the error of a full disk that an error is or was caused by; None if it is another one.

    Parameters
    ----------
    error
        The error.
    folders
        Where something was being written: a library may not say why that failed.
    """
    seen: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in seen:
        if isinstance(cause, OSError) and cause.errno in FULL:
            return cause
        seen.append(cause)
        cause = cause.__cause__ or cause.__context__
    for folder in folders:
        with suppress(OSError):
            if shutil.disk_usage(folder).free < _PROBE:
                return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))
    return None


def build_temporary_path(destination: Path, suffix: str | None = None) -> Path:
    """Return a new path beside a destination; its name says that it belongs to this process.

    Parameters
    ----------
    destination
        The path.
    suffix
        The suffix of the new one; by default that of the destination.
    """
    stem, suffix = (
        (destination.stem, destination.suffix) if suffix is None else (destination.name, suffix)
    )
    return destination.with_name(
        f".{stem}.{get_owner_token()}-{secrets.token_hex(2)}.partial{suffix}"
    )


def remove_abandoned(folder: Path, *, within: bool = False) -> None:
    """Remove temporary files and folders of processes that have ended.

    Parameters
    ----------
    folder
        Where they are.
    within
        Whether they may also be in the folders in it.
    """
    with suppress(OSError), os.scandir(folder) as items:
        for item in items:
            found = _PARTIAL.fullmatch(item.name)
            is_folder = item.is_dir(follow_symlinks=False)
            if found is None:
                if within and is_folder:
                    remove_abandoned(Path(item.path), within=True)
                continue
            ended = has_owner_ended(found[1])
            if ended is None:
                ended = time.time() - item.stat(follow_symlinks=False).st_mtime > _OLD
            if ended and is_folder:
                shutil.rmtree(item.path, ignore_errors=True)
            elif ended:
                os.unlink(item.path)


def _exchange_paths(one: Path, other: Path) -> bool:
    """Exchange two paths atomically, and return whether the system could do so."""
    exchange = getattr(ctypes.CDLL(None), "renameat2", None) if sys.platform == "linux" else None
    return (
        exchange is not None
        and exchange(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE) == 0
    )


def reserve(file: BinaryIO, size: int) -> None:
    """Reserve disk space for a file that is about to be written as a whole, if its file system can.

    Writing then takes a fifth less time.  A failure is ignored: writing will report it.
    """
    if sys.platform != "linux" or not size:
        return
    system = ctypes.CDLL(None)
    take = getattr(system, "fallocate64", None) or getattr(
        system, "fallocate", None
    )  # fallocate64 has 64-bit offsets on all machines
    with suppress(OSError):  # a file in memory has no file descriptor
        if take is not None:
            take(file.fileno(), 0, ctypes.c_int64(0), ctypes.c_int64(size))


def check_writable(path: str | os.PathLike[str], *, folder: bool = False) -> Path:
    """Return the path if a file, or a folder with files, can be written there now; leave nothing
    behind.

    Long work calls this before it begins, so that its result is not lost at the end; what a killed
    process left there is removed.  The check writes and flushes a small file beside the
    destination, since permissions and reported free space do not show reliably whether writing will
    succeed.

    Parameters
    ----------
    path
        The destination; missing parent folders count as writable if they can be made.
    folder
        Whether the destination is a folder rather than a file.

    Raises
    ------
    ConfigError
        If it cannot be written; the message names the path and the system's reason.
    """
    destination = Path(path)
    try:
        if not folder and destination.is_dir():
            raise ConfigError(f"{destination} is a folder: name a file in it")
        if folder and destination.exists() and not destination.is_dir():
            raise ConfigError(f"{destination} is a file: name a folder")
        if not folder and destination.exists() and not destination.is_file():
            raise ConfigError(
                f"{destination} is a device or the like, which writing would replace: name a file"
            )
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
        remove_abandoned(above)
    except (OSError, ValueError) as error:  # a ValueError is a NUL in a name
        if isinstance(error, ConfigError):
            raise
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ConfigError(f"{format_path(destination)} cannot be written: {reason}") from None
    return destination


def check_apart(path: str | os.PathLike[str], inputs: Iterable[str | os.PathLike[str]]) -> None:
    """Raise :class:`ConfigError` if writing a file would replace one of those that it is made from.

    They may be named in another way, such as by a link.
    """
    for each in inputs:
        same = False
        with suppress(OSError, ValueError):  # one does not exist; a ValueError is a NUL in a name
            same = Path(path).samefile(each)
        if same:
            shown, read = format_path(path), format_path(each)
            raise ConfigError(f"{shown} would replace {read}, which is read; give another name")


def _check_name(path: Path) -> None:
    """Raise ``OSError`` if the file system does not accept the name."""
    with suppress(FileNotFoundError, NotADirectoryError):
        os.lstat(path)
    longest = len(os.fsencode(path.name)) + _TEMPORARY
    if longest > _LONGEST_NAME:
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))


def format_path(path: str | bytes | os.PathLike[str]) -> str:
    """Return a path as one line of at most 181 characters, for messages."""
    text = os.fsdecode(path).replace("\0", "\\0")
    return text if len(text) <= 200 else f"{text[:120]}…{text[-60:]}"


def write_bytes(
    path: str | os.PathLike[str], data: bytes, *, durable: bool = True, private: bool = False
) -> None:
    """Write ``data`` to ``path`` atomically, see :func:`replace_atomically`; if ``private``, no
    other user may ever read it."""
    with replace_atomically(path, durable=durable) as temporary:
        if private:
            os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        temporary.write_bytes(data)


def write_text(
    path: str | os.PathLike[str], text: str, *, durable: bool = True, private: bool = False
) -> None:
    """Write ``text`` as UTF-8 to ``path``; see :func:`write_bytes`."""
    write_bytes(path, text.encode("utf-8"), durable=durable, private=private)


def compute_sha256(path: str | os.PathLike[str]) -> str:
    """Return the SHA-256 of a file's content, as 64 hexadecimal digits."""
    digest = hashlib.sha256()
    with open(path, "rb") as handle:
        while block := handle.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def _sync_folder(folder: Path) -> None:
    # A rename is durable only after its folder has been flushed.  Systems that cannot open folders
    # skip this.
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
            told = f"{error.strerror}; {_format_size(size)} are needed there"
            raise ConfigError(f"{format_path(path)} cannot be written: {told}") from None


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
        kept = save_to_any_folder(write, path.name)
        where = (
            f"it is kept as {kept}: move it from there"
            if kept
            else "nor can it anywhere else: it is lost"
        )
        raise ArtifactError(
            f"{path} cannot be written: {error.strerror or error}; {where}"
        ) from error


def save_to_any_folder(write: Callable[[Path], object], name: str) -> Path | None:
    """Write a file to the first folder that accepts it, and return its path, or None if all
    fail.
    """
    for place in dict.fromkeys(
        (Path.cwd(), get_shared_temporary_folder(), Path.home(), Path("/dev/shm"))
    ):
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


def _format_size(size: int) -> str:
    return f"{size / 1e6:.1f} MB" if size >= 1e5 else f"{size:,} bytes"
