"""Map an ONNX file into memory, so that only the parts used are read."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nnpipe.core.errors import ArtifactError
from nnpipe.formats._errors import Damaged


@contextmanager
def mapped_onnx(path: str | Path) -> Iterator[memoryview]:
    """Yield the content of a file; errors in reading it become an :class:`ArtifactError` that names the file."""
    try:
        with open(path, "rb") as handle, mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) as content:
            with memoryview(content) as data:
                yield data
    except (Damaged, ValueError, OSError, MemoryError) as error:
        raise ArtifactError(f"{path}: not a usable ONNX model: {error}") from None
