"""The drawing of charts that compare candidates."""

from __future__ import annotations

import numpy as np

from nnpipe.report.charts import Bars, ChartPoint, Distributions, Intervals, Scatter, StackedBars
from nnpipe.report.drawing.axes import (
    ROW,
    SMALL,
    WIDTH,
    AxisRange,
    PlotArea,
    create_plot_area,
    draw_axes,
    estimate_text_length,
    place_legend,
)
from nnpipe.report.drawing.shapes import (
    Drawing,
    Path,
    Shape,
    TextLine,
    create_marker,
    create_rectangle,
    get_series_colour,
    stack_points,
)
from nnpipe.report.formatting import clean, shorten_distinctly

_AIRY = 8  # greatest number of distributions with wide spacing
_MOST_NAMED = 24  # greatest number of candidates that are named below a plot
_BEATEN = 0.45  # opacity of candidates that are not on the front


def draw_distributions(chart: Distributions) -> Drawing:
    """Return a drawing of distributions below each other, with their middle halves and medians."""
    count = len(chart.rows)
    height = 48.0 + (46 if count <= _AIRY else 34) * count
    x = AxisRange.from_values(
        [float(end) for row in chart.rows for end in (row.edges[0], row.edges[-1])],
        0.03,
        chart.log_x,
        6,
    )
    area = create_plot_area(height, x, AxisRange(-0.2, count - 0.25), left=8.0)
    shapes = draw_axes(area, chart.x_label, lines="x")
    pitch = (area.bottom - area.top) / (count - 0.05)
    labels = shorten_distinctly([clean(row.label) for row in chart.rows], 52)
    for number, row in enumerate(chart.rows):
        colour, base = get_series_colour(row.colour), count - 1 - number
        middles = np.concatenate(
            [row.edges[:1], (row.edges[1:] + row.edges[:-1]) / 2, row.edges[-1:]]
        )
        heights = base + 0.42 * np.concatenate([[0], row.heights, [0]])
        lower, middle, upper = row.quartiles
        shapes += [
            Path((area.to_coordinates(middles, heights),), fill=colour, opacity=0.45),
            Path((area.to_coordinates(row.edges[[0, -1]], [base, base]),), stroke=colour, width=1),
            Path((area.to_coordinates([lower, upper], [base, base]),), stroke=colour, width=4.5),
            Path(
                (create_marker(0, area.to_coordinates(middle, base), 3.0),),
                fill="page",
                stroke=colour,
                width=1.8,
            ),
            TextLine(area.left, float(area.to_y(base)) - 0.46 * pitch, labels[number], SMALL),
        ]
    return Drawing(WIDTH, height, tuple(shapes))


def draw_bars(chart: Bars) -> Drawing:
    """Return a drawing of horizontal bars, each with its name above it."""
    count = len(chart.bars)
    height = 44.0 + 36 * count
    longest = max(bar.value for bar in chart.bars) or 1.0
    area = create_plot_area(
        height, AxisRange(0.0, 1.2 * longest), AxisRange(-0.3, count - 0.3), left=8.0
    )
    shapes = draw_axes(area, chart.x_label, lines="x")
    labels = shorten_distinctly([clean(bar.label) for bar in chart.bars], 52)
    for number, bar in enumerate(chart.bars):
        base = count - 1 - number
        end, middle = area.to_coordinates(bar.value, base).tolist()
        shapes += [
            Path(
                (create_rectangle(area.left, middle - 6, end, middle + 6),),
                fill=get_series_colour(bar.colour),
            ),
            TextLine(area.left, middle - 9, labels[number], SMALL),
            TextLine(end + 4, middle + 4, clean(bar.text, 20), SMALL),
        ]
    return Drawing(WIDTH, height, tuple(shapes))


