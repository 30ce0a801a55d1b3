"""Charts as SVG and PNG pictures in one style.

Pictures are narrow, 380 points, so that their text can be read on a telephone.
They are meant to be shown up to one and a half times as large.
"""

from __future__ import annotations

from nnpipe.report.document import Plot
from nnpipe.report.drawing import svg
from nnpipe.report.drawing.draw import draw
from nnpipe.report.drawing.png import to_png
from nnpipe.report.drawing.shapes import Drawing


class Pictures:
    """A renderer of plots that draws each plot only once for all files that show it."""

    def __init__(self) -> None:
        self._drawn: dict[int, tuple[Plot, Drawing, str]] = {}

    def svg(self, figure: Plot) -> str:
        """Return the picture as the content of an SVG file."""
        drawing, body = self._body(figure)
        return svg.standalone(drawing, body, figure.caption, figure.alt)

    def inline(self, figure: Plot) -> str:
        """Return the picture as an SVG element for a page that defines its colours as CSS variables."""
        drawing, body = self._body(figure)
        return svg.inline(drawing, body, figure.alt)

    def png(self, figure: Plot) -> bytes:
        """Return the picture as the content of a PNG file, at twice the size of the SVG.

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
            # The plot is kept with its picture, so that no other plot can get its id().
            found = self._drawn[id(figure)] = (figure, drawing, svg.body(drawing))
        return found[1:]
