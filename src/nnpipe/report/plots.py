"""Charts as pictures, in one style.

Colours are those of Okabe and Ito ("Color Universal Design", 2008), which
people with any kind of colour vision tell apart; markers differ as well.
Pictures are drawn narrow, 380 points, so that their letters can be read on a
telephone, and are to be shown up to one and a half times as large.
"""

from __future__ import annotations

import io
import warnings
from typing import Any

from nnpipe.core.errors import MissingDependency
from nnpipe.report._drawing import FAINT, INK, MUTED, SURFACE, draw
from nnpipe.report.charts import Chart
from nnpipe.report.document import Figure

_STYLE = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 11,
    "axes.labelsize": 11,
    "axes.labelcolor": MUTED,
    "axes.edgecolor": FAINT,
    "axes.linewidth": 0.8,
    "axes.facecolor": "none",
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.unicode_minus": True,
    "grid.color": FAINT,
    "grid.linewidth": 0.6,
    "figure.facecolor": SURFACE,
    "savefig.facecolor": SURFACE,
    "text.color": INK,
    # Names of classes are text: a dollar sign in them starts no formula.
    "text.parse_math": False,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "xtick.labelsize": 10.5,
    "ytick.labelsize": 10.5,
    "legend.frameon": False,
    "legend.fontsize": 10.5,
    "legend.labelcolor": INK,
    "lines.linewidth": 1.4,
    "path.simplify": True,
    "svg.fonttype": "none",
    # The same report gives the same files.
    "svg.hashsalt": "nnpipe",
}


class Pictures:
    """Draws figures, each once however many files show it."""

    def __init__(self) -> None:
        self._drawn: dict[int, tuple[Figure, str]] = {}

    def svg(self, figure: Figure) -> str:
        """Give the picture as an SVG file's text.

        Raises
        ------
        MissingDependency
            If matplotlib is not installed.
        """
        found = self._drawn.get(id(figure))
        if found is None:
            # The figure is kept beside its picture, so that its identity cannot pass to another.
            found = self._drawn[id(figure)] = (figure, _saved(figure.chart, "svg").decode("utf-8"))
        return found[1]

    def png(self, figure: Figure) -> bytes:
        """Give the picture as a PNG file's bytes, at twice the size of the SVG.

        Raises
        ------
        MissingDependency
            If matplotlib is not installed.
        """
        return _saved(figure.chart, "png")


def _saved(chart: Chart, format: str) -> bytes:
    try:
        from matplotlib import rc_context
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.backends.backend_svg import FigureCanvasSVG
    except ImportError:
        raise MissingDependency("plots need matplotlib, which is not installed: pip install 'nnpipe[report]'") from None
    # Dates and versions would make every run's files differ.
    silent: dict[str, Any] = {"svg": dict.fromkeys(("Date", "Creator", "Format", "Type")), "png": {"Software": None}}
    target = io.BytesIO()
    with rc_context(_STYLE), warnings.catch_warnings():
        # A letter that matplotlib's font lacks is still in the SVG, where the reader's fonts show it.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        # Canvases write at once what savefig would draw twice.
        if format == "svg":
            FigureCanvasSVG(draw(chart)).print_svg(target, metadata=silent[format])
        else:
            canvas = FigureCanvasAgg(draw(chart))
            canvas.figure.dpi = 144
            canvas.print_png(target, metadata=silent[format])
    return target.getvalue()