def draw_stacked_bars(chart: StackedBars) -> Drawing:
    """Return a drawing of bars whose parts are in a row, each bar with its name above it, and a
    legend.
    """
    count = len(chart.bars)
    keys = place_legend(chart.labels, 0, WIDTH - 20)
    above = ROW + keys[-1][1] + 6 if keys else 0.0
    height = 44.0 + 36 * count + above
    longest = max(float(bar.parts.sum()) for bar in chart.bars) or 1.0
    area = create_plot_area(
        height, AxisRange(0.0, 1.2 * longest), AxisRange(-0.3, count - 0.3), left=8.0, above=above
    )
    shapes = draw_axes(area, chart.x_label, lines="x")
    labels = shorten_distinctly([clean(bar.label) for bar in chart.bars], 52)
    for number, bar in enumerate(chart.bars):
        base = count - 1 - number
        ends = np.concatenate([[0.0], np.cumsum(bar.parts)])
        xs, middle = area.to_x(ends).tolist(), float(area.to_y(base))
        for place, label in enumerate(chart.labels):
            if bar.parts[place] > 0:
                part = create_rectangle(xs[place], middle - 7, xs[place + 1], middle + 7)
                tip = f"{label}: {bar.parts[place]:.3g}"
                shapes.append(
                    Path((part,), fill=get_series_colour(place), stroke="page", width=0.6, tip=tip)
                )
        shapes += [
            TextLine(area.left, middle - 10, labels[number], SMALL),
            TextLine(xs[-1] + 4, middle + 4, clean(bar.text, 20), SMALL),
        ]
    for place, (left, top, label) in enumerate(keys):
        shapes.append(
            Path(
                (create_rectangle(area.left + left, top + 4, area.left + left + 13, top + 12),),
                fill=get_series_colour(place),
            )
        )
        shapes.append(TextLine(area.left + left + 18, top + 12, label, SMALL))
    return Drawing(WIDTH, height, tuple(shapes))


