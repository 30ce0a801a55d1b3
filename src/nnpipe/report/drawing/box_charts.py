"""The drawing of boxes and key points in the frame of a picture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from nnpipe.report.charts import BoxedFrame, BoxGroup
from nnpipe.report.drawing.axes import ROW, SMALL, WIDTH, legend, length
from nnpipe.report.drawing.shapes import Drawing, Path, Photo, Shape, Words, box, places, series, sign
from nnpipe.report.formatting import clean, shortened

_TALLEST = 1.2  # times the width
_LETTERS = 24
Corners = tuple[float, float, float, float]
"""Left, top, right and bottom, in points."""


def boxed_frame(chart: BoxedFrame) -> Drawing:
    """Return a drawing of the frame with its boxes and lines; those of the truth are broken."""
    keys = legend([group.label for group in chart.groups], 0, WIDTH - 20)
    above = ROW + keys[-1][1] + 4 if keys else 4.0
    scale = min((WIDTH - 4) / chart.width, _TALLEST * WIDTH / chart.height)
    width, height = chart.width * scale, chart.height * scale
    left = (WIDTH - width) / 2
    corners = box(left, above, left + width, above + height)
    shapes: list[Shape] = [Path((corners,), fill="line", opacity=0.35)]
    for (start, top, label), group in zip(keys, chart.groups, strict=True):
        colour, dashed = _look(group)
        line = places((2 + start, top + 8.5), (15 + start, top + 8.5))
        shapes += [Path((line,), stroke=colour, width=2, dashed=dashed), Words(20 + start, top + 12, label, SMALL)]
    if chart.picture:
        shapes.append(Photo(left, above, width, height, chart.picture))
    labels: list[tuple[Corners, str, str, bool]] = []
    for group in reversed(chart.groups):  # broken lines stay visible on others
        colour, dashed = _look(group)
        for (x, y, w, h), text in zip(group.boxes.tolist(), group.texts, strict=True):
            ends = np.clip([x, y, x + w, y + h], 0, [chart.width, chart.height] * 2) * scale
            edges = (left + ends[0], above + ends[1], left + ends[2], above + ends[3])
            outline = box(*edges)
            shapes.append(
                Path((np.concatenate([outline, outline[:1]]),), stroke=colour, width=1.6, dashed=dashed, tip=text)
            )
            labels.append((edges, shortened(clean(text), _LETTERS), colour, dashed))
        extent = np.array([chart.width, chart.height])
        for points in (np.clip(line, 0, extent) * scale + (left, above) for line in group.lines):
            if len(points) > 1:
                shapes.append(Path((points,), stroke=colour, width=1.6, dashed=dashed))
            shapes.append(Path(tuple(sign(0, point, 2.0) for point in points), fill=colour))
    shapes += _labels(labels, (left, above, left + width, above + height))
    return Drawing(WIDTH, above + height + 4, tuple(shapes))


def _labels(labels: Sequence[tuple[Corners, str, str, bool]], frame: Corners) -> Iterator[Shape]:
    """Yield the texts of boxes, each on a ground of its own and, where there is room, apart from the others.

    Texts of predictions begin at the upper edge of their box, those of the truth at the lower edge.
    """
    taken: list[Corners] = []
    for (left, top, right, bottom), text, colour, below in labels:
        if not text:
            continue
        wide = length(text, SMALL)
        inside, outside = (bottom - 2, bottom + SMALL) if below else (top + SMALL, top - 3)
        other, far = (top + SMALL, top - 3) if below else (bottom - 2, bottom + SMALL)
        columns = [max(1.0, min(x, WIDTH - wide - 1)) for x in (left + 2, right - wide - 2)]
        rows = [max(SMALL, min(y, frame[3])) for y in (inside, outside, other, far)]
        spots = [(x - 1, y - SMALL + 1, x + wide + 1, y + 2.5) for y in rows for x in columns]
        spot = min(spots, key=lambda each: sum(_shared(each, one) for one in taken) + _outside(each, frame))
        taken.append(spot)
        yield Path((box(*spot),), fill="page", opacity=0.75)
        yield Words(spot[0] + 1, spot[3] - 2.5, text, SMALL, colour)


def _shared(one: Corners, other: Corners) -> float:
    """Return the area that two boxes share."""
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    return max(width, 0.0) * max(height, 0.0)


def _outside(one: Corners, frame: Corners) -> float:
    """Return the area of a box that is outside of the frame."""
    return (one[2] - one[0]) * (one[3] - one[1]) - _shared(one, frame)


def _look(group: BoxGroup) -> tuple[str, bool]:
    return ("ink", True) if group.colour < 0 else (series(group.colour), False)
