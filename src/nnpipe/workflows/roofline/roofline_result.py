"""What :func:`nnpipe.roofline` returns."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nnpipe.analysis.roofline import Ceiling, Ceilings
from nnpipe.core.argument_checks import check_call
from nnpipe.core.files import write_text
from nnpipe.core.foreign_text import show_text
from nnpipe.report.charts import Lines
from nnpipe.report.document import Table
from nnpipe.report.drawing import pictures
from nnpipe.report.drawing.pictures import draw
from nnpipe.report.formatting import format_number, format_share, format_size
from nnpipe.report.layer_tables import plot_roofline
from nnpipe.report.writers.tables import format_html_table, to_text

_UNKNOWN = "not known"


@dataclass(frozen=True)
class RooflineResult:
    """The ceilings of a machine.

    Parameters
    ----------
    ceilings
        The greatest rates of arithmetic and the bandwidth of each level of memory.

    Examples
    --------
    Of the example of :func:`nnpipe.roofline`:

    >>> len(found.ceilings.compute["float32"].repeats)
    3
    """

    ceilings: Ceilings

    def show(self) -> None:
        """Print the ceilings."""
        show_text(self.text())

    def text(self) -> str:
        """Return the ceilings as text."""
        return "\n\n".join(
            (self.title, to_text(self.compute_table()), to_text(self.build_memory_table()))
        )

    def __str__(self) -> str:
        return self.text()

    @property
    def title(self) -> str:
        """Return which machine it is."""
        threads = self.ceilings.threads
        return f"{self.ceilings.machine}, {threads} thread{'s' if threads > 1 else ''}"

    def compute_table(self) -> Table:
        """Return a table with a row for each type of number."""
        known = self.ceilings.compute
        rows = [(name, *_format_cells(each), each.how) for name, each in known.items()]
        rows += [(name, _UNKNOWN, "", "", reason) for name, reason in self.ceilings.reasons.items()]
        return Table(("numbers", "Goperations/s", "repeats", "spread", "reached by"), tuple(rows))

    def build_memory_table(self) -> Table:
        """Return a table with a row for each level of memory."""
        rows = tuple(
            (
                "main memory"
                if each.up_to_bytes is None
                else f"up to {format_size(each.up_to_bytes)}",
                *_format_cells(each.bandwidth),
            )
            for each in self.ceilings.memory
        )
        return Table(("data", "read, GB/s", "repeats", "spread"), rows)

    def chart(self) -> Lines | None:
        """Return the picture: operations a second by operations a byte; ``None`` if no ceiling is
        known.

        A rising line is a level of memory, a level one a type of number.
        """
        return plot_roofline(self.ceilings)

    def svg(self) -> str | None:
        """Return the picture as an SVG file; ``None`` if no ceiling is known."""
        chart = self.chart()
        if chart is None:
            return None
        drawing = draw(chart)
        return pictures.render_standalone_svg(
            drawing, pictures.render_svg_body(drawing), f"Roofline of {self.title}", self.text()
        )

    def save_svg(self, path: str | Path) -> bool:
        """Write the picture as SVG, and return whether there is one.

        Raises
        ------
        ConfigError
            If the file cannot be written.
        """
        check_call(RooflineResult.save_svg, locals())
        picture = self.svg()
        if picture is not None:
            write_text(path, picture)
        return picture is not None

    def to_json(self) -> dict[str, Any]:
        """Return all ceilings as JSON can hold them."""
        return self.ceilings.to_json()

    def save_json(self, path: str | Path) -> None:
        """Write all ceilings as JSON.

        Raises
        ------
        ConfigError
            If the file cannot be written.
        """
        check_call(RooflineResult.save_json, locals())
        write_text(path, json.dumps(self.to_json(), indent=1, allow_nan=False) + "\n")

    def _repr_html_(self) -> str:
        """Return HTML for a notebook."""
        return format_html_table(self.compute_table(), self.title) + format_html_table(
            self.build_memory_table(), "Memory"
        )


def _format_cells(ceiling: Ceiling) -> tuple[str, str, str]:
    value = ceiling.value
    repeats = ", ".join(format_number(each / 1e9) for each in ceiling.repeats)
    return (
        _UNKNOWN if value is None else format_number(value / 1e9),
        repeats,
        format_share(ceiling.spread, 1),
    )
