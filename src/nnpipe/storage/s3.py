"""A store in a bucket of Amazon S3 or of another server with the same API.

It uses fsspec and s3fs, which find credentials, region and endpoint as boto does.
S3 shows an object only after its last byte has arrived, so publishing is atomic.
Reading is not: a large object is read in ranges, so each range request here names
the ETag that the object must have.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, cast

from nnpipe.core.errors import ConfigError, MissingDependency, NNPipeError, StorageError
from nnpipe.storage.store import (
    MAX_ENTRIES,
    Advance,
    Entry,
    FileAbsent,
    FileChanged,
    OpenedEntry,
    Store,
    validate_name,
)

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_MAX_KEY = 1024  # bytes
_PACKAGES = ("botocore", "aiobotocore", "aiohttp", "fsspec", "s3fs")
_BLOCK = 16 << 20
_PART = 50 << 20  # bytes; s3fs keeps ten parts in memory, and larger files are uploaded in parts


class S3Store(Store):
    """Objects of a bucket whose keys begin with a prefix.

    Parameters
    ----------
    bucket, prefix
        The bucket, and the prefix of all keys, which may be empty.
    endpoint
        The address of the server; by default that of boto's settings, otherwise Amazon's.
    """

    def __init__(self, bucket: str, prefix: str = "", endpoint: str | None = None) -> None:
        if not _BUCKET.fullmatch(bucket):
            raise ConfigError(
                "a storage in S3 is s3://BUCKET/PREFIX, with a bucket of 3 to 63 of a-z, 0-9, dot "
                "and dash"
            )
        self.bucket = bucket
        self.prefix = validate_name(prefix, "prefix") if prefix else ""
        self.endpoint = endpoint
        self.location = f"s3://{'/'.join(filter(None, (bucket, self.prefix)))}"

    @cached_property
    def _system(self) -> Any:
        try:
            import fsspec
            import s3fs  # noqa: F401
        except ImportError as error:
            raise MissingDependency(
                f"storage in S3 needs s3fs, which is not installed ({error}): pip install "
                f"'nnpipe[s3]'"
            ) from None
        return fsspec.filesystem(
            "s3",
            endpoint_url=self.endpoint,
            # No caching, so that files of other processes are seen at once.
            use_listings_cache=False,
            skip_instance_cache=True,
            config_kwargs={
                "connect_timeout": 15,
                "read_timeout": 60,
                "retries": {"max_attempts": 3},
            },
        )

    def entries(self, below: str) -> list[Entry]:
        """List the files page by page; S3 returns 1,000 keys per page."""
        root = self._build_path(below) + "/"
        with self._convert_errors(below):
            # Without this limit, s3fs would collect all keys.
            found = self._system.find(root, detail=True, max_items=MAX_ENTRIES + 1)
        if len(found) > MAX_ENTRIES:
            raise StorageError(f"{self.location}: more than {MAX_ENTRIES:,} files below {below!r}")
        # Consoles make a key that ends in / for an empty folder; a file with the folder's own name
        # is not in it.
        kept = [
            info for path, info in found.items() if path.startswith(root) and not path.endswith("/")
        ]
        return sorted((self._build_entry(info) for info in kept), key=lambda entry: entry.name)

    def find(self, name: str) -> Entry | None:
        """Return the entry of an object, from a HEAD request, or None."""
        try:
            with self._convert_errors(name):
                info = self._system.info(self._build_path(name))
        except FileAbsent:
            return None
        return self._build_entry(info) if info["type"] == "file" else None

    @contextmanager
    def open(self, name: str) -> Iterator[OpenedEntry]:
        """Open an object; each range that is read must belong to its present ETag."""
        with self._convert_errors(name):
            handle = self._system.open(
                self._build_path(name), "rb", cache_type="none", block_size=_BLOCK
            )
        with handle:
            if handle.details["type"] != "file":
                raise FileAbsent(name)
            yield OpenedEntry(
                self._build_entry(handle.details),
                cast("BinaryIO", _Reader(handle, lambda: self._convert_errors(name))),
            )

    def put(self, name: str, source: Path, replace: bool, advance: Advance) -> None:
        """Upload a file; a large one is sent in parts, which S3 joins at the end."""
        path = self._build_path(name)
        if len(path.partition("/")[2].encode()) > _MAX_KEY:
            raise ConfigError(
                f"{name!r}: with the prefix it is longer than the {_MAX_KEY} bytes of a key in S3"
            )
        from fsspec.callbacks import Callback

        class ProgressForwarder(Callback):  # type: ignore[misc]
            """Passes the progress of s3fs on."""

            def relative_update(self, inc: int = 1) -> None:
                advance(inc)

        with self._convert_errors(name):
            mode = "overwrite" if replace else "create"
            self._system.put_file(
                str(source), path, callback=ProgressForwarder(), chunksize=_PART, mode=mode
            )

    def remove(self, name: str) -> None:
        """Delete an object; in a bucket with versioning, older versions remain."""
        with self._convert_errors(name):
            self._system.rm_file(self._build_path(name))

    def _build_path(self, name: str) -> str:
        return "/".join(filter(None, (self.bucket, self.prefix, name)))

    def _build_entry(self, info: dict[str, Any]) -> Entry:
        changed = info.get("LastModified")
        seconds = changed.timestamp() if isinstance(changed, datetime) else 0.0
        name = info["name"][len(self._build_path("")) + 1 :]
        tag = info.get("ETag") or f"{seconds}-{info['size']}"
        return Entry(name, int(info["size"]), seconds, str(tag))

    @contextmanager
    def _convert_errors(self, name: str) -> Iterator[None]:
        """Convert errors of s3fs and its dependencies to one line, except those that callers
        handle.
        """
        where = f"{self.location}/{name}"
        try:
            yield
        except (NNPipeError, FileExistsError, FileAbsent):
            raise
        except FileNotFoundError as error:
            if _is_without_bucket(error):
                raise StorageError(
                    f"{self.location}: there is no such bucket, or it is not yours"
                ) from None
            raise FileAbsent(where) from None
        except PermissionError as error:
            raise StorageError(
                f"{where}: refused ({error or 'forbidden'}); are these credentials allowed to?"
            ) from None
        except Exception as error:
            if _is_changed(error):
                raise FileChanged(where) from None
            foreign = type(error).__module__.partition(".")[0] in _PACKAGES
            if not foreign and not isinstance(error, (OSError, TimeoutError)):
                raise
            told = str(error) or type(error).__name__
            if type(error).__name__ in ("NoCredentialsError", "PartialCredentialsError"):
                told += (
                    "; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or run: "
                    "aws configure"
                )
            raise StorageError(f"{where}: {told}") from None


class _Reader:
    """A file with only the method ``read``, whose errors are converted."""

    def __init__(self, handle: Any, told: Callable[[], AbstractContextManager[None]]) -> None:
        self._handle, self._told = handle, told

    def read(self, count: int) -> bytes:
        with self._told():
            return bytes(self._handle.read(count))


def _is_without_bucket(error: BaseException) -> bool:
    """Return whether S3 reports a missing bucket, by its error code, since the error's text may
    contain any key.
    """
    cause: BaseException | None = error
    while cause is not None:
        said = getattr(cause, "response", None)
        if isinstance(said, dict) and said.get("Error", {}).get("Code") == "NoSuchBucket":
            return True
        cause = cause.__cause__
    return False


def _is_changed(error: Exception) -> bool:
    """Return whether the object has been replaced or removed since its ETag was read."""
    return type(error).__name__ == "FileExpired"
