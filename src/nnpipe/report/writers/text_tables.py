"""The preparation of tables for reports as text: RST and Markdown."""

from __future__ import annotations

from collections.abc import Callable

from nnpipe.report.document import Cell, Table, Tiles

_WIDE = 8  # greatest number of columns that fit on a page


def rows_on_page(table: Table) -> tuple[list[tuple[Cell, ...]], bool]:
    """Return the rows of a table with the header first, and whether the table was transposed.

    A table of many columns and few rows is transposed.
    """
    rows = [tuple(Cell(text) for text in table.header), *table.cells()]
    if len(rows) <= _WIDE < len(table.header):
        return list(zip(*rows, strict=True)), True
    return rows, False


def cell_on_line(cell: Cell, escaped: Callable[[str], str]) -> str:
    """Return a cell as one line: bold (in RST and Markdown alike) if it is the best, with its note in brackets."""
    text, note = escaped(cell.text), escaped(cell.note)
    if cell.best and text:
        text = f"**{text}**"
    return f"{text} ({note})" if note and text else text or note


def as_table(tiles: Tiles) -> Table:
    """Return the most important figures as a table of two columns."""
    rows = tuple((tile.label, Cell(tile.value, note=tile.note)) for tile in tiles.items)
    return Table(("Figure", "Value"), rows)
