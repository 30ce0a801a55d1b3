"""The drawing of charts of classes: confusion matrices and values of each class."""

from __future__ import annotations

import numpy as np

from nnpipe.report.charts import DotPlot, Heatmap
from nnpipe.report.drawing.axes import (
    ROW,
    SMALL,
    WIDTH,
    AxisRange,
    PlotArea,
    create_plot_area,
    draw_axes,
    estimate_text_length,
    format_tick_value,
    place_legend,
)
from nnpipe.report.drawing.shapes import (
    Drawing,
    Path,
    Raster,
    Shape,
    TextLine,
    create_marker,
    create_rectangle,
    stack_points,
)
from nnpipe.report.formatting import clean, shorten

_WRITTEN = 12  # greatest number of classes whose counts fit into the cells of a matrix
_NAMED = 40  # greatest number of classes whose names fit beside the matrix
_GAMMA = 0.45  # gamma of the shades, which makes a confusion of one in a hundred visible
_LEVELS = 48  # number of shades if cells are drawn one by one
_SCALE = (0, 0.01, 0.1, 0.3, 0.6, 1)


def draw_heatmap(chart: Heatmap) -> Drawing:
    """Return a drawing of a matrix in shades of one transparent colour, which suits light and
    dark pages.
    """
    size, named = chart.classes, bool(chart.names) and chart.classes <= _NAMED
    names = [shorten(clean(name), 16) for name in chart.names] if named else []
    small = SMALL if size <= 20 else 6.5
    long = max((estimate_text_length(name, small) for name in names), default=0.0)
    upright = long > 290 / size
    left = 26 + (long + 6 if named else estimate_text_length(format_tick_value(size), SMALL))
    bottom, top, side = 26 + (long if named and upright else SMALL), 50.0, WIDTH - left - 20
    ends = AxisRange(-0.5, size - 0.5, divisions=5, whole=True)
    turned = AxisRange(size - 0.5, -0.5)  # the first row is the upper one
    area = PlotArea(left, top, left + side, top + side, ends, turned)
    shapes = _draw_colour_scale(area, chart.scale_label)
    shapes += (
        _draw_cells(area, chart) if len(chart.shares) <= _NAMED else [_draw_raster(area, chart)]
    )
    outline = np.concatenate(
        [corners := create_rectangle(area.left, area.top, area.right, area.bottom), corners[:1]]
    )
    shapes.append(Path((outline,), stroke="line", width=0.8))
    shapes += (
        _draw_class_names(area, names, small, upright) if named else _draw_class_numbers(area, ends)
    )
    if chart.counts is not None and size <= _WRITTEN:
        shapes += _draw_counts(area, chart)
    height = top + side + bottom
    middle = area.left + side / 2
    shapes += [
        TextLine(middle, height - 3, clean(chart.x_label, 60), 11, "muted", "middle"),
        TextLine(
            10, area.top + side / 2, clean(chart.y_label, 60), 11, "muted", "middle", upright=True
        ),
    ]
    return Drawing(WIDTH, height, tuple(shapes))


def _draw_cells(area: PlotArea, chart: Heatmap) -> list[Shape]:
    """Return the cells of the matrix, with one shape for each shade."""
    levels = np.rint(_LEVELS * np.clip(chart.shares, 0, 1) ** _GAMMA).astype(int)
    pitch = (area.right - area.left) / len(levels)
    shapes: list[Shape] = []
    for level in np.unique(levels[levels > 0]).tolist():
        cells = tuple(
            create_rectangle(x, y, x + pitch, y + pitch)
            for row, column in np.argwhere(levels == level).tolist()
            for x, y in [(area.left + column * pitch, area.top + row * pitch)]
        )
        shapes.append(Path(cells, fill="series-0", opacity=level / _LEVELS))
    return shapes


def _draw_raster(area: PlotArea, chart: Heatmap) -> Raster:
    opacities = np.rint(255 * np.clip(chart.shares, 0, 1) ** _GAMMA).astype(np.uint8)
    return Raster(
        area.left, area.top, area.right - area.left, area.bottom - area.top, opacities, "series-0"
    )


