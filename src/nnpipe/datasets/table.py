"""Tables in CSV and Parquet files, of which columns are read when they are asked for.

Text is read as category numbers.  Files are untrusted: lines, cells, columns and different texts
are bounded, and a Parquet file is read in row groups whose stated size is checked first.
"""

from __future__ import annotations

import csv
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.core.errors import DatasetError, MissingDependency
from nnpipe.core.messages import format_one_line, suggest_name
from nnpipe.datasets._number_table import (
    DecimalMarks,
    is_unnamed,
    read_blocks,
    read_delimiter,
    read_header_names,
    read_numbers,
)

SUFFIXES = (".csv", ".tsv", ".parquet")

_MOST_COLUMNS = 1 << 16
_MOST_CATEGORIES, _MOST_TEXT = 1 << 20, 64 << 20  # characters of all different texts of a column
_BATCH = 1 << 14  # rows
_CELL, _EXPANSION = 8, 64  # bytes of a cell in memory, and of memory for each byte on the disk
_LEAST_BOUND, _MOST_BOUND = 256 << 20, 8 << 30  # bytes
_LARGEST_GROUP = 4 << 30  # bytes of a row group of a Parquet file, unpacked

Codes = npt.NDArray[np.signedinteger[Any]]


@dataclass(frozen=True, eq=False)
class Texts:
    """A column of texts.

    Attributes
    ----------
    codes
        The number of each row's text, ``(rows,)``.
    names
        The different texts, in the order of their first row.
    """

    codes: Codes
    names: tuple[str, ...]

    def to_ordered(self) -> Texts:
        """Return the same with the different texts in alphabetical order, numbers by their size."""
        order = sorted(range(len(self.names)), key=lambda place: _size(self.names[place]))
        places = np.empty(len(order), np.int64)
        places[order] = np.arange(len(order))
        return Texts(places[self.codes], tuple(self.names[place] for place in order))


def _size(text: str) -> tuple[int, float, str]:
    number = parse_number(text)
    return (1, 0.0, text) if number is None else (0, number, text)


def parse_number(text: str) -> float | None:
    """Return the finite number that a cell holds; ``None`` if it holds another text."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if np.isfinite(number) else None


class DataTable(ABC):
    """The columns of a file; only those that are asked for are read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""

    @abstractmethod
    def numbers(self, columns: Sequence[str]) -> npt.NDArray[np.float32]:
        """Return columns of finite numbers, ``(rows, columns)``."""

    @abstractmethod
    def cells(self, columns: Sequence[str]) -> Iterator[list[tuple[str, ...]]]:
        """Yield the rows of some columns as text, many at a time; an empty text is a missing
        value.
        """

    def read_texts(self, column: str) -> Texts:
        """Return a column of texts.

        Raises
        ------
        DatasetError
            If there is no such column, or it has too many different texts.
        """
        self.check((column,))
        known: dict[str, int] = {}
        parts, length = [], 0
        for rows in self.cells((column,)):
            part = np.empty(len(rows), np.int32)
            for place, (text,) in enumerate(rows):
                number = known.get(text)
                if number is None:
                    number = known[text] = len(known)
                    length += len(text)
                part[place] = number
            if len(known) > _MOST_CATEGORIES or length > _MOST_TEXT:
                raise DatasetError(
                    f"{self.path}: column {column!r} has too many different texts to be a category"
                )
            parts.append(part)
        if not parts:
            raise DatasetError(f"{self.path} has names of columns, and no rows")
        return Texts(np.concatenate(parts), tuple(known))

    def place(self, row: int) -> str:
        """Return where a row of :meth:`cells`, counted from 0, is in the file, for messages."""
        return f"row {row + 1}"

    @property
    def named(self) -> tuple[str, ...]:
        """The columns that have names of their own."""
        return tuple(name for name in self.names if not is_unnamed(name))

    def check(self, columns: Sequence[str]) -> None:
        """Raise :class:`DatasetError` unless there are columns of these names."""
        for column in columns:
            if column not in self.names:
                some = ", ".join(name[:40] for name in self.names[:40]) + (
                    ", ..." if len(self.names) > 40 else ""
                )
                raise DatasetError(
                    f"{self.path} has no column {column[:80]!r}{suggest_name(column, self.names)}; "
                    f"it has: {some}"
                )


def open_table(path: Path) -> DataTable:
    """Return the table in a file, which is recognised by its ending.

    Raises
    ------
    DatasetError
        If there is no such file, it is no table, or it has too many columns.
    MissingDependency
        If it is a Parquet file and pyarrow is not installed.
    """
    if not path.is_file():
        raise DatasetError(f"{path}: no such file")
    table: DataTable = _Parquet(path) if path.suffix.lower() == ".parquet" else _CSV(path)
    if len(table.names) > _MOST_COLUMNS:
        raise DatasetError(
            f"{path} has {len(table.names):,} columns, and at most {_MOST_COLUMNS:,} are read"
        )
    return table


