"""The drawing of charts of classes: confusion matrices and values of each class."""

from __future__ import annotations

import numpy as np

from nnpipe.report.charts import Dots, Heatmap
from nnpipe.report.drawing.axes import (
    ROW,
    SMALL,
    WIDTH,
    Plane,
    Span,
    frame,
    legend,
    length,
    plane,
    written,
)
from nnpipe.report.drawing.shapes import Drawing, Path, Raster, Shape, Words, box, places, sign
from nnpipe.report.formatting import clean, shortened

_WRITTEN = 12  # greatest number of classes whose counts fit into the cells of a matrix
_NAMED = 40  # greatest number of classes whose names fit beside the matrix
_GAMMA = 0.45  # gamma of the shades, which makes a confusion of one in a hundred visible
_LEVELS = 48  # number of shades if cells are drawn one by one
_SCALE = (0, 0.01, 0.1, 0.3, 0.6, 1)


def heatmap(chart: Heatmap) -> Drawing:
    """Return a drawing of a matrix in shades of one transparent colour, which suits light and
    dark pages.
    """
    size, named = chart.classes, bool(chart.names) and chart.classes <= _NAMED
    names = [shortened(clean(name), 16) for name in chart.names] if named else []
    small = SMALL if size <= 20 else 6.5
    long = max((length(name, small) for name in names), default=0.0)
    upright = long > 290 / size
    left = 26 + (long + 6 if named else length(written(size), SMALL))
    bottom, top, side = 26 + (long if named and upright else SMALL), 50.0, WIDTH - left - 20
    ends = Span(-0.5, size - 0.5, divisions=5, whole=True)
    turned = Span(size - 0.5, -0.5)  # the first row is the upper one
    area = Plane(left, top, left + side, top + side, ends, turned)
    shapes = _scale(area, chart.scale_label)
    shapes += _cells(area, chart) if len(chart.shares) <= _NAMED else [_raster(area, chart)]
    outline = np.concatenate(
        [corners := box(area.left, area.top, area.right, area.bottom), corners[:1]]
    )
    shapes.append(Path((outline,), stroke="line", width=0.8))
    shapes += _names(area, names, small, upright) if named else _numbers(area, ends)
    if chart.counts is not None and size <= _WRITTEN:
        shapes += _counts(area, chart)
    height = top + side + bottom
    middle = area.left + side / 2
    shapes += [
        Words(middle, height - 3, clean(chart.x_label, 60), 11, "muted", "middle"),
        Words(
            10, area.top + side / 2, clean(chart.y_label, 60), 11, "muted", "middle", upright=True
        ),
    ]
    return Drawing(WIDTH, height, tuple(shapes))


def _cells(area: Plane, chart: Heatmap) -> list[Shape]:
    """Return the cells of the matrix, with one shape for each shade."""
    levels = np.rint(_LEVELS * np.clip(chart.shares, 0, 1) ** _GAMMA).astype(int)
    pitch = (area.right - area.left) / len(levels)
    shapes: list[Shape] = []
    for level in np.unique(levels[levels > 0]).tolist():
        cells = tuple(
            box(x, y, x + pitch, y + pitch)
            for row, column in np.argwhere(levels == level).tolist()
            for x, y in [(area.left + column * pitch, area.top + row * pitch)]
        )
        shapes.append(Path(cells, fill="series-0", opacity=level / _LEVELS))
    return shapes


def _raster(area: Plane, chart: Heatmap) -> Raster:
    opacities = np.rint(255 * np.clip(chart.shares, 0, 1) ** _GAMMA).astype(np.uint8)
    return Raster(
        area.left, area.top, area.right - area.left, area.bottom - area.top, opacities, "series-0"
    )


def _names(area: Plane, names: list[str], size: float, upright: bool) -> list[Shape]:
    shapes: list[Shape] = []
    xs, ys = area.across(range(len(names))).tolist(), area.up(range(len(names))).tolist()
    for x, y, name in zip(xs, ys, names, strict=True):
        shapes.append(Words(area.left - 5, y + 0.36 * size, name, size, "muted", "end"))
        if upright:
            shapes.append(
                Words(x + 0.36 * size, area.bottom + 5, name, size, "muted", "end", upright=True)
            )
        else:
            shapes.append(Words(x, area.bottom + 3 + size, name, size, "muted", "middle"))
    return shapes


