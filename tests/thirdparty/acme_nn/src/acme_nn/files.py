"""The library's file formats: arrays by name in an uncompressed zip archive (``.npz``), without
pickle.
"""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from nnpipe.core.errors import ArtifactError
from nnpipe.core.files import replace_atomically


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write the file whole or not at all."""
    with replace_atomically(path) as temporary, temporary.open("wb") as stream:
        np.savez(stream, **arrays)


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Read a file that may come from anybody.

    No array may claim more bytes than the file holds, so that none can fill
    the memory.
    """
    if not path.is_file():
        raise ArtifactError(f"{path}: no such model file")
    try:
        with zipfile.ZipFile(path) as archive:
            return {
                member.filename.removesuffix(".npy"): _array(archive, member)
                for member in archive.infolist()
            }
    except Exception as error:  # a damaged archive can fail in a dozen ways
        raise ArtifactError(
            f"{path}: damaged, or no acme model ({' '.join(str(error).split())})"
        ) from None


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray:
    if member.compress_type != zipfile.ZIP_STORED:
        raise ValueError(f"{member.filename} is compressed")
    stream = io.BytesIO(archive.read(member))
    if np.lib.format.read_magic(stream) != (1, 0):
        raise ValueError(f"{member.filename} is of an unknown version")
    shape, columns_first, dtype = np.lib.format.read_array_header_1_0(stream)
    data = stream.read()
    if columns_first or dtype.kind not in "fiu" or math.prod(shape) * dtype.itemsize != len(data):
        raise ValueError(f"{member.filename} is not what its header says")
    return np.frombuffer(data, dtype).reshape(shape)
