"""The writer of a report's pictures as files."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from nnpipe.core.files import write_bytes
from nnpipe.report.document import Cell, Document, Table, Tiles
from nnpipe.report.drawing.pictures import Pictures

ImageFormat = Literal["svg", "png"]


def write_pictures(
    document: Document,
    path: Path,
    image_folder: str | Path | None,
    root_dir: str | Path | None,
    image_format: ImageFormat,
    pictures: Pictures | None,
) -> dict[str, str]:
    """Write the pictures of a report, and return their paths.

    Parameters
    ----------
    document
        The report.
    path
        The path of the report's text; names of pictures start with the name of this file.
    image_folder
        The folder for pictures; by default ``img`` beside the file.
    root_dir
        The folder that the returned paths are relative to; by default that of the file.
    image_format
        ``"svg"`` or ``"png"``.
    pictures
        A renderer that is shared with other writers, so that no picture is drawn twice.

    Returns
    -------
    dict
        The paths of the pictures, with slashes, by plot name.

    Raises
    ------
    MissingDependency
        If pictures are to be PNG and matplotlib is not installed.
    """
    folder = Path(image_folder) if image_folder is not None else path.parent / "img"
    root = Path(root_dir) if root_dir is not None else path.parent
    pictures = pictures or Pictures()
    stem = re.sub(r"[^A-Za-z0-9_-]+", "-", path.stem).strip("-") or "report"
    places = {}
    for figure in document.figures():
        place = folder / f"{stem}-{figure.name}.{image_format}"
        write_bytes(
            place,
            pictures.render_svg(figure).encode("utf-8")
            if image_format == "svg"
            else pictures.render_png(figure),
        )
        places[figure.name] = Path(os.path.relpath(place, root)).as_posix()
    return places


_WIDE = 8  # greatest number of columns that fit on a page


def list_page_rows(table: Table) -> tuple[list[tuple[Cell, ...]], bool]:
    """Return the rows of a table with the header first, and whether the table was transposed.

    A table of many columns and few rows is transposed.
    """
    rows = [tuple(Cell(text) for text in table.header), *table.cells()]
    if len(rows) <= _WIDE < len(table.header):
        return list(zip(*rows, strict=True)), True
    return rows, False


def format_cell_line(cell: Cell, escaped: Callable[[str], str]) -> str:
    """Return a cell as one line: bold (in RST and Markdown alike) if it is the best, with its
    note in brackets.
    """
    text, note = escaped(cell.text), escaped(cell.note)
    if cell.best and text:
        text = f"**{text}**"
    return f"{text} ({note})" if note and text else text or note


def as_table(tiles: Tiles) -> Table:
    """Return the most important figures as a table of two columns."""
    rows = tuple((tile.label, Cell(tile.value, note=tile.note)) for tile in tiles.items)
    return Table(("Figure", "Value"), rows)
