"""Formatting of the content of a storage as tables."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence

from nnpipe.report.document import Cell, Table
from nnpipe.report.formatting import clean
from nnpipe.report.writers.terminal import to_text
from nnpipe.storage.store import Entry


def format_shelves_table(entries: Mapping[str, Sequence[Entry]]) -> str:
    """Return a table of the number of files and bytes on each shelf."""
    rows = [
        (name, f"{len(found):,}", f"{sum(each.size for each in found):,}")
        for name, found in entries.items()
    ]
    return _format_table(("shelf", "files", "bytes"), rows)


def format_files_table(entries: Sequence[Entry]) -> str:
    """Return a table of files with their sizes and times of publication, or a line if there are
    none.
    """
    if not entries:
        return "no files"
    rows = [(clean(each.name), f"{each.size:,}", _format_time(each.changed)) for each in entries]
    return _format_table(("name", "bytes", "published (UTC)"), rows)


def _format_time(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).strftime(
        "%Y-%m-%d %H:%M:%S"
    )


def _format_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return to_text(Table(tuple(header), tuple(tuple(Cell(text) for text in row) for row in rows)))
