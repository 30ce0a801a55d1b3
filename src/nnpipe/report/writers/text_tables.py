"""What reports as text share: how tables fit on a page of lines, whatever marks their cells."""

from __future__ import annotations

from collections.abc import Callable

from nnpipe.report.document import Cell, Table, Tiles

_WIDE = 8  # columns, of which more do not fit on a page


def rows_on_page(table: Table) -> tuple[list[tuple[Cell, ...]], bool]:
    """Return the rows of a table, its header first, and whether they are its columns.

    A table of many columns and few rows is turned.
    """
    rows = [tuple(Cell(text) for text in table.header), *table.cells()]
    if len(rows) <= _WIDE < len(table.header):
        return list(zip(*rows, strict=True)), True
    return rows, False


def cell_on_line(cell: Cell, escaped: Callable[[str], str]) -> str:
    """Return a cell as one line: bold (in RST and Markdown alike) where it is the best, its note in brackets."""
    text, note = escaped(cell.text), escaped(cell.note)
    if cell.best and text:
        text = f"**{text}**"
    return f"{text} ({note})" if note and text else text or note


def as_table(tiles: Tiles) -> Table:
    """Return the figures that matter most as a table of two columns."""
    rows = tuple((tile.label, Cell(tile.value, note=tile.note)) for tile in tiles.items)
    return Table(("Figure", "Value"), rows)
