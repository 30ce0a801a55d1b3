"""The drawing of curves, stacked areas and histograms."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from nnpipe.report.charts import Areas, Floats, Histogram, Line, Lines
from nnpipe.report.drawing.axes import ROW, SMALL, WIDTH, Span, frame, legend, length, plane
from nnpipe.report.drawing.shapes import SERIES, Drawing, Path, Shape, Words, box, places, series, sign
from nnpipe.report.formatting import clean

_MARKED = 60  # curves with fewer points have a marker at each point
_KEYS = 2  # rows of names above a chart; with more it is higher


def lines(chart: Lines) -> Drawing:
    """Return a drawing of curves with their bands."""
    y = _upward(chart)
    x = Span.around(_ends([line.x for line in chart.lines]), 0.01, chart.log_x, divisions=6)
    keys = legend([line.label for line in chart.lines], 0, WIDTH - 60) if len(chart.lines) > 1 else []
    above = ROW + keys[-1][1] if keys else 0.0
    height = (155.0 if chart.flat else 200.0) + max(0.0, above - _KEYS * ROW)
    area = plane(height, x, y, above=above)
    shapes = frame(area, chart.x_label, chart.y_label)
    for number, line in enumerate(chart.lines):
        colour, again = _style(number, line)
        if line.low is not None and line.high is not None:
            band = np.concatenate([area.curve(line.x, line.high), area.curve(line.x, line.low)[::-1]])
            shapes.append(Path((band,), fill=colour, opacity=0.28))
        curve = area.curve(line.x, line.y)
        if not line.loose:
            shapes.append(Path((curve,), stroke=colour, dashed=again))
        if len(curve) < _MARKED or line.loose:
            shapes.append(Path(tuple(sign(0, place, 1.5) for place in curve), fill=colour))
    for number, (line, (left, top, label)) in enumerate(zip(chart.lines, keys, strict=False)):  # one has no key
        colour, again = _style(number, line)
        if line.loose:
            shapes.append(Path((sign(0, (area.left + left + 6.5, top + 8.5), 2.5),), fill=colour))
        else:
            stroke = places((area.left + left, top + 8.5), (area.left + left + 13, top + 8.5))
            shapes.append(Path((stroke,), stroke=colour, width=2, dashed=again))
        shapes.append(Words(area.left + left + 18, top + 12, label, SMALL))
    return Drawing(WIDTH, height, tuple(shapes))


def _style(number: int, line: Line) -> tuple[str, bool]:
    """Return the colour of a line, and whether it is dashed because another one has that colour."""
    return ("ink", False) if line.loose else (series(number), number >= SERIES)


def areas(chart: Areas) -> Drawing:
    """Return a drawing of stacked areas."""
    x, layers = chart.x, [layer for _, layer in chart.layers]
    if len(x) == 1:  # an area needs two points
        x, layers = x[0] + np.array([-0.5, 0.5]), [np.repeat(layer, 2) for layer in layers]
    tops = np.cumsum(np.stack([np.zeros(len(x)), *layers]), axis=0)
    keys = legend([label for label, _ in chart.layers], 0, WIDTH - 60)
    top = float(np.max(tops[-1]))
    area = plane(
        210.0, Span.around(_ends([x]), 0.0, divisions=6), Span(0.0, 1.05 * top or 1.0), above=ROW + keys[-1][1]
    )
    shapes = frame(area, chart.x_label, chart.y_label)
    for number, (low, high) in enumerate(pairwise(tops)):
        band = np.concatenate([area.curve(x, high), area.curve(x, low)[::-1]])
        shapes.append(Path((band,), fill=series(number)))
    for number, (left, above, label) in enumerate(keys):
        swatch = box(area.left + left, above + 4, area.left + left + 13, above + 12)
        shapes.append(Path((swatch,), fill=series(number)))
        shapes.append(Words(area.left + left + 18, above + 12, label, SMALL))
    return Drawing(WIDTH, 210.0, tuple(shapes))


def histogram(chart: Histogram) -> Drawing:
    """Return a drawing of a histogram with its marks."""
    x = Span.around((float(chart.edges[0]), float(chart.edges[-1])), 0.02, chart.log_x, divisions=5)
    y = Span(0.0, 1.05 * max(float(np.max(chart.counts)), 1.0), divisions=5, whole=True)
    marks = sorted(chart.marks, key=lambda mark: mark[1])
    levels = _levels(x.shares([value for _, value in marks]))
    above = 0.85 * ROW * (max(levels) + 1) if marks else 0.0
    area = plane(200.0, x, y, above=above)
    shapes = frame(area, chart.x_label, chart.y_label, lines="y")
    outline = area.curve(np.repeat(chart.edges, 2), np.concatenate([[0], np.repeat(chart.counts, 2), [0]]))
    shapes.append(Path((outline,), fill="series-0", opacity=0.85))
    for (label, value), level in zip(marks, levels, strict=True):
        shapes += _mark(float(area.across(value)), area.top, area.bottom, clean(label, 20), level)
    return Drawing(WIDTH, 200.0, tuple(shapes))


def _mark(x: float, top: float, bottom: float, label: str, level: int) -> list[Shape]:
    line = Path((places((x, top), (x, bottom)),), stroke="ink", width=0.9, dashed=True)
    # Near an edge, a label is moved beside its mark, so that it stays in the picture.
    half = length(label, SMALL) / 2
    middle = min(max(x, half + 1), WIDTH - half - 1)
    return [line, Words(middle, top - 4 - 0.85 * ROW * level, label, SMALL, anchor="middle")]


def _levels(shares: Floats) -> list[int]:
    """Return the row of each label; a label that would overlap the one before is one row higher."""
    found: list[int] = []
    last = -np.inf
    for share in shares.tolist():
        found.append(found[-1] + 1 if found and share - last < 0.14 else 0)
        last = share
    return found


def _upward(chart: Lines) -> Span:
    ends = _ends([bound for line in chart.lines for bound in _bounds(line.y, line.low, line.high)])
    if chart.log_y:
        return Span.around(ends, 0.03, log=True)
    if min(ends) < 0:
        return Span.around(ends, 0.03)
    top = max(float(np.max(line.y if line.high is None else line.high)) for line in chart.lines)
    return Span(0.0, 1.05 * max(top, chart.top) or 1.0)


def _bounds(*given: Floats | None) -> list[Floats]:
    return [values for values in given if values is not None]


def _ends(given: list[Floats]) -> list[float]:
    return [float(end) for values in given if len(values) for end in (np.min(values), np.max(values))]
