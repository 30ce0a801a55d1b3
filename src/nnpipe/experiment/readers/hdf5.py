"""HDF5 files."""

from __future__ import annotations

from typing import Any

from nnpipe.core.errors import DatasetError
from nnpipe.experiment.readers.reader import Column, DataReader


class HDF5Reader(DataReader):
    """Reads the datasets of an HDF5 file as columns, those in groups as ``group/name``.

    Links and data in other files are not followed.
    """

    requires = ("h5py",)
    install = "nnpipe[experiment]"

    def _read(self) -> dict[str, Column]:
        import h5py

        datasets: dict[str, Any] = {}

        def note(name: str, item: Any) -> None:
            if isinstance(item, h5py.Dataset):
                datasets[name] = item

        try:
            with h5py.File(self.path, "r") as file:
                file.visititems(note)  # links are not visited
                self._check_size(sum(item.nbytes for item in datasets.values()), "the data")
                return {name: _column(name, item) for name, item in datasets.items()}
        except (OSError, RuntimeError, KeyError, ValueError, TypeError) as error:
            raise DatasetError(f"no HDF5 file that can be read: {str(error).splitlines()[0]}") from error


def _column(name: str, item: Any) -> Column:
    import h5py

    if item.is_virtual or item.external:
        raise DatasetError(f"{name}: its data lie in other files")
    if not item.shape:
        raise DatasetError(f"{name}: a single value is no column")
    if h5py.check_string_dtype(item.dtype) is not None:
        return [str(text) for text in item.asstr(errors="replace")[()]]
    if item.dtype.kind not in "biufc":
        raise DatasetError(f"{name}: {item.dtype} is neither a number nor a text")
    found: Column = item[()]
    return found
