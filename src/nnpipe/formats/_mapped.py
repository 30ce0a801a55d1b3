"""Memory-mapped ONNX files, of which only the parts in use are read from the disk."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nnpipe.core.errors import ArtifactError
from nnpipe.formats._errors import Damaged


@contextmanager
def mapped_onnx(path: str | Path) -> Iterator[memoryview]:
    """Yield the content of an ONNX file, mapped into memory.

    Errors inside the ``with`` block that come from reading the file are raised as an :class:`ArtifactError` that names
    the file.
    """
    try:
        with open(path, "rb") as handle, mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) as content:
            with memoryview(content) as data:
                yield data
    except (Damaged, ValueError, OSError, MemoryError) as error:
        raise ArtifactError(f"{path}: not a usable ONNX model: {error}") from None
