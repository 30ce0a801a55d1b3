"""HDF5 files."""

from __future__ import annotations

import sys
from typing import Any

from nnpipe.core.errors import DatasetError
from nnpipe.core.messages import LOCKED
from nnpipe.experiment.readers.reader import Column, DataReader

_AT_ONCE = 4096


class HDF5Reader(DataReader):
    """Reads the datasets of an HDF5 file as columns, those in groups as ``group/name``.

    Links and data in other files are not followed.
    """

    requires = ("h5py",)
    install = "nnpipe[experiment]"

    def _read(self) -> dict[str, Column]:
        import h5py

        datasets: dict[str, Any] = {}

        def collect_dataset(name: str, item: Any) -> None:
            if isinstance(item, h5py.Dataset):
                datasets[name] = item

        try:
            with h5py.File(self.path, "r") as file:
                file.visititems(collect_dataset)  # links are not visited
                # for strings this counts only pointers
                known = sum(item.nbytes for item in datasets.values())
                self._check_size(known, "the data")
                columns: dict[str, Column] = {}
                for name, item in datasets.items():
                    columns[name] = (
                        self._read_texts(name, item, known)
                        if _is_text(item)
                        else _read_numbers(name, item)
                    )
                    known += sum(map(sys.getsizeof, columns[name])) if _is_text(item) else 0
                return columns
        except BlockingIOError:
            raise DatasetError(LOCKED) from None
        except (OSError, RuntimeError, KeyError, ValueError, TypeError) as error:
            raise DatasetError(
                f"no HDF5 file that can be read: {str(error).splitlines()[0]}"
            ) from error

    def _read_texts(self, name: str, item: Any, before: int) -> Column:
        """Read strings in parts: their length is not known before, and all may share one value
        in the file.
        """
        _check_there(name, item)
        if len(item.shape) != 1:
            raise DatasetError(f"{name}: texts with {len(item.shape)} axes are no column")
        found: list[str] = []
        longest = max(self.path.stat().st_size, 1)  # of one string
        at_once = min(max(self._bound // longest, 1), _AT_ONCE)
        for start in range(0, len(item), at_once):
            found += (str(text) for text in item.asstr(errors="replace")[start : start + at_once])
            before += sum(map(sys.getsizeof, found[start:]))
            self._check_size(before, name)
        return found


def _is_text(item: Any) -> bool:
    import h5py

    return h5py.check_string_dtype(item.dtype) is not None


def _check_there(name: str, item: Any) -> None:
    if item.is_virtual or item.external:
        raise DatasetError(f"{name}: its data lie in other files")
    if not item.shape:
        raise DatasetError(f"{name}: a single value is no column")


def _read_numbers(name: str, item: Any) -> Column:
    _check_there(name, item)
    if item.dtype.kind not in "biufc":
        raise DatasetError(f"{name}: {item.dtype} is neither a number nor a text")
    found: Column = item[()]
    return found
