"""How the cells of a text table are separated, and how its numbers are written."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from nnpipe.core.errors import DatasetError

COMMA = ","
_OTHERS = ";\t|"
_WITH_COMMA = re.compile(r"\s*[+-]?\d*,\d+([eE][+-]?\d+)?\s*")
_WITH_POINT = re.compile(r"\s*[+-]?\d*\.\d+([eE][+-]?\d+)?\s*")


def delimiter_of(first: str, second: str = "") -> str:
    """Return what separates the cells of a table, given its first two lines: a comma, a semicolon, a tab or a bar.

    Both lines must have as many cells, for names of columns and numbers may hold commas.

    Examples
    --------
    >>> delimiter_of("age;price, net", "31;2,50")
    ';'
    >>> delimiter_of("power|kW,price", "31,2.50")
    ','
    """
    split = [delimiter for delimiter in (*_OTHERS, COMMA) if len(cells(first, delimiter)) > 1]
    fitting = (each for each in split if len(cells(second, each)) == len(cells(first, each)))
    # Without one that fits both lines, the message about the second names the cells that are too many or too few.
    return next(fitting, COMMA if COMMA in split or not split else split[0])


def cells(line: str, delimiter: str) -> list[str]:
    """Return the cells of a line; none if it is no line of a table."""
    try:
        return next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error:  # a NUL, or a cell that is too long
        return []


class DecimalMarks:
    """The decimal marks of a table's columns: where cells are not separated by commas, numbers may have commas.

    A column with commas and with points is refused, since one of them groups the thousands: ``1.234`` beside ``1,5`` is
    more than a thousand.
    """

    def __init__(self, path: Path, delimiter: str) -> None:
        self._path, self._delimiter = path, delimiter
        self._marks: dict[str, tuple[str, str]] = {}

    def plain(self, column: str, cell: str) -> str:
        """Return a cell with a point where a number has a comma.

        Raises
        ------
        DatasetError
            If an earlier number of the column has the other mark.
        """
        if self._delimiter == COMMA or not ("," in cell or "." in cell):
            return cell
        mark = "," if _WITH_COMMA.fullmatch(cell) else "." if _WITH_POINT.fullmatch(cell) else ""
        if not mark:
            return cell
        known, example = self._marks.setdefault(column, (mark, cell))
        if known != mark:
            raise DatasetError(
                f"{self._path}: column {column[:80]!r} holds {example[:40]!r} and {cell[:40]!r}: write decimals alike, "
                "and thousands without a mark"
            )
        return cell.replace(",", ".")

    def numbers(self, lines: Sequence[str], places: Sequence[int], names: Sequence[str]) -> npt.NDArray[np.float32]:
        """Return columns of some lines, ``(rows, columns)``; raise :class:`ValueError` if a cell is no number."""
        rows = [row for row in csv.reader(lines, delimiter=self._delimiter) if row]
        if any(len(row) != len(names) for row in rows):
            raise ValueError("a row has another number of cells")
        found = [[float(self.plain(names[place], row[place])) for place in places] for row in rows]
        with np.errstate(over="ignore"):
            return np.array(found, np.float32).reshape(-1, len(places))
