"""Columns of numbers from large CSV files, read block by block.

Cells may also be separated by semicolons, tabs or bars, and then numbers may have decimal commas.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO

import numpy as np
import numpy.typing as npt

from nnpipe.core.errors import DatasetError
from nnpipe.core.messages import suggest_name

COMMA = ","
_OTHERS = ";\t|"
_WITH_COMMA = re.compile(r"\s*[+-]?\d*,\d+([eE][+-]?\d+)?\s*")
_WITH_POINT = re.compile(r"\s*[+-]?\d*\.\d+([eE][+-]?\d+)?\s*")


def infer_delimiter(first: str, second: str = "") -> str:
    """Return what separates the cells of a table, given its first two lines: a comma, a semicolon,
    a tab or a bar.

    Both lines must have as many cells, for names of columns and numbers may hold commas.

    Examples
    --------
    >>> infer_delimiter("age;price, net", "31;2,50")
    ';'
    >>> infer_delimiter("power|kW,price", "31,2.50")
    ','
    """
    split = [delimiter for delimiter in (*_OTHERS, COMMA) if len(split_cells(first, delimiter)) > 1]
    fitting = (
        each for each in split if len(split_cells(second, each)) == len(split_cells(first, each))
    )
    # Without one that fits both lines, the message about the second names the cells that are too
    # many or too few.
    return next(fitting, COMMA if COMMA in split or not split else split[0])


def split_cells(line: str, delimiter: str) -> list[str]:
    """Return the cells of a line; none if it is no line of a table."""
    try:
        return next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error:  # a NUL, or a cell that is too long
        return []


class DecimalMarks:
    """The decimal marks of a table's columns: where cells are not separated by commas, numbers may
    have commas.

    A column with commas and with points is refused, since one of them groups the thousands:
    ``1.234`` beside ``1,5`` is more than a thousand.
    """

    def __init__(self, path: Path, delimiter: str) -> None:
        self._path, self._delimiter = path, delimiter
        self._marks: dict[str, tuple[str, str]] = {}

    def normalize(self, column: str, cell: str) -> str:
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
                f"{self._path}: column {column[:80]!r} holds {example[:40]!r} and {cell[:40]!r}: "
                f"write decimals alike, "
                "and thousands without a mark"
            )
        return cell.replace(",", ".")

    def numbers(
        self, lines: Sequence[str], places: Sequence[int], names: Sequence[str]
    ) -> npt.NDArray[np.float32]:
        """Return columns of some lines, ``(rows, columns)``; raise :class:`ValueError` if a cell
        is no number.
        """
        rows = [row for row in csv.reader(lines, delimiter=self._delimiter) if row]
        if any(len(row) != len(names) for row in rows):
            raise ValueError("a row has another number of cells")
        found = [
            [float(self.normalize(names[place], row[place])) for place in places] for row in rows
        ]
        with np.errstate(over="ignore"):
            return np.array(found, np.float32).reshape(-1, len(places))


_BLOCK = 4 << 20  # characters of text at once; as lines of Python they take several times as much
_LONGEST_LINE = 1 << 20
_MOST_BYTES = 1 << 36
_UNNAMED = "Unnamed: "  # as pandas calls such columns, with their numbers behind
_SHORTEST = 8  # characters of a line of names that may begin like that of spreadsheet programs
_WIDE = ("\\xff\\xfe", "\\xfe\\xff")  # the first bytes of UTF-16, which are none of UTF-8


def read_header_names(path: Path) -> tuple[str, ...]:
    """Return the names in the first line of a CSV file.

    Raises
    ------
    DatasetError
        If the file cannot be read, or the first line has no names, or one twice.
    """
    with _open_table(path) as file:
        return _read_header(path, file)[0]


def read_column_names(path: Path) -> tuple[str, ...]:
    """Return the columns of a CSV file that have names of their own; raises as
    :func:`read_header_names`.
    """
    return tuple(name for name in read_header_names(path) if not is_unnamed(name))


def read_delimiter(path: Path) -> str:
    """Return what separates the cells of a CSV file; raises as :func:`read_header_names`."""
    with _open_table(path) as file:
        return _read_header(path, file)[1]


def read_numbers(path: Path, columns: Sequence[str]) -> npt.NDArray[np.float32]:
    """Return columns of a CSV file whose first line has their names, ``(rows, columns)`` float32.

    The memory in use is that of the result and of a few megabytes of text.

    Raises
    ------
    DatasetError
        If a column is missing, or a cell is no finite number; the message says where.
    """
    with _open_table(path) as file:
        names, delimiter = _read_header(path, file)
        marks = DecimalMarks(path, delimiter)
        for column in columns:
            if column not in names:
                raise DatasetError(
                    f"{path} has no column {column!r}{suggest_name(column, names)}; it has: "
                    f"{', '.join(names)}"
                )
        places = [names.index(column) for column in columns]
        # Growing by doubling would hold three times the result for a moment.
        rows, parts, line = 0, [], 2
        for lines in _iter_blocks(path, file):
            part = _parse_numbers(path, lines, line, places, names, delimiter, marks)
            parts.append(part)
            rows += len(part)
            line += len(lines)
    if not rows:
        raise DatasetError(f"{path} has names of columns, and no rows")
    found = np.empty((rows, len(columns)), np.float32)
    start = 0
    parts.reverse()
    while parts:
        part = parts.pop()
        found[start : start + len(part)] = part
        start += len(part)
    return found


def read_blocks(path: Path) -> Iterator[list[str]]:
    """Yield the lines of a file from the first one on, some megabytes at once.

    Raises
    ------
    DatasetError
        If the file cannot be read, or a line is too long.
    """
    with _open_table(path) as file:
        yield from _iter_blocks(path, file)


def _iter_blocks(path: Path, file: TextIO) -> Iterator[list[str]]:
    """Yield the lines of a file, some megabytes at once; a file without line ends is not read as
    a whole.
    """
    rest = ""
    while block := file.read(_BLOCK):
        lines = (rest + block).splitlines()
        rest = "" if block.endswith(("\n", "\r")) else lines.pop()
        if len(rest) > _LONGEST_LINE:
            raise DatasetError(
                f"{path} has a line of more than {_LONGEST_LINE:,} characters; it is no table"
            )
        if lines:
            yield lines
    if rest:
        yield [rest]


def _open_table(path: Path) -> TextIO:
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise DatasetError(f"{path} has more than {_MOST_BYTES >> 30} GiB")
        # Bytes of other encodings stay different, and names of columns can be shown.
        return open(path, newline="", encoding="utf-8-sig", errors="backslashreplace")
    except OSError as error:
        raise DatasetError(f"{path} cannot be read: {error.strerror or error}") from None


def _read_header(path: Path, file: TextIO) -> tuple[tuple[str, ...], str]:
    """Return the names of the columns, and what separates cells."""
    first = file.readline(_LONGEST_LINE)
    if len(first) == _LONGEST_LINE:
        raise DatasetError(
            f"{path}: the first line has more than {_LONGEST_LINE:,} characters; it is no table"
        )
    if first.startswith(_WIDE):
        raise DatasetError(f"{path} is written in UTF-16: save it as UTF-8")
    with _open_table(path) as again:
        _, second = again.readline(_LONGEST_LINE), again.readline(_LONGEST_LINE)
        delimiter = infer_delimiter(first, second)
        if len(first.strip()) < _SHORTEST and first.lower().startswith("sep="):
            raise DatasetError(
                f"{path}: its first line, {first.strip()}, is for a spreadsheet program; remove it"
            )
    held = [name.strip() for name in split_cells(first, delimiter)]
    _check_header(path, held, split_cells(second, delimiter), delimiter)
    names = tuple(name or f"{_UNNAMED}{place}" for place, name in enumerate(held))
    if not any(held) or len(set(names)) < len(names):
        raise DatasetError(f"{path}: the first line must have a name for each column, no two alike")
    return names, delimiter


def is_unnamed(column: str) -> bool:
    """Return whether a column has no name of its own, such as the index of a table that pandas
    wrote.
    """
    return column.startswith((_UNNAMED, "__index_level_"))


def _check_header(path: Path, names: Sequence[str], row: Sequence[str], delimiter: str) -> None:
    """Raise :class:`DatasetError` if the first line is a row: wherever the next one has a
    number, it has one, too.
    """
    pairs = [
        pair
        for pair in zip(names, row, strict=False)
        if _parse_number(pair[1], delimiter) is not None
    ]
    named = [name for name in names if name]
    counted = [[str(number) for number in range(first, first + len(pairs))] for first in (0, 1)]
    if (
        not pairs
        or any(_parse_number(name, delimiter) is None for name, _ in pairs)
        or named[: len(pairs)] in counted
    ):
        return
    raise DatasetError(
        f"{path}: the first line holds {names[0][:40]!r} and other numbers, and no names of "
        f"columns: put a line with "
        "the names of all columns before it; if these are the names, put a letter before each"
    )


def _parse_number(cell: str, delimiter: str) -> float | None:
    try:
        return float(cell if delimiter == COMMA else cell.replace(COMMA, "."))
    except ValueError:
        return None


def _parse_numbers(
    path: Path,
    lines: list[str],
    first: int,
    places: Sequence[int],
    names: Sequence[str],
    delimiter: str,
    marks: DecimalMarks,
) -> npt.NDArray[np.float32]:
    try:
        if delimiter != COMMA:
            found = marks.numbers(lines, places, names)
        else:
            with np.errstate(over="ignore"):  # such numbers are refused
                found = np.loadtxt(
                    lines,
                    np.float32,
                    comments=None,
                    delimiter=",",
                    usecols=places,
                    ndmin=2,
                    quotechar='"',
                )
        if np.isfinite(found).all():
            return found
    except (ValueError, IndexError):
        pass
    raise DatasetError(f"{path}, {_describe_first_fault(lines, first, places, names, delimiter)}")


def _describe_first_fault(
    lines: list[str], first: int, places: Sequence[int], names: Sequence[str], delimiter: str
) -> str:
    for number, line in enumerate(lines, first):
        row = split_cells(line, delimiter)
        if not row:
            continue
        if len(row) != len(names):
            return f"line {number}: {len(row)} cells, and there are {len(names)} columns"
        for place in places:
            value = _parse_number(row[place], delimiter)
            if value is None or not abs(value) <= float(np.finfo(np.float32).max):
                return (
                    f"line {number}: {row[place][:40]!r} in column {names[place]} is no number; "
                    f"fill gaps, and "
                    "choose columns of numbers with --columns or --inputs"
                )
    return f"line {first} or one behind it cannot be read as numbers"
