"""numpy's archives of arrays."""

from __future__ import annotations

import math
import zipfile

import numpy as np

from nnpipe.core.errors import DatasetError
from nnpipe.experiment.readers.reader import Column, DataReader


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
                        found[info.filename[:-4]] = np.lib.format.read_array(member, allow_pickle=False)
        except (zipfile.BadZipFile, ValueError, EOFError, NotImplementedError, RuntimeError) as error:
            raise DatasetError(f"no archive of arrays: {str(error).splitlines()[0]}") from error
        return found


def _check_header(member: object, info: zipfile.ZipInfo) -> None:
    """Compare what the header asks to allocate with what there is."""
    version = np.lib.format.read_magic(member)  # type: ignore[arg-type]
    if version not in ((1, 0), (2, 0)):
        raise DatasetError(f"{info.filename}: of version {version}, which is not read")
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(member)  # type: ignore[arg-type]
    if dtype.hasobject:
        raise DatasetError(f"{info.filename}: holds pickled objects")
    if math.prod(shape) * dtype.itemsize > info.file_size or not shape:
        raise DatasetError(f"{info.filename}: {shape} of {dtype} is not what it holds")
