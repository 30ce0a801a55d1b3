"""The drawing of boxes and key points in the frame of a picture."""

from __future__ import annotations

import numpy as np

from nnpipe.report.charts import BoxedFrame, BoxGroup
from nnpipe.report.drawing.axes import ROW, SMALL, WIDTH, legend
from nnpipe.report.drawing.shapes import Drawing, Path, Photo, Shape, Words, box, places, series, sign
from nnpipe.report.formatting import clean, shortened

_TALLEST = 1.2  # times the width
_LETTERS = 24


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
    for group in reversed(chart.groups):  # broken lines stay visible on others
        colour, dashed = _look(group)
        for (x, y, w, h), text in zip(group.boxes.tolist(), group.texts, strict=True):
            ends = np.clip([x, y, x + w, y + h], 0, [chart.width, chart.height] * 2) * scale
            outline = box(left + ends[0], above + ends[1], left + ends[2], above + ends[3])
            shapes.append(
                Path((np.concatenate([outline, outline[:1]]),), stroke=colour, width=1.6, dashed=dashed, tip=text)
            )
            line = ends[3] - 2 if group.colour < 0 else ends[1] + SMALL
            shapes.append(Words(left + ends[0] + 2, above + line, shortened(clean(text), _LETTERS), SMALL, colour))
        extent = np.array([chart.width, chart.height])
        for points in (np.clip(line, 0, extent) * scale + (left, above) for line in group.lines):
            if len(points) > 1:
                shapes.append(Path((points,), stroke=colour, width=1.6, dashed=dashed))
            shapes.append(Path(tuple(sign(0, point, 2.0) for point in points), fill=colour))
    return Drawing(WIDTH, above + height + 4, tuple(shapes))


def _look(group: BoxGroup) -> tuple[str, bool]:
    return ("ink", True) if group.colour < 0 else (series(group.colour), False)
