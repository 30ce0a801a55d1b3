"""Results as a notebook shows them."""

from __future__ import annotations

from collections.abc import Iterable

from nnpipe.core.foreign_text import escape_html
from nnpipe.report.document import Table


def format_html_table(table: Table, caption: str, sentences: Iterable[str] = ()) -> str:
    """Return a table as HTML, with sentences below it."""
    head = "".join(f"<th>{escape_html(name)}</th>" for name in table.header)
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape_html(cell.text)}</td>" for cell in row) + "</tr>"
        for row in table.cells()
    )
    told = "".join(f"<p>{escape_html(each)}</p>" for each in sentences)
    return f"<table><caption>{escape_html(caption)}</caption><tr>{head}</tr>{rows}</table>{told}"
