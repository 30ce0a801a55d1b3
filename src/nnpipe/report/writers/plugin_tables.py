"""Tables and texts from untrusted files as safe HTML."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

from nnpipe.core.bounded_json import parse_json
from nnpipe.core.foreign_text import harmless, html_text
from nnpipe.report.formatting import clean
from nnpipe.report.inputs.plugin_files import OutputFile, separator

_MOST_ROWS, _MOST_COLUMNS, _MOST_LETTERS = 200, 50, 300
_WIDE_TABLE = 4  # tables with more columns than this need the whole width of the page


def rows_of(file: OutputFile, text: str) -> list[list[Any]] | None:
    """Return the rows of a table file or of a JSON list of objects, with the header; ``None`` for other files."""
    if file.kind == "table":
        try:
            reader = csv.reader(io.StringIO(safe(text)), delimiter=separator(file.name))
            return [row for _, row in zip(range(_MOST_ROWS + 2), reader, strict=False)] or None
        except csv.Error:
            return None
    if file.kind != "json":
        return None
    try:
        found = parse_json(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, list) or not found or not all(isinstance(item, dict) for item in found):
        return None
    names = list(dict.fromkeys(name for item in found[: _MOST_ROWS + 1] for name in item))
    return [names, *([item.get(name, "") for name in names] for item in found[: _MOST_ROWS + 1])]


def table_of(rows: list[list[Any]]) -> tuple[str, bool]:
    """Return a table as HTML with its first row as the header, and whether it needs the whole width of the page."""
    columns = max(map(len, rows))
    shown = []
    if len(rows) > _MOST_ROWS + 1:
        shown.append(f"the first {_MOST_ROWS} rows")
    if columns > _MOST_COLUMNS:
        shown.append(f"the first {_MOST_COLUMNS} columns")
    numeric = [
        all(_is_number(row[place]) for row in rows[1:] if place < len(row) and row[place] != "")
        for place in range(min(columns, _MOST_COLUMNS))
    ]

    def line(row: list[Any], tag: str) -> str:
        cells = [*row[:_MOST_COLUMNS], *[""] * (min(columns, _MOST_COLUMNS) - len(row))]
        return "<tr>" + "".join(
            f'<{tag}{" class=number" if number else ""}>{html_text(clean(_told(cell), _MOST_LETTERS))}</{tag}>'
            for cell, number in zip(cells, numeric, strict=True)
        ) + "</tr>"  # fmt: skip

    body = "\n".join(line(row, "td") for row in rows[1 : _MOST_ROWS + 1])
    note = f'<p class="note">{" and ".join(shown)}</p>' if shown else ""
    table = f"<table><thead>{line(rows[0], 'th')}</thead><tbody>\n{body}</tbody></table>"
    return f'{note}<div class="scroll" tabindex="0">{table}</div>', columns > _WIDE_TABLE


def _told(value: Any) -> str:
    try:
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    except RecursionError:
        return "…"


def _is_number(value: Any) -> bool:
    if isinstance(value, str):
        try:
            float(value)
        except ValueError:
            return False
        return True
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def safe(text: str) -> str:
    """Return the text of a file made harmless, whichever line ends it has."""
    return harmless(text.replace("\r\n", "\n").replace("\r", "\n"))
