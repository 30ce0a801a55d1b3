"""Text that may be broken into lines at some places: groups that stand in one line where they fit.

After Wadler 2003, "A prettier printer", and Oppen 1980
(https://doi.org/10.1145/357114.357115).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

WIDTH = 88
_STEP = 4

Document: TypeAlias = "str | Line | Group | Indented | IfBroken | Choice | Sequence[Document]"


@dataclass(frozen=True)
class Line:
    """A place to break: ``flat`` stands there where it is not broken."""

    flat: str = ""


@dataclass(frozen=True)
class Group:
    """What is broken at all its places or at none."""

    content: Document


@dataclass(frozen=True)
class Indented:
    """What stands further to the right where it is broken."""

    content: Document


@dataclass(frozen=True)
class IfBroken:
    """What is only there if its group is broken."""

    text: str


@dataclass(frozen=True)
class Choice:
    """The first form if all its lines fit, else the second."""

    first: Document
    second: Document


def joined(items: Sequence[Document], between: Document) -> list[Document]:
    """Put something between items."""
    found: list[Document] = []
    for item in items:
        found += [between, item] if found else [item]
    return found


def width_of(text: str) -> int:
    """Return how many columns a text takes: wide characters, such as Chinese ones, take two."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    return len(text) + wide - sum(unicodedata.combining(character) != 0 for character in text)


def laid_out(document: Document, column: int = 0, indent: int | None = None) -> str:
    """Return the text of a document that starts at a column; further lines are indented as far, or by ``indent``."""
    out: list[str] = []
    # What is to come, last first: indentation, whether broken, and what.
    waiting: list[tuple[int, bool, Document]] = [(column if indent is None else indent, True, document)]
    while waiting:
        level, broken, item = waiting.pop()
        if isinstance(item, str):
            out.append(item)
            column += width_of(item)
        elif isinstance(item, Line):
            text = "\n" + " " * level if broken else item.flat
            out.append(text)
            column = level if broken else column + width_of(text)
        elif isinstance(item, IfBroken):
            if broken:
                out.append(item.text)
                column += len(item.text)
        elif isinstance(item, Indented):
            waiting.append((level + _STEP, broken, item.content))
        elif isinstance(item, Choice):
            lines = laid_out(item.first, column, level).split("\n")
            good = column + width_of(lines[0]) <= WIDTH and all(width_of(line) <= WIDTH for line in lines[1:])
            waiting.append((level, broken, item.first if good else item.second))
        elif isinstance(item, Group):
            fits = _fits(WIDTH - column, item.content, waiting)
            waiting.append((level, not fits, item.content))
        else:
            waiting += [(level, broken, part) for part in reversed(item)]
    return "".join(out)


def _fits(room: int, document: Document, rest: Sequence[tuple[int, bool, Document]]) -> bool:
    """Return whether a document fits in one line, with what follows it up to the next place that is broken."""
    waiting: list[tuple[bool, Document]] = [(broken, item) for _, broken, item in rest]
    waiting.append((False, document))
    while room >= 0 and waiting:
        broken, item = waiting.pop()
        if isinstance(item, str):
            room -= width_of(item)
        elif isinstance(item, Line):
            if broken:
                return True
            room -= len(item.flat)
        elif isinstance(item, IfBroken):
            room -= len(item.text) if broken else 0
        elif isinstance(item, (Group, Indented)):
            # A group that follows may be broken in its turn, which makes room.
            waiting.append((broken, item.content))
        elif isinstance(item, Choice):
            waiting.append((broken, item.second))
        else:
            waiting += [(broken, part) for part in reversed(item)]
    return room >= 0
