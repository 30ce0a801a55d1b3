"""The writer of a report as Markdown for GitHub and GitLab, with pictures as files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from nnpipe.core.files import write_text
from nnpipe.core.foreign_text import escape_html
from nnpipe.report.document import (
    Block,
    Cell,
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

_SPECIAL = frozenset("\\`*_[]<>&|~$#!")
_OPENING = re.compile(r"[-+=]|\d+(?=[.)])")  # what starts a list, a rule or an underline
_ALERTS = {"note": "NOTE", "warning": "WARNING"}


def write_markdown(
    document: Document,
    path: str | Path,
    image_folder: str | Path | None = None,
    root_dir: str | Path | None = None,
    *,
    image_format: ImageFormat = "svg",
    pictures: Pictures | None = None,
) -> None:
    """Write a document as Markdown, and its pictures as files.

    Parameters are those of :func:`~nnpipe.report.writers.rst.write_rst`.

    Raises
    ------
    MissingDependency
        If pictures are to be PNG and matplotlib is not installed.
    """
    places = write_pictures(document, Path(path), image_folder, root_dir, image_format, pictures)
    # The text is written last, so that it never names a picture that does not exist yet.
    write_text(path, to_markdown(document, places))


def to_markdown(document: Document, places: dict[str, str]) -> str:
    """Return a document as GitHub Flavored Markdown; ``places`` holds the paths of the pictures
    by plot name.
    """
    return "\n".join(_render_document(document, places)) + "\n"


def escape_markdown(text: str, limit: int = 1000) -> str:
    """Return text from outside as one escaped line of Markdown, which has no effect other than
    showing this text.
    """
    line = clean(text, limit)
    result = []
    for place, letter in enumerate(line):
        before, after = line[max(0, place - 4) : place], line[place + 1 : place + 2]
        # A colon may start an address or an emoji, except in a time of day; the dot after "www" may
        # start an address.
        colon = (
            letter == ":"
            and after not in ("", " ")
            and not (before[-1:].isdecimal() and after.isdecimal())
        )
        dot = letter == "." and before[-3:].lower() == "www"
        result.append("\\" + letter if letter in _SPECIAL or colon or dot else letter)
    found = _OPENING.match(line)
    if found:
        # To prevent a list, the dot after a number is escaped, or the sign itself.
        place = found.end() if line[0].isdecimal() else 0
        result[place] = "\\" + line[place]
    return "".join(result)


def _render_document(document: Document, places: dict[str, str]) -> Iterator[str]:
    yield from (f"# {escape_markdown(document.title, 200) or 'Report'}", "")
    if document.subtitle:
        yield from (escape_markdown(document.subtitle), "")
    for section in document.sections:
        yield from _render_section(section, 2, places)


def _render_section(section: Section, level: int, places: dict[str, str]) -> Iterator[str]:
    yield from (f"{'#' * min(level, 6)} {escape_markdown(section.title, 200) or 'Untitled'}", "")
    for block in section.blocks:
        yield from _render_block(block, level, places)


def _render_block(block: Block, level: int, places: dict[str, str]) -> Iterator[str]:
    if isinstance(block, Section):
        yield from _render_section(block, level + 1, places)
    elif isinstance(block, Table):
        yield from _render_table(block)
    elif isinstance(block, Tiles):
        yield from _render_table(as_table(block))
    elif isinstance(block, Plot):
        yield from (
            f"![{escape_markdown(block.alt) or block.name}](<{quote(places[block.name])}>)",
            "",
        )
        yield from (escape_markdown(block.caption), "")
    elif isinstance(block, CommandLine) and (text := clean(block.text, 4000)):
        fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
        yield from (fence, text, fence, "")
    elif isinstance(block, Paragraph) and (text := escape_markdown(block.text, 4000)):
        if block.tone in _ALERTS:
            yield from (f"> [!{_ALERTS[block.tone]}]", f"> {text}", "")
        else:
            yield from (text, "")


def _render_table(table: Table) -> Iterator[str]:
    rows, turned = list_page_rows(table)
    numeric = [
        turned or any(cell.value is not None for cell in column)
        for column in zip(*rows, strict=True)
    ]
    caption = clean(table.caption)
    if table.folded:
        yield from ("<details>", f"<summary>{escape_html(caption) or 'Table'}</summary>", "")
    elif caption:
        yield from (escape_markdown(caption), "")
    yield _render_row(rows[0])
    yield (
        "|"
        + "|".join(
            " ---: " if number and place else " --- " for place, number in enumerate(numeric)
        )
        + "|"
    )
    yield from (_render_row(row) for row in rows[1:])
    yield ""
    if table.folded:
        yield from ("</details>", "")


def _render_row(cells: tuple[Cell, ...]) -> str:
    return "| " + " | ".join(format_cell_line(cell, escape_markdown) for cell in cells) + " |"
