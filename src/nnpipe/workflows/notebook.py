"""Results as a notebook shows them."""

from __future__ import annotations

from collections.abc import Iterable

from nnpipe.core.foreign_text import html_text
from nnpipe.report.document import Table


def shown_table(table: Table, caption: str, sentences: Iterable[str] = ()) -> str:
    """Return a table as HTML, with sentences below it."""
    head = "".join(f"<th>{html_text(name)}</th>" for name in table.header)
    rows = "".join(
        "<tr>" + "".join(f"<td>{html_text(cell.text)}</td>" for cell in row) + "</tr>"
        for row in table.cells()
    )
    told = "".join(f"<p>{html_text(each)}</p>" for each in sentences)
    return f"<table><caption>{html_text(caption)}</caption><tr>{head}</tr>{rows}</table>{told}"
