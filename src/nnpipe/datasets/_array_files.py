"""Arrays in files, mapped into memory where their form allows it, so that only what is read is loaded."""

from __future__ import annotations

import math
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.core.errors import DatasetError
from nnpipe.experiment.readers.npz import NpzReader

Array = npt.NDArray[Any]

_LOCAL_HEADER = struct.Struct("<4s22xHH")  # signature, and the lengths of the name and of extra fields
_SIGNATURE = b"PK\x03\x04"
_KINDS = "biufUS"


def mapped_array(path: Path) -> Array:
    """Return the array of a ``.npy`` file, memory-mapped.

    Raises
    ------
    DatasetError
        If the file is missing or damaged, claims more than it has, or holds pickles.
    """
    try:
        # Memory-mapped, so that a header cannot claim more memory than the file has bytes.
        found: Array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError, EOFError, SyntaxError, MemoryError, RecursionError) as error:
        hint = "; save texts as array.astype(str)" if "allow_pickle" in str(error) else ""
        raise DatasetError(f"{path}: no array of numpy: {(str(error).splitlines() or ['damaged'])[0]}{hint}") from None
    if not isinstance(found, np.ndarray):  # an archive under the wrong name
        found.close()
        raise DatasetError(f"{path}: an archive of arrays; its name should end in .npz")
    return found


def raw_array(path: Path, dtype: str, shape: tuple[int, ...]) -> Array:
    """Return the samples in a file of nothing but numbers, memory-mapped: ``(n, *shape)``, little-endian.

    Raises
    ------
    DatasetError
        If the file is missing, empty, or does not hold a whole number of samples.
    """
    kind = np.dtype(dtype).newbyteorder("<")
    size = math.prod(shape) * kind.itemsize
    try:
        held = path.stat().st_size
        if not held or held % size:
            raise DatasetError(
                f"{path} has {held:,} bytes, and samples of {dtype} {'x'.join(map(str, shape)) or '(one number)'} have "
                f"{size:,} each: {'there are none' if not held else f'{held % size:,} are left over'}"
            )
        return np.memmap(path, kind, "r", shape=(held // size, *shape))
    except OSError as error:
        raise DatasetError(f"{path} cannot be read: {error.strerror or error}") from None


def arrays_of_folder(folder: Path) -> dict[str, Array]:
    """Return the arrays of all ``.npy`` files in a folder, by their names without the ending."""
    return {path.stem: mapped_array(path) for path in sorted(folder.glob("*.npy"))}


def arrays_of_archive(path: Path) -> Mapping[str, Array]:
    """Return the arrays of an ``.npz`` archive: memory-mapped if none is compressed, otherwise loaded.

    Raises
    ------
    DatasetError
        If it is missing or damaged, states wrong sizes, or holds pickles.
    """
    if not path.is_file():
        raise DatasetError(f"{path}: no such folder of .npy files, and no such .npz archive")
    found = _mapped_members(path)
    if found is not None:
        return found
    return {name: np.asarray(column) for name, column in NpzReader(path=path).read().items()}


def _mapped_members(path: Path) -> dict[str, Array] | None:
    """Return the arrays of an archive that :func:`numpy.savez` wrote; ``None`` if they cannot be mapped."""
    found: dict[str, Array] = {}
    try:
        size = path.stat().st_size
        with zipfile.ZipFile(path) as archive, open(path, "rb") as file:
            for info in archive.infolist():
                if not info.filename.endswith(".npy"):
                    continue
                file.seek(info.header_offset)
                signature, name, extra = _LOCAL_HEADER.unpack(file.read(_LOCAL_HEADER.size))
                start = info.header_offset + _LOCAL_HEADER.size + name + extra
                whole = info.compress_size == info.file_size and start + info.file_size <= size
                if info.compress_type != zipfile.ZIP_STORED or signature != _SIGNATURE or not whole:
                    return None
                file.seek(start)
                array = _mapped(path, file, start + info.file_size)
                if array is None:
                    return None
                found[info.filename[:-4]] = array
    except Exception:  # headers may hold anything; the reader that copies says what is wrong
        return None
    return found


def _mapped(path: Path, file: Any, end: int) -> Array | None:
    version = np.lib.format.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        return None
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, column_major, dtype = read(file)
    fits = all(extent > 0 for extent in shape) and shape and file.tell() + math.prod(shape) * dtype.itemsize <= end
    if dtype.kind not in _KINDS or not fits:
        return None
    return np.memmap(path, dtype, "r", file.tell(), shape, "F" if column_major else "C")
