"""The writer of a report as reStructuredText, with pictures as files."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path

from nnpipe.core.files import write_text
from nnpipe.report.document import (
    Block,
    CommandLine,
    Document,
    Paragraph,
    Plot,
    Section,
    Table,
    Tiles,
)
from nnpipe.report.drawing.pictures import Pictures
from nnpipe.report.formatting import clean
from nnpipe.report.writers.picture_files import (
    ImageFormat,
    as_table,
    format_cell_line,
    list_page_rows,
    write_pictures,
)

_UNDERLINES = "=-~^"
# An underscore inside a word has no effect; a colon may start an address or a role, except in a
# time of day.
_SPECIAL = re.compile(
    r"[\\*`|<@] | (?<![a-zA-Z0-9])_ | _(?![a-zA-Z0-9]) | :(?!\ ) (?!(?<=\d:)\d)", re.VERBOSE
)
_ENUMERATOR = re.compile(r"\(?(\w+|#)[.)](\s|$)")
_NO_ELEMENTS = str.maketrans("<>", "\u2039\u203a")
_DIRECTIVES = {"note": "note", "warning": "warning"}


def write_rst(
    document: Document,
    path: str | Path,
    image_folder: str | Path | None = None,
    root_dir: str | Path | None = None,
    *,
    image_format: ImageFormat = "svg",
    pictures: Pictures | None = None,
) -> None:
    """Write a document as RST, and its pictures as files.

    Parameters
    ----------
    document
        The document to write.
    path
        The RST file.
    image_folder
        The folder for pictures; by default ``img`` beside the file.  Their names start with the
        file's name.
    root_dir
        The folder that picture paths in the RST are relative to; by default the file's own.
    image_format
        ``"svg"`` or ``"png"``.
    pictures
        A renderer that is shared with other writers, so that no picture is drawn twice.

    Raises
    ------
    MissingDependency
        If pictures are to be PNG and matplotlib is not installed.
    """
    places = write_pictures(document, Path(path), image_folder, root_dir, image_format, pictures)
    # The text is written last, so that it never names a picture that does not exist yet.
    write_text(path, to_rst(document, places))


def to_rst(document: Document, places: dict[str, str]) -> str:
    """Return a document as RST; ``places`` holds the paths of the pictures by plot name."""
    return "\n".join(_render_document(document, places)) + "\n"


def escape_rst(text: str, limit: int = 1000) -> str:
    """Return text from outside as one escaped line of RST, which has no effect other than
    showing this text.
    """
    line = clean(text, limit)
    if not line:
        return ""
    result = _SPECIAL.sub(r"\\\g<0>", line)
    if line[0] == "\\":
        # Backslashes alone would be a transition; an escaped space before them is not shown.
        return "\\ " + result
    if result[0] == line[0] and (not line[0].isalnum() or _ENUMERATOR.match(line)):
        return "\\" + result
    return result


def _render_document(document: Document, places: dict[str, str]) -> Iterator[str]:
    title = escape_rst(document.title, 200) or "Report"
    line = "=" * _count_columns(title)
    yield from (line, title, line, "")
    if document.subtitle:
        yield from (escape_rst(document.subtitle), "")
    yield from (".. contents::", "   :depth: 2", "   :backlinks: none", "")
    for section in document.sections:
        yield from _render_section(section, 0, places)


def _render_section(section: Section, depth: int, places: dict[str, str]) -> Iterator[str]:
    title = escape_rst(section.title, 200) or "Untitled"
    yield from (title, _UNDERLINES[depth] * _count_columns(title), "")
    for block in section.blocks:
        yield from _render_block(block, depth, places)


def _render_block(block: Block, depth: int, places: dict[str, str]) -> Iterator[str]:
    if isinstance(block, Section):
        yield from _render_section(block, depth + 1, places)
    elif isinstance(block, Table):
        yield from _render_table(block)
    elif isinstance(block, Tiles):
        yield from _render_table(as_table(block))
    elif isinstance(block, Plot):
        yield f".. figure:: {_escape_path(places[block.name])}"
        # docutils shows this option as it stands, so nothing in it can be escaped.
        yield f"   :alt: {clean(block.alt).translate(_NO_ELEMENTS) or block.name}"
        yield from ("", f"   {escape_rst(block.caption)}", "")
    elif isinstance(block, CommandLine) and (text := clean(block.text, 4000)):
        yield from ("::", "", f"   {text}", "")
    elif isinstance(block, Paragraph) and (text := escape_rst(block.text, 4000)):
        if block.tone in _DIRECTIVES:
            yield from (f".. {_DIRECTIVES[block.tone]}::", "", f"   {text}", "")
        else:
            yield from (text, "")


def _render_table(table: Table) -> Iterator[str]:
    rows, turned = list_page_rows(table)
    # The cells of a list table can hold any text; a drawn table would have to be as wide as the
    # longest text.
    yield f".. list-table:: {escape_rst(table.caption)}".rstrip()
    yield from (
        "   :header-rows: 1",
        *(["   :stub-columns: 1"] if turned else []),
        "   :widths: auto",
        "",
    )
    for row in rows:
        for place, cell in enumerate(row):
            yield f"   {'*' if place == 0 else ' '} - {format_cell_line(cell, escape_rst)}".rstrip()
    yield ""


def _escape_path(path: str) -> str:
    return re.sub(r"([\\\s])", r"\\\1", path)


def _count_columns(text: str) -> int:
    """Return the number of terminal columns of a line, at least 3; wide letters take two
    columns.
    """
    return max(3, sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text))
