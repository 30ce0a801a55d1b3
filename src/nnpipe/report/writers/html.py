"""The writer of a report as one HTML page, which needs no network and no other file.

The template engine escapes everything that comes from a result file.  In
addition, the page's content security policy forbids browsers to load anything,
and to run any script except the one whose hash it contains.
"""

from __future__ import annotations

import base64
import hashlib
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from nnpipe.core.errors import MissingDependency
from nnpipe.core.files import write_text
from nnpipe.report.document import Block, Document, Plot, Section, Table
from nnpipe.report.drawing.pictures import Pictures
from nnpipe.report.formatting import clean

_TEMPLATES = Path(__file__).parent / "templates"
_NARROW = 5  # tables with at most this number of columns are shown side by side
# with more folded parts than this, each is compressed, so that browsers only build those that are
# opened
_FOLDS = 60
_LONG = 12  # words with more letters than this may be broken
_BREAKS = re.compile(r"(?<=[._/:=\-])(?=\w)|(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def write_html(document: Document, path: str | Path, *, pictures: Pictures | None = None) -> None:
    """Write a document as one HTML page with its pictures inside.

    Parameters
    ----------
    document
        The document to write.
    path
        The HTML file.
    pictures
        A renderer that is shared with other writers, so that no picture is drawn twice.

    Raises
    ------
    MissingDependency
        If Jinja2 is not installed.
    """
    write_text(path, to_html(document, pictures))


def to_html(document: Document, pictures: Pictures | None = None) -> str:
    """Return a document as the content of an HTML page.

    Raises
    ------
    MissingDependency
        If Jinja2 is not installed.
    """
    try:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined
        from markupsafe import Markup
    except ImportError:
        raise MissingDependency(
            "HTML needs Jinja2, which is not installed: pip install 'nnpipe[report]'"
        ) from None

    def clean_value(value: Any) -> Any:
        return clean(value, 4000) if type(value) is str else value

    # finalize gets every expression before it is escaped, and replaces characters that cannot be
    # encoded.
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES, encoding="utf-8"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=clean_value,
    )
    pictures = pictures or Pictures()

    def render_picture(figure: Plot) -> Markup:
        return Markup(pictures.render_inline(figure))

    style, script = (
        (_TEMPLATES / name).read_text("utf-8").strip() for name in ("report.css", "report.js")
    )
    script = f"\n{script}\n"
    digest = base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
    return environment.get_template("report.html").render(
        title=document.title,
        subtitle=document.subtitle,
        parts=_create_page_sections(
            document.sections, set(), 2, _count_folded(document.sections) > _FOLDS
        ),
        picture=render_picture,
        numeric=_find_numeric_columns,
        breakable=lambda text: Markup("<wbr>").join(_split_at_breaks(clean_value(text))),
        style=Markup(f"\n{style}\n"),
        script=Markup(script),
        digest=digest,
        packed=lambda text: Markup(_compress(text)),
    )


@dataclass(frozen=True)
class PageSection:
    """A section in the form that the template needs, with an anchor of its own and its blocks in
    groups.

    A group is a kind with blocks: ``figures``, ``small figures`` and ``tables`` are shown side by
    side, ``part`` holds sections, and other groups hold single blocks.
    """

    title: str
    anchor: str
    level: int
    groups: tuple[tuple[str, tuple[Any, ...]], ...]
    folded: bool = False
    note: str = ""
    packed: bool = False

    @property
    def open(self) -> tuple[PageSection, ...]:
        """The inner sections that are not folded; folded ones are a list of links by themselves."""
        return tuple(part for part in self.parts if not part.folded)

    @property
    def parts(self) -> tuple[PageSection, ...]:
        """The inner sections."""
        return tuple(block for kind, blocks in self.groups if kind == "part" for block in blocks)


def _compress(text: str) -> str:
    """Return a part of the page in compressed form; a browser decompresses it when a reader
    opens it.
    """
    return base64.b64encode(zlib.compress(text.encode("utf-8"), 9)).decode("ascii")


def _count_folded(sections: Sequence[Section]) -> int:
    inner = [
        block for section in sections for block in section.blocks if isinstance(block, Section)
    ]
    return sum(section.folded for section in sections) + (_count_folded(inner) if inner else 0)


def _create_page_sections(
    sections: Sequence[Section], taken: set[str], level: int, many: bool = False
) -> tuple[PageSection, ...]:
    found = []
    for section in sections:
        anchor = _create_anchor(clean(section.title), taken)
        groups = []
        for kind, blocks in groupby(section.blocks, _find_group_kind):
            members: tuple[Any, ...] = tuple(blocks)
            if kind == "part":
                members = _create_page_sections(
                    [block for block in members if isinstance(block, Section)],
                    taken,
                    level + 1,
                    many,
                )
            groups.append((kind, members))
        packed = section.folded and many
        found.append(
            PageSection(
                section.title, anchor, level, tuple(groups), section.folded, section.note, packed
            )
        )
    return tuple(found)


def _find_group_kind(block: Block) -> str:
    if isinstance(block, Table):
        return "tables" if len(block.header) <= _NARROW and not block.folded else "table"
    if isinstance(block, Plot) and block.small:
        return "small figures"
    return {"Plot": "figures", "CommandLine": "code", "Section": "part"}.get(
        type(block).__name__, type(block).__name__.lower()
    )


def _find_numeric_columns(table: Table) -> list[bool]:
    """Return for each column whether it holds numbers; the first column never does, because it
    names the rows.
    """
    numbers = [False] * len(table.header)
    for row in table.cells():
        numbers = [
            known or cell.value is not None for known, cell in zip(numbers, row, strict=True)
        ]
    return [False, *numbers[1:]]


def _split_at_breaks(text: str) -> list[str]:
    """Return the pieces of a text between which a line may break, if it has long words.

    These places are after separators, and before capital letters inside a word.
    """
    return _BREAKS.split(text) if any(len(word) > _LONG for word in text.split()) else [text]


def _create_anchor(title: str, taken: set[str]) -> str:
    plain = "-".join(re.findall(r"[a-z0-9]+", title.lower()))[:40].strip("-") or "part"
    names: Iterator[str] = (
        f"{plain}-{number}" if number > 1 else plain for number in range(1, len(taken) + 2)
    )
    anchor = next(name for name in names if name not in taken)
    taken.add(anchor)
    return anchor