def _numbers(area: Plane, ends: Span) -> list[Shape]:
    shapes: list[Shape] = []
    for tick in ends.ticks():
        x, y = area.curve(tick, tick).tolist()
        shapes.append(Words(x, area.bottom + 3 + SMALL, written(tick), SMALL, "muted", "middle"))
        shapes.append(Words(area.left - 5, y + 0.36 * SMALL, written(tick), SMALL, "muted", "end"))
    return shapes


def _counts(area: Plane, chart: Heatmap) -> list[Shape]:
    counts = chart.counts
    if counts is None:
        return []
    size = min(SMALL, 416 / chart.classes / max(2, len(str(counts.max()))))
    shapes: list[Shape] = []
    for row, column in np.argwhere(counts).tolist():
        x, y = area.curve(column, row).tolist()
        dark = chart.shares[row, column] ** _GAMMA > 0.6
        text = str(int(counts[row, column]))
        shapes.append(Words(x, y + 0.36 * size, text, size, "page" if dark else "ink", "middle"))
    return shapes


def _scale(area: Plane, label: str) -> list[Shape]:
    """Return the scale above the matrix that explains the shades."""
    base, width = area.top - 7, area.right - area.left
    shapes: list[Shape] = [
        Path(
            (
                box(
                    area.left + width * step / _LEVELS,
                    base - 8,
                    area.left + width * (step + 1) / _LEVELS,
                    base,
                ),
            ),
            fill="series-0",
            opacity=(step + 0.5) / _LEVELS,
        )
        for step in range(_LEVELS)
    ]
    # Equal steps of shade are unequal steps of value.
    shapes += [
        Words(
            area.left + width * mark**_GAMMA,
            base - 12,
            f"{100 * mark:.0f}\u00a0%",
            SMALL,
            "muted",
            "middle",
        )
        for mark in _SCALE
    ]
    shapes.append(
        Words(area.left + width / 2, base - 28, clean(label, 40), SMALL, "muted", "middle")
    )
    return shapes


def dots(chart: Dots) -> Drawing:
    """Return a drawing of several values for each name."""
    # Many rows are drawn closer together, so that the picture is not higher than the matrix beside
    # it.
    pitch = min(16.0, 325 / len(chart.names))
    height = 60.0 + max(pitch * len(chart.names), 70)
    small = min(SMALL, 0.75 * pitch)
    names = [shortened(clean(name), 22) for name in chart.names]
    least = min(
        (float(np.nanmin(v)) for _, v in chart.values if not np.isnan(v).all()), default=0.0
    )
    x = Span(min(90.0, 10 * np.floor(least / 10)) - 1, 101)
    left = max(length(name, small) for name in names) + 10
    area = plane(height, x, Span(-0.6, len(names) - 0.4), left=left, above=ROW)
    shapes = frame(area, chart.x_label, lines="x")
    rows = np.arange(len(names))[::-1]
    for name, y in zip(names, area.up(rows).tolist(), strict=True):
        shapes.append(Path((places((area.left, y), (area.right, y)),), stroke="line", width=0.6))
        shapes.append(Words(area.left - 5, y + 0.36 * small, name, small, "muted", "end"))
    keys = legend([label for label, _ in chart.values], 0, WIDTH - left)
    for number, ((_, values), (place, above, label)) in enumerate(
        zip(chart.values, keys, strict=True)
    ):
        known = ~np.isnan(values)
        signs = [sign(number, p, 3.0) for p in area.curve(values[known], rows[known])]
        signs.append(sign(number, (area.left + place + 6, above + 8), 3.4))
        colour = f"series-{number % 7}"
        # The first marker is filled; the others are outlines, which stay visible around equal
        # values.
        signs = signs if number == 0 else [np.vstack([outline, outline[:1]]) for outline in signs]
        shapes.append(
            Path(
                tuple(signs),
                fill=colour if number == 0 else "",
                stroke="" if number == 0 else colour,
            )
        )
        shapes.append(Words(area.left + place + 18, above + 12, label, SMALL))
    return Drawing(WIDTH, height, tuple(shapes))
