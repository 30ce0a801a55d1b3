"""Downloads of published files.

A file that exists with the right content is not downloaded.  A file with other
content belongs to the user: it is reported and never changed.  Downloads use
hidden files beside it: ``.NAME.partial`` (resumed by the next run after any
interruption), ``.NAME.lock`` and ``.NAME.checked``.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import random
import re
import time
import urllib.parse
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from nnpipe.core.bounded_json import parse_json
from nnpipe.core.errors import ConfigError, DatasetError
from nnpipe.core.files import compute_sha256, write_text
from nnpipe.datasets._progress import ByteProgress, file_lock, format_size
from nnpipe.datasets._transfer import (
    SCHEMES,
    HTTPClient,
    PartialFile,
    PermanentFailure,
    TemporaryFailure,
    transfer,
)

_BLOCK = 1 << 20


def get_sha256(path: Path, *, unpacked: bool = False) -> str:
    """Return the SHA-256 of ``path``, from the stamp beside it if the file has not changed since it
    was last read.

    The stamp ``.NAME.checked`` holds the file's size, times and inode besides
    the checksums; any write to the file changes one of them.  If no stamp can be
    written, the file is read every time.

    Parameters
    ----------
    path
        The file.
    unpacked
        Whether to return the checksum of the unpacked content of a gzip file;
        empty if this is not a whole gzip file.

    Raises
    ------
    OSError
        If the file cannot be read.
    """
    stamp_path = path.with_name(f".{path.name}.checked")
    before = _get_file_identity(path)
    key = "unpacked" if unpacked else "packed"
    sums = _read_stamp(stamp_path, before)
    if key in sums:
        return sums[key]
    found = _compute_unpacked_sha256(path) if unpacked else compute_sha256(path)
    if _get_file_identity(path) == before and _is_writable(path.parent):
        with suppress(OSError):
            write_text(
                stamp_path, json.dumps({"file": before, "sha256": {**sums, key: found}}) + "\n"
            )
    return found


def _read_stamp(stamp_path: Path, identity: list[int]) -> dict[str, str]:
    try:
        stamp = parse_json(stamp_path.read_text(encoding="utf-8"))
        if stamp["file"] == identity:
            return {str(key): str(value) for key, value in stamp["sha256"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass  # no stamp, or an unusable one
    return {}


def _compute_unpacked_sha256(path: Path) -> str:
    digest = hashlib.sha256()
    try:
        with gzip.open(path, "rb") as content:
            while block := content.read(_BLOCK):
                digest.update(block)
    except (gzip.BadGzipFile, EOFError, zlib.error):
        return ""
    return digest.hexdigest()


def _is_writable(folder: Path) -> bool:
    # Root may write everywhere, but a folder without any write permission should stay unchanged.
    return bool(folder.stat().st_mode & 0o222)


def _get_file_identity(path: Path) -> list[int]:
    status = path.stat()
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]


_LIMIT_UNKNOWN_SIZE = 16 << 30
_PROGRESS_WORTH = 256 << 10
_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 60.0


@dataclass(frozen=True)
class RemoteFile:
    """A published file: its name, its addresses and its checksums.

    Attributes
    ----------
    name
        Name in the data set's folder.
    urls
        Addresses (``http``, ``https``, ``file``) in order of preference.
    sha256
        SHA-256 of the file, 64 lower-case hexadecimal digits; ``None`` if it is not published.
    size
        Length in bytes; ``None`` if it is not published.
    content_sha256
        For a ``.gz`` file: SHA-256 of its unpacked content.  A user's file is
        accepted by this checksum as well, since gzip can pack equal content in
        different ways.
    check
        Without a SHA-256: whether the content of a file that was received whole is of the right
        kind.

    Raises
    ------
    ConfigError
        If a value is invalid.
    """

    name: str
    urls: tuple[str, ...]
    sha256: str | None
    size: int | None = None
    content_sha256: str | None = None
    check: Callable[[Path], bool] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*", self.name):
            raise ConfigError(f"{self.name!r} is no plain file name for a download")
        if not self.urls:
            raise ConfigError(f"{self.name}: a download needs at least one address")
        for url in self.urls:
            if urllib.parse.urlsplit(url).scheme not in SCHEMES:
                raise ConfigError(
                    f"{self.name}: {url!r} is no address of the kinds {', '.join(SCHEMES)}"
                )
        if self.sha256 is None and self.check is None:
            raise ConfigError(f"{self.name}: a download is checked, by a SHA-256 or otherwise")
        for digits in (self.sha256, self.content_sha256):
            if digits is not None and not re.fullmatch(r"[0-9a-f]{64}", digits):
                raise ConfigError(
                    f"{self.name}: {digits!r} is no SHA-256 of 64 lower-case hexadecimal digits"
                )
        if self.size is not None and self.size <= 0:
            raise ConfigError(f"{self.name}: the size must be positive, not {self.size}")


def fetch(
    file: RemoteFile,
    folder: str | os.PathLike[str],
    *,
    timeout: float = 30.0,
    attempts: int = 5,
    progress: bool = True,
    stream: TextIO | None = None,
    limit: int = _LIMIT_UNKNOWN_SIZE,
    sleep: Callable[[float], None] = time.sleep,
    seed: int | None = None,
) -> Path:
    """Return the path of ``file`` in ``folder``, downloading it if necessary.

    Parameters
    ----------
    file
        The published file.
    folder
        The folder; created if missing.
    timeout
        Time in s without data (or with hardly any) after which an attempt ends.
    attempts
        Number of unsuccessful rounds over the addresses before giving up; a
        round that brings 256 KiB of new data does not count.
    progress
        Whether to show the progress on ``stream``.
    stream
        Stream for the progress; ``None`` for standard error.
    limit
        Greatest number of bytes to accept if the size is not known.
    sleep, seed
        Function that pauses between rounds, and seed of the jitter; for tests.

    Returns
    -------
    Path
        ``folder / file.name``, with the right content.

    Raises
    ------
    DatasetError
        If the existing file has other content (it is not changed), no address
        provided the right content, or writing failed.  The message is one line
        and states the remedy.
    """
    path = Path(folder) / file.name
    if _is_there(file, path):
        return path
    with ByteProgress(file.name, shown=progress, stream=stream) as display:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with file_lock(
                path.with_name(f".{file.name}.lock"),
                lambda: display.print_line(
                    f"waiting for another process that is downloading {file.name} to {path.parent}"
                ),
            ):
                if not _is_there(file, path):
                    _download(
                        _Job(file, path, timeout, attempts, limit, sleep, random.Random(seed)),
                        display,
                    )
        except FileExistsError as error:
            raise DatasetError(
                f"{error.filename or path} is in the way of the download; move it away"
            ) from None
        except OSError as error:
            raise DatasetError(
                f"cannot save {path}: {error.strerror or error}; make room or choose another "
                f"--dataset-root"
            ) from None
    return path


@dataclass(frozen=True)
class _Job:
    file: RemoteFile
    path: Path
    timeout: float
    attempts: int
    limit: int
    sleep: Callable[[float], None]
    random: random.Random


def _is_there(file: RemoteFile, path: Path) -> bool:
    if not os.path.lexists(path):
        return False
    if not path.is_file():
        raise DatasetError(
            f"{path} is not a file; move it away so that {file.name} can be put there"
        )
    if file.sha256 is None:
        return True
    try:
        found = get_sha256(path)
        if found == file.sha256:
            return True
        if (
            file.content_sha256 is not None
            and get_sha256(path, unpacked=True) == file.content_sha256
        ):
            return True
    except OSError as error:
        raise DatasetError(f"cannot read {path}: {error.strerror or error}") from None
    raise DatasetError(
        f"{path} is not the published {file.name}: its sha256 is {found}, expected {file.sha256}; "
        f"it was left as it is; move it away and download again"
    )


def _download(job: _Job, display: ByteProgress) -> None:
    file, partial = job.file, PartialFile(job.path)
    if partial.length() == file.size and _accept(job, partial):
        return  # the last run ended between the last byte and the renaming
    _announce(file, partial.length(), job.path.parent, display)
    failures: dict[str, str] = {}
    live = list(file.urls)
    farthest, rounds = partial.length(), 0
    while True:
        asked_pause = 0.0
        for url in list(live):
            try:
                _try_address(job, url, partial, display)
                return
            except PermanentFailure as failure:
                failures[url] = str(failure)
                live.remove(url)
            except TemporaryFailure as failure:
                failures[url] = str(failure)
                asked_pause = max(asked_pause, failure.retry_after)
            display.print_line(f"{file.name}: {_to_one_line(url)}: {_to_one_line(failures[url])}")
        if partial.length() >= farthest + _PROGRESS_WORTH:
            farthest, rounds = partial.length(), 0
        else:
            rounds += 1
        if not live or rounds >= job.attempts:
            break
        pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** min(rounds, 20)) * job.random.uniform(
            0.5, 1.0
        )
        pause = max(pause, min(asked_pause, _LONGEST_PAUSE))
        display.print_line(f"{file.name}: trying again in {pause:.1f} s")
        job.sleep(pause)
    causes = "; ".join(
        f"{_to_one_line(url)}: {_to_one_line(cause)}" for url, cause in failures.items()
    )
    facts = [f"sha256 {file.sha256}"] * (file.sha256 is not None) + [f"{file.size} bytes"] * (
        file.size is not None
    )
    known = f" ({', '.join(facts)})" if facts else ""
    raise DatasetError(
        f"cannot download {file.name} ({causes}); try again later, or put the file at {job.path} "
        f"by hand{known}"
    )


def _try_address(job: _Job, url: str, partial: PartialFile, display: ByteProgress) -> None:
    """Try one address; on return the file is in place with the right content."""
    line = HTTPClient(url, job.timeout)
    while True:
        receipt = transfer(line, partial, size=job.file.size, limit=job.limit, progress=display)
        if _accept(job, partial):
            return
        if receipt.from_start:
            # Without a length, an incomplete body cannot be distinguished from a wrong one.
            failure = PermanentFailure if receipt.measured else TemporaryFailure
            wrong = "wrong sha256" if job.file.sha256 is not None else "it cannot be read"
            raise failure(f"sends other content than the published ({wrong})")
        # The older part may have been wrong: start over with this address.


def _accept(job: _Job, partial: PartialFile) -> bool:
    """Move a finished partial file to its place if its content is right, otherwise discard it."""
    file = job.file
    right = (
        compute_sha256(partial.path) == file.sha256
        if file.sha256 is not None
        else file.check and file.check(partial.path)
    )
    if not right:
        partial.discard()
        return False
    partial.publish(job.path)
    return True


def _announce(file: RemoteFile, have: int, folder: Path, display: ByteProgress) -> None:
    size = "of unknown size" if file.size is None else format_size(file.size)
    resumed = f", going on at {format_size(have)}" if have else ""
    display.print_line(
        f"downloading {file.name} ({size}{resumed}) from {_to_one_line(file.urls[0])} to {folder}"
    )


def _to_one_line(text: str) -> str:
    """Return a server's text, shortened to one line for a terminal."""
    clean = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
    return clean if len(clean) <= 200 else clean[:199] + "…"
