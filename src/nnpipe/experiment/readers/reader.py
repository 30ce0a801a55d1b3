"""The base class of all readers, and the choice of the reader of a file."""

from __future__ import annotations

import importlib
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from nnpipe.core.arguments import argument
from nnpipe.core.component import Component
from nnpipe.core.errors import ConfigError, DatasetError

_EXPANSION = 64  # ratio; compressed masks and tables reach 30, a decompression bomb 1,000
_LEAST_BOUND, _MOST_BOUND = 256 << 20, 8 << 30

Column = npt.NDArray[Any] | list[Any]

_READERS = {
    ".npz": "npz.NpzReader",
    ".h5": "hdf5.HDF5Reader",
    ".hdf5": "hdf5.HDF5Reader",
    ".csv": "csv.CSVReader",
    ".tsv": "csv.CSVReader",
    ".json": "json.JSONReader",
    ".jsonl": "json.JSONReader",
    ".tfrecord": "tfrecord.TFRecordReader",
    ".tfrecords": "tfrecord.TFRecordReader",
}


class DataReader(Component):
    """Reads a file or a folder as columns, with one value for each sample.

    Subclasses implement ``_read``.  Files are untrusted, so it must check every size
    before it allocates memory, and must never unpickle.
    """

    path: Path = argument(help="the file, or for images the folder")
    max_bytes: int | None = argument(
        None,
        help="refuse data that would take more memory than this (default: 64 times what lies on "
        "the disk, at least 256 MiB, at most 8 GiB)",
        minimum=1,
    )

    needs_file: ClassVar[bool] = True

    def read(self) -> dict[str, Column]:
        """Return all columns.

        Returns
        -------
        dict
            Arrays ``(n, ...)`` by name, or lists of length ``n`` if samples are strings or differ
            in shape.

        Raises
        ------
        DatasetError
            If the file is missing, damaged, too large, or its columns differ in length; the message
            names it.
        MissingDependency
            If the reader needs a package that is not installed.
        """
        self.check_installed()
        if not (self.path.is_file() if self.needs_file else self.path.is_dir()):
            raise DatasetError(f"{self.path}: no such {'file' if self.needs_file else 'folder'}")
        try:
            columns = self._read()
        except OSError as error:
            raise DatasetError(f"{self.path}: cannot be read: {error.strerror or error}") from error
        except DatasetError as error:
            raise DatasetError(f"{self.path}: {error}") from error
        lengths = {name: len(column) for name, column in columns.items()}
        if len(set(lengths.values())) != 1:
            told = ", ".join(f"{name} has {length}" for name, length in list(lengths.items())[:5])
            raise DatasetError(
                f"{self.path}: columns must have as many samples each; {told or 'there are none'}"
            )
        return columns

    @abstractmethod
    def _read(self) -> dict[str, Column]:
        """Return all columns; raise :class:`DatasetError` without the name of the file."""

    @cached_property
    def _bound(self) -> int:
        """Return the greatest memory for the data in bytes: the user's limit, or one from the
        size of the file.
        """
        if self.max_bytes is not None:
            return self.max_bytes
        files = (
            [self.path]
            if self.needs_file
            else [path for path in self.path.rglob("*") if path.is_file()]
        )
        return min(
            max(_EXPANSION * sum(path.stat().st_size for path in files), _LEAST_BOUND), _MOST_BOUND
        )

    def _check_size(self, size: int, what: str) -> None:
        """Raise :class:`DatasetError` if data would take too much memory; call it before
        allocating.
        """
        if size > self._bound:
            raise DatasetError(
                f"{what} takes {size:,} bytes or more, above the {self._bound:,} allowed; give "
                f"max_bytes if it may"
            )


def create_reader(path: str | Path) -> DataReader:
    """Return the reader of a file by its suffix; a folder is read as images.

    Raises
    ------
    ConfigError
        If there is no reader for the suffix.
    """
    path = Path(path)
    place = "images.ImageReader" if path.is_dir() else _READERS.get(path.suffix.lower())
    if place is None:
        raise ConfigError(
            f"{path}: nothing here reads {path.suffix or 'such files'}; known: "
            f"{', '.join(_READERS)}"
        )
    module, name = place.split(".")
    found = getattr(importlib.import_module(f"nnpipe.experiment.readers.{module}"), name)
    reader: DataReader = found(path=path)
    return reader


def stack_values(values: Sequence[Any]) -> Column:
    """Return an array if the values are numbers, or nested lists of numbers, of one shape; else
    a list.
    """
    if not all(isinstance(value, (bool, int, float, list, np.ndarray)) for value in values):
        return list(values)
    try:
        array = np.array(values)
    except (ValueError, OverflowError):  # of different shapes
        return list(values)
    return array if array.dtype.kind in "biuf" else list(values)


def transpose_rows(rows: Sequence[Mapping[str, Any]]) -> dict[str, Column]:
    """Return columns from rows, which must all have the same names.

    Raises
    ------
    DatasetError
        If names differ; the message names the first such row.
    """
    if not rows:
        raise DatasetError("holds no samples")
    names = list(rows[0])
    for number, row in enumerate(rows):
        if row.keys() != rows[0].keys():
            odd = sorted(set(row) ^ set(names))[0]
            raise DatasetError(f"sample {number} and the first differ: {odd!r} is in one only")
    return {name: stack_values([row[name] for row in rows]) for name in names}
