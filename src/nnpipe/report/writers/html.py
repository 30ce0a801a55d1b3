"""Writing a report as one HTML page that needs nothing else: no network, no other file.

Everything that came from a result file is escaped by the template engine.
Beyond that, the page's own policy forbids browsers to load anything or to run
any script but the one whose hash it names.
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
_NARROW = 5  # tables of so many columns stand side by side
_FOLDS = 60  # folded parts, of which more are packed: a browser must not build what nobody opens
_LONG = 12  # letters of a word that may have to be broken
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
        Shares pictures with other writers, so that none is drawn twice.

    Raises
    ------
    MissingDependency
        If Jinja2 is not installed.
    """
    write_text(path, to_html(document, pictures))


def to_html(document: Document, pictures: Pictures | None = None) -> str:
    """Return a document as the text of an HTML page; raises as :func:`write_html` does."""
    try:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined
        from markupsafe import Markup
    except ImportError:
        raise MissingDependency("HTML needs Jinja2, which is not installed: pip install 'nnpipe[report]'") from None

    def tidy(value: Any) -> Any:
        return clean(value, 4000) if type(value) is str else value

    # finalize sees every expression before it is escaped: what cannot be encoded ends here.
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES, encoding="utf-8"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=tidy,
    )
    pictures = pictures or Pictures()

    def picture(figure: Plot) -> Markup:
        return Markup(pictures.inline(figure))

    style, script = ((_TEMPLATES / name).read_text("utf-8").strip() for name in ("report.css", "report.js"))
    script = f"\n{script}\n"
    digest = base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
    return environment.get_template("report.html").render(
        title=document.title,
        subtitle=document.subtitle,
        parts=_parts(document.sections, set(), 2, _folds(document.sections) > _FOLDS),
        picture=picture,
        numeric=_numeric,
        breakable=lambda text: Markup("<wbr>").join(_pieces(tidy(text))),
        style=Markup(f"\n{style}\n"),
        script=Markup(script),
        digest=digest,
        packed=lambda text: Markup(_packed(text)),
    )


@dataclass(frozen=True)
class Part:
    """A section as the template wants it: with an address of its own and its blocks in groups.

    A group is its kind and its blocks: ``figures`` and ``tables`` that stand
    side by side, ``part`` for sections, else a block by itself.
    """

    title: str
    anchor: str
    level: int
    groups: tuple[tuple[str, tuple[Any, ...]], ...]
    folded: bool = False
    note: str = ""
    packed: bool = False

    @property
    def open(self) -> tuple[Part, ...]:
        """The sections within that are not folded: a row of folded ones is a list of links by itself."""
        return tuple(part for part in self.parts if not part.folded)

    @property
    def parts(self) -> tuple[Part, ...]:
        """The sections within."""
        return tuple(block for kind, blocks in self.groups if kind == "part" for block in blocks)


def _packed(text: str) -> str:
    """Pack a part of the page: a browser unpacks it when a reader opens it, and holds no element of it before."""
    return base64.b64encode(zlib.compress(text.encode("utf-8"), 9)).decode("ascii")


def _folds(sections: Sequence[Section]) -> int:
    inner = [block for section in sections for block in section.blocks if isinstance(block, Section)]
    return sum(section.folded for section in sections) + (_folds(inner) if inner else 0)


def _parts(sections: Sequence[Section], taken: set[str], level: int, many: bool = False) -> tuple[Part, ...]:
    found = []
    for section in sections:
        anchor = _anchor(section.title, taken)
        groups = []
        for kind, blocks in groupby(section.blocks, _kind):
            members: tuple[Any, ...] = tuple(blocks)
            if kind == "part":
                members = _parts([block for block in members if isinstance(block, Section)], taken, level + 1, many)
            groups.append((kind, members))
        packed = section.folded and many
        found.append(Part(section.title, anchor, level, tuple(groups), section.folded, section.note, packed))
    return tuple(found)


def _kind(block: Block) -> str:
    if isinstance(block, Table):
        return "tables" if len(block.header) <= _NARROW and not block.folded else "table"
    return {"Plot": "figures", "CommandLine": "code", "Section": "part"}.get(
        type(block).__name__, type(block).__name__.lower()
    )


def _numeric(table: Table) -> list[bool]:
    """Tell which columns hold numbers; the first one names the rows."""
    numbers = [False] * len(table.header)
    for row in table.cells():
        numbers = [known or cell.value is not None for known, cell in zip(numbers, row, strict=True)]
    return [False, *numbers[1:]]


def _pieces(text: str) -> list[str]:
    """Part long words where a line may end: after separators and before humps."""
    return _BREAKS.split(text) if any(len(word) > _LONG for word in text.split()) else [text]


def _anchor(title: str, taken: set[str]) -> str:
    plain = "-".join(re.findall(r"[a-z0-9]+", title.lower()))[:40].strip("-") or "part"
    names: Iterator[str] = (f"{plain}-{number}" if number > 1 else plain for number in range(1, len(taken) + 2))
    anchor = next(name for name in names if name not in taken)
    taken.add(anchor)
    return anchor
