"""CSV and TSV files."""

from __future__ import annotations

import csv

import numpy as np

from nnpipe.core.arguments import argument
from nnpipe.core.errors import DatasetError
from nnpipe.experiment.readers.reader import Column, DataReader


class CSVReader(DataReader):
    """Reads a table whose first line has the names of its columns.

    A column of whole numbers becomes int64, a column of numbers float64 with NaN for
    empty cells, and any other column a list of strings.
    """

    delimiter: str = argument(
        "", help="between cells; by default a tab in .tsv files and else a comma"
    )

    def validate(self) -> None:
        """Raise :class:`ConfigError` unless the delimiter is one character."""
        if len(self.delimiter) > 1:
            from nnpipe.core.errors import ConfigError

            raise ConfigError(f"delimiter: expected one character, not {self.delimiter!r}")

    def _read(self) -> dict[str, Column]:
        # Strings and lists of Python take about a hundred bytes for a short cell.
        self._check_size(20 * self.path.stat().st_size, "the table")
        delimiter = self.delimiter or ("\t" if self.path.suffix.lower() == ".tsv" else ",")
        try:
            with open(self.path, newline="", encoding="utf-8-sig") as handle:
                reader = csv.reader(handle, delimiter=delimiter, strict=True)
                names = next(reader, [])
                if not names or len(set(names)) != len(names):
                    raise DatasetError(
                        "the first line must have a name for each column, no two alike"
                    )
                rows = []
                for row in reader:
                    if row and len(row) != len(names):
                        raise DatasetError(
                            f"line {reader.line_num}: {len(row)} cells, not {len(names)}"
                        )
                    if row:
                        rows.append(row)
        except (csv.Error, UnicodeDecodeError) as error:
            raise DatasetError(f"no table: {error}") from error
        return {
            name: _convert_cells([row[place] for row in rows]) for place, name in enumerate(names)
        }


def _convert_cells(cells: list[str]) -> Column:
    try:
        return np.array([int(cell) for cell in cells], np.int64)
    except (ValueError, OverflowError):
        pass
    try:
        return np.array([float(cell or "nan") for cell in cells], np.float64)
    except ValueError:
        return cells