def draw_scatter(chart: Scatter) -> Drawing:
    """Return a drawing of candidates as points, with the Pareto front and a legend."""
    named = _select_labelled_points(chart.points)
    labels = shorten_distinctly([clean(chart.points[number].label) for number in named], 52)
    more = len(chart.points) - len(named)
    if more:
        labels.append(f"and {more:,} more")
    # The legend has two columns if all names are short.
    columns = (
        2 if max(estimate_text_length(label, SMALL) for label in labels) < WIDTH / 2 - 26 else 1
    )
    rows = -(-len(labels) // columns)
    height = 212.0 + ROW * rows
    x = AxisRange.from_values(
        [end for p in chart.points for end in (p.x, *p.x_interval)], 0.08, chart.log_x, 6
    )
    y = AxisRange.from_values([end for p in chart.points for end in (p.y, *p.y_interval)], 0.08)
    area = create_plot_area(height, x, y, below=ROW * rows + 4)
    shapes = draw_axes(area, chart.x_label, chart.y_label)
    if chart.front:
        shapes += _draw_pareto_front(area, chart.points)
    # Points on the front are drawn last, on top of the others.
    for point in sorted(chart.points, key=lambda each: each.on_front):
        shapes += _draw_point(area, point)
    for place, label in enumerate(labels):
        column, row = divmod(place, rows)
        left, base = 8 + column * (WIDTH / 2 - 2), area.bottom + 36 + 13 + ROW * row
        on_front = place < len(named) and chart.points[named[place]].on_front
        if place < len(named):
            number = chart.points[named[place]].colour
            outline = create_marker(number, (left + 4, base - 4), 4.2)
            shapes.append(
                Path(
                    (outline,), fill=get_series_colour(number), opacity=1.0 if on_front else _BEATEN
                )
            )
        shapes.append(TextLine(left + 14, base, label, SMALL, "ink" if on_front else "muted"))
    return Drawing(WIDTH, height, tuple(shapes))


def _select_labelled_points(points: tuple[ChartPoint, ...]) -> list[int]:
    """Return the indices of the points that are named: all of them, or those on the front if
    there are many.
    """
    if len(points) <= _MOST_NAMED:
        return list(range(len(points)))
    return [number for number, point in enumerate(points) if point.on_front][:_MOST_NAMED]


def _draw_point(area: PlotArea, point: ChartPoint) -> list[Shape]:
    colour, opacity = get_series_colour(point.colour), 1.0 if point.on_front else _BEATEN
    place = area.to_coordinates(point.x, point.y)
    bars = (
        area.to_coordinates(
            [min(point.x, point.x_interval[0]), max(point.x, point.x_interval[1])],
            [point.y, point.y],
        ),
        area.to_coordinates(
            [point.x, point.x],
            [min(point.y, point.y_interval[0]), max(point.y, point.y_interval[1])],
        ),
    )
    return [
        Path(bars, stroke=colour, width=1.2, opacity=opacity),
        Path(
            (create_marker(point.colour, place, 4.5),),
            fill=colour,
            stroke="page",
            width=0.8,
            opacity=opacity,
            tip=point.tip or point.label,
        ),
    ]


def _draw_pareto_front(area: PlotArea, points: tuple[ChartPoint, ...]) -> list[Shape]:
    """Return the line of the Pareto front; up and to the left is better."""
    corners: list[tuple[float, float]] = []
    height = area.y.low
    for point in sorted(points, key=lambda p: (p.x, -p.y)):
        if point.y > height:
            corners += [(point.x, height), (point.x, point.y)]
            height = point.y
    corners.append((area.x.high, height))
    values = np.array(corners)
    return [
        Path(
            (area.to_coordinates(values[:, 0], values[:, 1]),), stroke="muted", width=1, dashed=True
        )
    ]


def draw_intervals(chart: Intervals) -> Drawing:
    """Return a drawing of values with intervals below each other, and a line at the neutral
    value.
    """
    count = len(chart.rows)
    height = 50.0 + 34 * count
    values = [end for row in chart.rows for end in (row.value, *(row.interval or ()))]
    x = AxisRange.from_values([*values, chart.neutral], 0.06, chart.log_x, 6)
    area = create_plot_area(height, x, AxisRange(-0.4, count - 0.3), left=8.0)
    shapes = draw_axes(area, chart.x_label, lines="x")
    neutral = float(area.to_x(chart.neutral))
    if chart.margin:
        low, high = area.to_x([chart.neutral - chart.margin, chart.neutral + chart.margin]).tolist()
        band = create_rectangle(max(low, area.left), area.top, min(high, area.right), area.bottom)
        shapes.append(Path((band,), fill="line", opacity=0.5))
    shapes.append(
        Path(
            (stack_points((neutral, area.top), (neutral, area.bottom)),),
            stroke="ink",
            width=0.9,
            dashed=True,
        )
    )
    labels = shorten_distinctly([clean(row.label) for row in chart.rows], 36)
    for number, row in enumerate(chart.rows):
        base, colour = count - 1 - number, get_series_colour(row.colour)
        opacity = 1.0 if row.clear else _BEATEN
        if row.interval is not None:
            shapes.append(
                Path(
                    (area.to_coordinates(row.interval, [base, base]),),
                    stroke=colour,
                    width=3,
                    opacity=opacity,
                )
            )
        place = area.to_coordinates(row.value, base).tolist()
        said = clean(row.text, 40)
        shapes += [
            # The background hides lines behind the text.
            _draw_text_background(
                area.left, place[1] - 8, estimate_text_length(labels[number], SMALL)
            ),
            _draw_text_background(
                area.right - 0.85 * estimate_text_length(said, SMALL),
                place[1] - 8,
                estimate_text_length(said, SMALL),
            ),
            Path(
                (create_marker(0, place, 3.6),),
                fill=colour if row.clear else "page",
                stroke=colour,
                width=1.6,
                tip=row.text,
            ),
            TextLine(area.left, place[1] - 8, labels[number], SMALL),
            TextLine(area.right, place[1] - 8, said, SMALL, "muted", "end"),
        ]
    return Drawing(WIDTH, height, tuple(shapes))


def _draw_text_background(left: float, base: float, width: float) -> Path:
    """Return a box in the page's colour behind a line of text, slightly narrower than the text's
    estimated length.
    """
    return Path(
        (create_rectangle(left - 1, base - SMALL, left + 0.85 * width, base + 3),), fill="page"
    )
