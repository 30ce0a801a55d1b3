"""Records of texts from files: lines, JSON objects, and tables."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from itertools import chain, islice
from pathlib import Path
from typing import Any

from nnpipe.core.bounded_json import parse_json
from nnpipe.core.errors import DatasetError
from nnpipe.core.naming import nearest
from nnpipe.datasets._table_format import delimiter_of

ENDINGS = (".txt", ".jsonl", ".csv")
_MOST_BYTES = 1 << 30
_MOST_RECORDS = 10_000_000
_LONGEST = 1 << 22  # characters of one line

Record = Mapping[str, Any]


def read_records(path: Path, line: str) -> list[tuple[str, Record]]:
    """Return the records of a file, each with its place for messages.

    Parameters
    ----------
    path
        A file whose name ends in ``.txt`` (each line that is not empty is a record), ``.jsonl`` (each line is a JSON
        object) or ``.csv`` (the first line has the names of the columns).
    line
        The name that a line of a text file gets in its record.

    Raises
    ------
    DatasetError
        If the file is missing, damaged, too large or empty; the message names the line.
    """
    readers = {".txt": _lines, ".jsonl": _objects, ".csv": _rows}
    reader = readers.get(path.suffix.lower())
    if reader is None or not path.is_file():
        raise DatasetError(f"{path} is no file with texts; its name should end in {', '.join(ENDINGS)}")
    found = []
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise DatasetError(f"{path} has more than {_MOST_BYTES >> 30} GiB")
        for place, record in reader(path, line):
            found.append((f"{path}, line {place}", record))
            if len(found) > _MOST_RECORDS:
                raise DatasetError(f"{path} has more than {_MOST_RECORDS:,} records")
    except (OSError, UnicodeDecodeError) as error:
        raise DatasetError(f"{path} cannot be read as UTF-8: {error}") from None
    if not found:
        raise DatasetError(f"{path} has no texts")
    return found


def text_in(record: Record, name: str, place: str) -> str:
    """Return a text of a record; numbers and truth values are written out.

    Raises
    ------
    DatasetError
        If there is none of this name, or it is a list or an object.
    """
    if name not in record:
        raise DatasetError(
            f"{place}: has no {name!r}{nearest(name, record)}; it has: {', '.join(map(str, record))[:200]}"
        )
    value = record[name]
    if isinstance(value, str):
        return value
    if isinstance(value, (int, float)):
        return json.dumps(value)
    raise DatasetError(f"{place}: {name!r} should be a text, not {type(value).__name__}")


def _numbered(path: Path) -> Iterator[tuple[int, str]]:
    with open(path, encoding="utf-8-sig", newline="") as file:
        number = 0
        while line := file.readline(_LONGEST + 1):
            number += 1
            if len(line) > _LONGEST:
                raise DatasetError(f"{path}, line {number}: longer than {_LONGEST:,} characters")
            yield number, line


def _lines(path: Path, name: str) -> Iterator[tuple[int, Record]]:
    for number, line in _numbered(path):
        if text := line.strip("\r\n"):
            yield number, {name: text}


def _objects(path: Path, _: str) -> Iterator[tuple[int, Record]]:
    for number, line in _numbered(path):
        if not line.strip():
            continue
        try:
            found = parse_json(line)
        except (ValueError, RecursionError) as error:
            raise DatasetError(f"{path}, line {number}: no JSON: {error}") from None
        if not isinstance(found, dict):
            raise DatasetError(f'{path}, line {number}: should be an object, such as {{"prompt": "..."}}')
        yield number, found


def _rows(path: Path, _: str) -> Iterator[tuple[int, Record]]:
    lines = (line for _, line in _numbered(path))
    first = list(islice(lines, 2))
    rows = csv.reader(chain(first, lines), delimiter=delimiter_of(*first) if first else ",")
    try:
        header = [name.strip() for name in next(rows, [])]
        if not header or "" in header or len(set(header)) < len(header):
            raise DatasetError(f"{path}: the first line must have a name for each column, no two alike")
        for row in rows:
            if row and len(row) != len(header):
                raise DatasetError(
                    f"{path}, line {rows.line_num}: {len(row)} cells, and there are {len(header)} columns"
                )
            if row:
                yield rows.line_num, dict(zip(header, row, strict=True))
    except csv.Error as error:
        raise DatasetError(f"{path}, line {rows.line_num}: no CSV: {error}") from None
