"""Tables as text for a terminal, and as HTML for a notebook."""

from __future__ import annotations

from collections.abc import Iterable

from nnpipe.core.foreign_text import escape_html
from nnpipe.report.document import Table
from nnpipe.report.formatting import clean

_GAP = "  "


def to_text(table: Table) -> str:
    """Return a table as text with aligned columns: the first one to the left, the others to the
    right.

    Notes below cells are left out; the best value of a column has a ``*``.
    """
    rows = [
        tuple(map(clean, table.header)),
        *(tuple(clean(cell.text) + "*" * cell.best for cell in row) for row in table.cells()),
    ]
    # Stars are to the right of the column, so that the digits of all rows are aligned.
    padded = [[text if text.endswith("*") else text + " " for text in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*padded, strict=True)]
    lines = [
        _GAP.join(
            text.ljust(width) if place == 0 else text.rjust(width)
            for place, (text, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in padded
    ]
    return "\n".join(line.rstrip() for line in lines)


def format_html_table(table: Table, caption: str, sentences: Iterable[str] = ()) -> str:
    """Return a table as HTML, with sentences below it."""
    head = "".join(f"<th>{escape_html(name)}</th>" for name in table.header)
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape_html(cell.text)}</td>" for cell in row) + "</tr>"
        for row in table.cells()
    )
    told = "".join(f"<p>{escape_html(each)}</p>" for each in sentences)
    return f"<table><caption>{escape_html(caption)}</caption><tr>{head}</tr>{rows}</table>{told}"