def _draw_class_names(area: PlotArea, names: list[str], size: float, upright: bool) -> list[Shape]:
    shapes: list[Shape] = []
    xs, ys = area.to_x(range(len(names))).tolist(), area.to_y(range(len(names))).tolist()
    for x, y, name in zip(xs, ys, names, strict=True):
        shapes.append(TextLine(area.left - 5, y + 0.36 * size, name, size, "muted", "end"))
        if upright:
            shapes.append(
                TextLine(x + 0.36 * size, area.bottom + 5, name, size, "muted", "end", upright=True)
            )
        else:
            shapes.append(TextLine(x, area.bottom + 3 + size, name, size, "muted", "middle"))
    return shapes


def _draw_class_numbers(area: PlotArea, ends: AxisRange) -> list[Shape]:
    shapes: list[Shape] = []
    for tick in ends.find_ticks():
        x, y = area.to_coordinates(tick, tick).tolist()
        shapes.append(
            TextLine(x, area.bottom + 3 + SMALL, format_tick_value(tick), SMALL, "muted", "middle")
        )
        shapes.append(
            TextLine(
                area.left - 5, y + 0.36 * SMALL, format_tick_value(tick), SMALL, "muted", "end"
            )
        )
    return shapes


def _draw_counts(area: PlotArea, chart: Heatmap) -> list[Shape]:
    counts = chart.counts
    if counts is None:
        return []
    size = min(SMALL, 416 / chart.classes / max(2, len(str(counts.max()))))
    shapes: list[Shape] = []
    for row, column in np.argwhere(counts).tolist():
        x, y = area.to_coordinates(column, row).tolist()
        dark = chart.shares[row, column] ** _GAMMA > 0.6
        text = str(int(counts[row, column]))
        shapes.append(TextLine(x, y + 0.36 * size, text, size, "page" if dark else "ink", "middle"))
    return shapes


def _draw_colour_scale(area: PlotArea, label: str) -> list[Shape]:
    """Return the scale above the matrix that explains the shades."""
    base, width = area.top - 7, area.right - area.left
    shapes: list[Shape] = [
        Path(
            (
                create_rectangle(
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
        TextLine(
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
        TextLine(area.left + width / 2, base - 28, clean(label, 40), SMALL, "muted", "middle")
    )
    return shapes


def draw_dot_plot(chart: DotPlot) -> Drawing:
    """Return a drawing of several values for each name."""
    # Many rows are drawn closer together, so that the picture is not higher than the matrix beside
    # it.
    pitch = min(16.0, 325 / len(chart.names))
    height = 60.0 + max(pitch * len(chart.names), 70)
    small = min(SMALL, 0.75 * pitch)
    names = [shorten(clean(name), 22) for name in chart.names]
    least = min(
        (float(np.nanmin(v)) for _, v in chart.values if not np.isnan(v).all()), default=0.0
    )
    x = AxisRange(min(90.0, 10 * np.floor(least / 10)) - 1, 101)
    left = max(estimate_text_length(name, small) for name in names) + 10
    area = create_plot_area(height, x, AxisRange(-0.6, len(names) - 0.4), left=left, above=ROW)
    shapes = draw_axes(area, chart.x_label, lines="x")
    rows = np.arange(len(names))[::-1]
    for name, y in zip(names, area.to_y(rows).tolist(), strict=True):
        shapes.append(
            Path((stack_points((area.left, y), (area.right, y)),), stroke="line", width=0.6)
        )
        shapes.append(TextLine(area.left - 5, y + 0.36 * small, name, small, "muted", "end"))
    keys = place_legend([label for label, _ in chart.values], 0, WIDTH - left)
    for number, ((_, values), (place, above, label)) in enumerate(
        zip(chart.values, keys, strict=True)
    ):
        known = ~np.isnan(values)
        signs = [
            create_marker(number, p, 3.0) for p in area.to_coordinates(values[known], rows[known])
        ]
        signs.append(create_marker(number, (area.left + place + 6, above + 8), 3.4))
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
        shapes.append(TextLine(area.left + place + 18, above + 12, label, SMALL))
    return Drawing(WIDTH, height, tuple(shapes))
