"""Charts as pictures, in one style.

Pictures are narrow, 380 points, so that their letters can be read on a
telephone, and are to be shown up to one and a half times as large.
"""

from __future__ import annotations

from nnpipe.report.document import Plot
from nnpipe.report.drawing import svg
from nnpipe.report.drawing.draw import draw
from nnpipe.report.drawing.png import to_png
from nnpipe.report.drawing.shapes import Drawing


class Pictures:
    """Draws figures, each once however many files show it."""

    def __init__(self) -> None:
        self._drawn: dict[int, tuple[Plot, Drawing, str]] = {}

    def svg(self, figure: Plot) -> str:
        """Return the picture as an SVG file's text."""
        drawing, body = self._body(figure)
        return svg.standalone(drawing, body, figure.caption, figure.alt)

    def inline(self, figure: Plot) -> str:
        """Return the picture as an element for a page, which gives its colours as variables."""
        drawing, body = self._body(figure)
        return svg.inline(drawing, body, figure.alt)

    def png(self, figure: Plot) -> bytes:
        """Return the picture as a PNG file's bytes, at twice the size of the SVG.

        Raises
        ------
        MissingDependency
            If matplotlib is not installed.
        """
        return to_png(draw(figure.chart))

    def _body(self, figure: Plot) -> tuple[Drawing, str]:
        found = self._drawn.get(id(figure))
        if found is None:
            drawing = draw(figure.chart)
            # The figure is kept beside its picture, so that its identity cannot pass to another.
            found = self._drawn[id(figure)] = (figure, drawing, svg.body(drawing))
        return found[1:]
