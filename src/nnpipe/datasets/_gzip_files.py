"""Reading of files that may be compressed with gzip; damage raises a :class:`DatasetError` that names the file."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from nnpipe.core.errors import DatasetError


class Malformed(Exception):
    """Raised inside :func:`unpacked` if the content does not match its format."""


@contextmanager
def unpacked(path: Path) -> Iterator[IO[bytes]]:
    """Yield the content of ``path``, unpacked if its name ends in ``.gz``.

    Raises
    ------
    DatasetError
        If the file cannot be opened, gzip finds it damaged, or the block raises :class:`Malformed`.
    """
    try:
        with path.open("rb") as stream:
            if path.suffix == ".gz":
                with gzip.GzipFile(fileobj=stream) as content:
                    yield cast(IO[bytes], content)
            else:
                yield stream
    except (Malformed, gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DatasetError(f"{path} is damaged: {error}; move it away and get it again") from None
    except OSError as error:
        raise DatasetError(f"cannot read {path}: {error.strerror or error}") from None
