"""A report as data: its content without its layout.

The sections of :mod:`nnpipe.report` create these values from runs, and the
writers turn them into files.  The text in them is plain and may come from an
untrusted source; the writers escape it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from nnpipe.report.charts import Chart

Tone = Literal["plain", "note", "warning"]


@dataclass(frozen=True)
class Paragraph:
    """A paragraph of text; a ``note`` is additional information, and a ``warning`` must not be
    missed.
    """

    text: str
    tone: Tone = "plain"


@dataclass(frozen=True)
class CommandLine:
    """A line of code, such as a command."""

    text: str


@dataclass(frozen=True)
class Cell:
    """A table's cell.

    Parameters
    ----------
    text
        The text.
    value
        The value to sort by; by default the text.
    note
        Smaller text below it, such as an interval.
    best
        Whether it is the best value of its column.
    """

    text: str
    value: float | None = None
    note: str = ""
    best: bool = False


@dataclass(frozen=True)
class Table:
    """A table whose rows have as many cells as the header.

    A ``folded`` table holds details, which writers may hide until the reader
    opens it.  ``minor`` names columns that a narrow screen may hide at first.
    """

    header: tuple[str, ...]
    rows: tuple[tuple[str | Cell, ...], ...]
    sortable: bool = False
    caption: str = ""
    folded: bool = False
    minor: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if any(len(row) != len(self.header) for row in self.rows):
            raise ValueError(
                f"table {self.caption!r}: a row does not have {len(self.header)} cells"
            )

    def cells(self) -> Iterator[tuple[Cell, ...]]:
        """Yield the rows with each cell as a :class:`Cell`."""
        for row in self.rows:
            yield tuple(cell if isinstance(cell, Cell) else Cell(cell) for cell in row)


@dataclass(frozen=True)
class Tile:
    """One important figure with its label and a note."""

    label: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class Tiles:
    """The most important figures."""

    items: tuple[Tile, ...]


@dataclass(frozen=True)
class Plot:
    """A plot.

    Parameters
    ----------
    chart
        The data to draw.
    name
        A short name of letters, digits and hyphens, unique in a document; names of picture files
        contain it.
    caption
        The description of the picture.
    alt
        The alternative text for readers who cannot see it, with its main figures.
    small
        Whether pages show it small, several in a row.
    """

    chart: Chart
    name: str
    caption: str
    alt: str
    small: bool = False


@dataclass(frozen=True)
class Section:
    """A title and the blocks below it, which may include sections.

    A ``folded`` section is one of many similar ones: pages show its title with ``note`` beside it,
    and the rest when the reader opens it.
    """

    title: str
    blocks: tuple[Block, ...]
    folded: bool = False
    note: str = ""


@dataclass(frozen=True)
class Document:
    """A whole report."""

    title: str
    sections: tuple[Section, ...]
    subtitle: str = ""

    def figures(self) -> Iterator[Plot]:
        """Yield all figures in order."""
        for section in self.sections:
            yield from _iter_plots(section)


Block = Paragraph | CommandLine | Table | Tiles | Plot | Section


def _iter_plots(section: Section) -> Iterator[Plot]:
    for block in section.blocks:
        if isinstance(block, Plot):
            yield block
        elif isinstance(block, Section):
            yield from _iter_plots(block)