class _CSV(DataTable):
    @cached_property
    def names(self) -> tuple[str, ...]:
        return read_header_names(self.path)

    @cached_property
    def _delimiter(self) -> str:
        return read_delimiter(self.path)

    def numbers(self, columns: Sequence[str]) -> npt.NDArray[np.float32]:
        self.check(columns)
        return read_numbers(self.path, columns)

    def cells(self, columns: Sequence[str]) -> Iterator[list[tuple[str, ...]]]:
        places = [(column, self.names.index(column)) for column in columns]
        marks = DecimalMarks(self.path, self._delimiter)
        rows = self._iter_rows()
        next(rows)  # the names
        while batch := list(islice(rows, _BATCH)):
            yield [
                tuple(marks.normalize(column, row[place].strip()) for column, place in places)
                for _, row in batch
            ]

    def place(self, row: int) -> str:
        number, _ = next(islice(self._iter_rows(), row + 1, None))  # the first are the names
        return f"line {number}"

    def _iter_rows(self) -> Iterator[tuple[int, list[str]]]:
        """Yield the rows that are not empty with their lines, the names first; few are in memory
        at a time.
        """
        first = 1
        for lines in read_blocks(self.path):
            reader = csv.reader(lines, delimiter=self._delimiter, strict=True)
            try:
                for row in reader:
                    if row and len(row) != len(self.names):
                        raise DatasetError(
                            f"{self.path}, line {first + reader.line_num - 1}: {len(row)} cells, "
                            f"and there are {len(self.names)} columns"
                        )
                    if row:
                        yield first + reader.line_num - 1, row
            except csv.Error as error:
                line = first + reader.line_num - 1
                raise DatasetError(f"{self.path}, line {line}: {format_one_line(error)}") from None
            first += len(lines)


class _Parquet(DataTable):
    @cached_property
    def _file(self) -> Any:
        try:
            import pyarrow.parquet
        except ImportError:
            raise MissingDependency(
                f"reading {self.path} needs pyarrow, which is not installed: pip install "
                f"'nnpipe[parquet]'"
            ) from None
        try:
            found = pyarrow.parquet.ParquetFile(self.path, memory_map=True)
            for number in range(found.metadata.num_row_groups):
                group = found.metadata.row_group(number)
                if (
                    not 0 <= group.total_byte_size <= _LARGEST_GROUP
                    or not 0 <= group.num_rows < 1 << 31
                ):
                    raise DatasetError(
                        f"{self.path}: a row group states {group.total_byte_size:,} bytes, which "
                        f"is not read"
                    )
        except (OSError, ValueError, MemoryError) as error:  # errors of pyarrow are ValueErrors
            raise DatasetError(
                f"{self.path}: no Parquet file, or a damaged one: {format_one_line(error)}"
            ) from None
        return found

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(map(str, self._file.schema_arrow.names))

    def _iter_batches(self, columns: Sequence[str]) -> Iterator[Any]:
        self.check(columns)
        # A column of equal values takes a few bytes, whatever its length.
        size = self.path.stat().st_size
        most = min(max(size * _EXPANSION, _LEAST_BOUND), _MOST_BOUND)
        rows = self._file.metadata.num_rows
        if not 0 <= rows * len(columns) * _CELL <= most:
            raise DatasetError(
                f"{self.path} has {size:,} bytes and states {rows:,} rows, too many for its size"
            )
        try:
            yield from self._file.iter_batches(batch_size=_BATCH, columns=list(columns))
        except (OSError, ValueError, MemoryError, NotImplementedError) as error:
            raise DatasetError(f"{self.path}: damaged: {format_one_line(error)}") from None

    def numbers(self, columns: Sequence[str]) -> npt.NDArray[np.float32]:
        parts = []
        for batch in self._iter_batches(columns):
            part = np.empty((batch.num_rows, len(columns)), np.float32)
            for place, column in enumerate(columns):
                try:
                    found = batch.column(column).to_numpy(zero_copy_only=False).astype(np.float32)
                except (ValueError, TypeError) as error:
                    raise DatasetError(
                        f"{self.path}: column {column!r} holds no numbers: {format_one_line(error)}"
                    ) from None
                if not np.isfinite(found).all():
                    raise DatasetError(
                        f"{self.path}: column {column!r} has gaps or numbers that are not finite"
                    )
                part[:, place] = found
            parts.append(part)
        if not parts:
            raise DatasetError(f"{self.path} has no rows")
        return np.concatenate(parts)

    def cells(self, columns: Sequence[str]) -> Iterator[list[tuple[str, ...]]]:
        for batch in self._iter_batches(columns):
            held = [
                ["" if cell is None else str(cell) for cell in batch.column(name).to_pylist()]
                for name in columns
            ]
            yield list(zip(*held, strict=True))
