"""Archives of numpy arrays."""

from __future__ import annotations

import math
import zipfile
import zlib
from typing import Any

import numpy as np

from nnpipe.core.errors import DatasetError
from nnpipe.experiment.readers.reader import Column, DataReader

_LARGEST = 1 << 62


class NpzReader(DataReader):
    """Reads an ``.npz`` archive; each array is a column.  Pickled objects are refused."""

    def _read(self) -> dict[str, Column]:
        found: dict[str, Column] = {}
        try:
            with zipfile.ZipFile(self.path) as archive:
                members = [info for info in archive.infolist() if info.filename.endswith(".npy")]
                self._check_size(sum(info.file_size for info in members), "the data")
                for info in members:
                    with archive.open(info) as member:
                        _check_header(member, info)
                    with archive.open(info) as member:
                        found[info.filename[:-4]] = np.lib.format.read_array(
                            member, allow_pickle=False
                        )
        except (
            zipfile.BadZipFile,
            zlib.error,
            ValueError,
            EOFError,
            NotImplementedError,
            RuntimeError,
        ) as error:
            raise DatasetError(
                f"no archive of arrays: {(str(error).splitlines() or ['damaged'])[0]}"
            ) from error
        return found


def _check_header(member: object, info: zipfile.ZipInfo) -> None:
    """Raise if an array's header claims more data than its file holds."""
    try:
        shape, dtype = _read_header(member, info)
    except DatasetError:
        raise
    except Exception as error:  # numpy evaluates it as a literal, which fails in many ways
        raise DatasetError(
            f"{info.filename}: its header is none ({type(error).__name__})"
        ) from error
    if dtype.hasobject:
        raise DatasetError(
            f"{info.filename}: holds pickled objects; save texts as array.astype(str)"
        )
    extents = all(type(extent) is int and 0 <= extent < _LARGEST for extent in shape)
    if not extents or math.prod(shape) * dtype.itemsize > info.file_size or not shape:
        told = str(shape) if len(str(shape)) <= 100 else str(shape)[:99] + "…"
        raise DatasetError(f"{info.filename}: {told} of {dtype} is not what it holds")


def _read_header(member: object, info: zipfile.ZipInfo) -> tuple[tuple[int, ...], np.dtype[Any]]:
    version = np.lib.format.read_magic(member)  # type: ignore[arg-type]
    if version not in ((1, 0), (2, 0)):
        raise DatasetError(f"{info.filename}: of version {version}, which is not read")
    read = (
        np.lib.format.read_array_header_1_0
        if version == (1, 0)
        else np.lib.format.read_array_header_2_0
    )
    shape, _, dtype = read(member)  # type: ignore[arg-type]
    return shape, dtype
