"""The drawing of charts that compare candidates."""

from __future__ import annotations

import numpy as np

from nnpipe.report.charts import Bars, ChartPoint, Intervals, Scatter, Spreads, StackedBars
from nnpipe.report.drawing.axes import ROW, SMALL, WIDTH, Plane, Span, frame, legend, length, plane
from nnpipe.report.drawing.shapes import Drawing, Path, Shape, Words, box, places, series, sign
from nnpipe.report.formatting import clean, distinct

_AIRY = 8  # greatest number of distributions with wide spacing
_MOST_NAMED = 24  # greatest number of candidates that are named below a plot
_BEATEN = 0.45  # opacity of candidates that are not on the front


def spreads(chart: Spreads) -> Drawing:
    """Return a drawing of distributions below each other, with their middle halves and medians."""
    count = len(chart.rows)
    height = 48.0 + (46 if count <= _AIRY else 34) * count
    x = Span.around(
        [float(end) for row in chart.rows for end in (row.edges[0], row.edges[-1])],
        0.03,
        chart.log_x,
        6,
    )
    area = plane(height, x, Span(-0.2, count - 0.25), left=8.0)
    shapes = frame(area, chart.x_label, lines="x")
    pitch = (area.bottom - area.top) / (count - 0.05)
    labels = distinct([clean(row.label) for row in chart.rows], 52)
    for number, row in enumerate(chart.rows):
        colour, base = series(row.colour), count - 1 - number
        middles = np.concatenate(
            [row.edges[:1], (row.edges[1:] + row.edges[:-1]) / 2, row.edges[-1:]]
        )
        heights = base + 0.42 * np.concatenate([[0], row.heights, [0]])
        lower, middle, upper = row.quartiles
        shapes += [
            Path((area.curve(middles, heights),), fill=colour, opacity=0.45),
            Path((area.curve(row.edges[[0, -1]], [base, base]),), stroke=colour, width=1),
            Path((area.curve([lower, upper], [base, base]),), stroke=colour, width=4.5),
            Path((sign(0, area.curve(middle, base), 3.0),), fill="page", stroke=colour, width=1.8),
            Words(area.left, float(area.up(base)) - 0.46 * pitch, labels[number], SMALL),
        ]
    return Drawing(WIDTH, height, tuple(shapes))


def bars(chart: Bars) -> Drawing:
    """Return a drawing of horizontal bars, each with its name above it."""
    count = len(chart.bars)
    height = 44.0 + 36 * count
    longest = max(bar.value for bar in chart.bars) or 1.0
    area = plane(height, Span(0.0, 1.2 * longest), Span(-0.3, count - 0.3), left=8.0)
    shapes = frame(area, chart.x_label, lines="x")
    labels = distinct([clean(bar.label) for bar in chart.bars], 52)
    for number, bar in enumerate(chart.bars):
        base = count - 1 - number
        end, middle = area.curve(bar.value, base).tolist()
        shapes += [
            Path((box(area.left, middle - 6, end, middle + 6),), fill=series(bar.colour)),
            Words(area.left, middle - 9, labels[number], SMALL),
            Words(end + 4, middle + 4, clean(bar.text, 20), SMALL),
        ]
    return Drawing(WIDTH, height, tuple(shapes))


def stacked_bars(chart: StackedBars) -> Drawing:
    """Return a drawing of bars whose parts are in a row, each bar with its name above it, and a
    legend.
    """
    count = len(chart.bars)
    keys = legend(chart.labels, 0, WIDTH - 20)
    above = ROW + keys[-1][1] + 6 if keys else 0.0
    height = 44.0 + 36 * count + above
    longest = max(float(bar.parts.sum()) for bar in chart.bars) or 1.0
    area = plane(height, Span(0.0, 1.2 * longest), Span(-0.3, count - 0.3), left=8.0, above=above)
    shapes = frame(area, chart.x_label, lines="x")
    labels = distinct([clean(bar.label) for bar in chart.bars], 52)
    for number, bar in enumerate(chart.bars):
        base = count - 1 - number
        ends = np.concatenate([[0.0], np.cumsum(bar.parts)])
        xs, middle = area.across(ends).tolist(), float(area.up(base))
        for place, label in enumerate(chart.labels):
            if bar.parts[place] > 0:
                part = box(xs[place], middle - 7, xs[place + 1], middle + 7)
                tip = f"{label}: {bar.parts[place]:.3g}"
                shapes.append(Path((part,), fill=series(place), stroke="page", width=0.6, tip=tip))
        shapes += [
            Words(area.left, middle - 10, labels[number], SMALL),
            Words(xs[-1] + 4, middle + 4, clean(bar.text, 20), SMALL),
        ]
    for place, (left, top, label) in enumerate(keys):
        shapes.append(
            Path(
                (box(area.left + left, top + 4, area.left + left + 13, top + 12),),
                fill=series(place),
            )
        )
        shapes.append(Words(area.left + left + 18, top + 12, label, SMALL))
    return Drawing(WIDTH, height, tuple(shapes))


def scatter(chart: Scatter) -> Drawing:
    """Return a drawing of candidates as points, with the Pareto front and a legend."""
    named = _named(chart.points)
    labels = distinct([clean(chart.points[number].label) for number in named], 52)
    more = len(chart.points) - len(named)
    if more:
        labels.append(f"and {more:,} more")
    # The legend has two columns if all names are short.
    columns = 2 if max(length(label, SMALL) for label in labels) < WIDTH / 2 - 26 else 1
    rows = -(-len(labels) // columns)
    height = 212.0 + ROW * rows
    x = Span.around(
        [end for p in chart.points for end in (p.x, *p.x_interval)], 0.08, chart.log_x, 6
    )
    y = Span.around([end for p in chart.points for end in (p.y, *p.y_interval)], 0.08)
    area = plane(height, x, y, below=ROW * rows + 4)
    shapes = frame(area, chart.x_label, chart.y_label)
    if chart.front:
        shapes += _front(area, chart.points)
    # Points on the front are drawn last, on top of the others.
    for point in sorted(chart.points, key=lambda each: each.on_front):
        shapes += _point(area, point)
    for place, label in enumerate(labels):
        column, row = divmod(place, rows)
        left, base = 8 + column * (WIDTH / 2 - 2), area.bottom + 36 + 13 + ROW * row
        on_front = place < len(named) and chart.points[named[place]].on_front
        if place < len(named):
            number = chart.points[named[place]].colour
            outline = sign(number, (left + 4, base - 4), 4.2)
            shapes.append(
                Path((outline,), fill=series(number), opacity=1.0 if on_front else _BEATEN)
            )
        shapes.append(Words(left + 14, base, label, SMALL, "ink" if on_front else "muted"))
    return Drawing(WIDTH, height, tuple(shapes))


def _named(points: tuple[ChartPoint, ...]) -> list[int]:
    """Return the indices of the points that are named: all of them, or those on the front if
    there are many.
    """
    if len(points) <= _MOST_NAMED:
        return list(range(len(points)))
    return [number for number, point in enumerate(points) if point.on_front][:_MOST_NAMED]


def _point(area: Plane, point: ChartPoint) -> list[Shape]:
    colour, opacity = series(point.colour), 1.0 if point.on_front else _BEATEN
    place = area.curve(point.x, point.y)
    bars = (
        area.curve(
            [min(point.x, point.x_interval[0]), max(point.x, point.x_interval[1])],
            [point.y, point.y],
        ),
        area.curve(
            [point.x, point.x],
            [min(point.y, point.y_interval[0]), max(point.y, point.y_interval[1])],
        ),
    )
    return [
        Path(bars, stroke=colour, width=1.2, opacity=opacity),
        Path(
            (sign(point.colour, place, 4.5),),
            fill=colour,
            stroke="page",
            width=0.8,
            opacity=opacity,
            tip=point.tip or point.label,
        ),
    ]


def _front(area: Plane, points: tuple[ChartPoint, ...]) -> list[Shape]:
    """Return the line of the Pareto front; up and to the left is better."""
    corners: list[tuple[float, float]] = []
    height = area.y.low
    for point in sorted(points, key=lambda p: (p.x, -p.y)):
        if point.y > height:
            corners += [(point.x, height), (point.x, point.y)]
            height = point.y
    corners.append((area.x.high, height))
    values = np.array(corners)
    return [Path((area.curve(values[:, 0], values[:, 1]),), stroke="muted", width=1, dashed=True)]


def intervals(chart: Intervals) -> Drawing:
    """Return a drawing of values with intervals below each other, and a line at the neutral
    value.
    """
    count = len(chart.rows)
    height = 50.0 + 34 * count
    values = [end for row in chart.rows for end in (row.value, *(row.interval or ()))]
    x = Span.around([*values, chart.neutral], 0.06, chart.log_x, 6)
    area = plane(height, x, Span(-0.4, count - 0.3), left=8.0)
    shapes = frame(area, chart.x_label, lines="x")
    neutral = float(area.across(chart.neutral))
    if chart.margin:
        low, high = area.across(
            [chart.neutral - chart.margin, chart.neutral + chart.margin]
        ).tolist()
        band = box(max(low, area.left), area.top, min(high, area.right), area.bottom)
        shapes.append(Path((band,), fill="line", opacity=0.5))
    shapes.append(
        Path(
            (places((neutral, area.top), (neutral, area.bottom)),),
            stroke="ink",
            width=0.9,
            dashed=True,
        )
    )
    labels = distinct([clean(row.label) for row in chart.rows], 36)
    for number, row in enumerate(chart.rows):
        base, colour = count - 1 - number, series(row.colour)
        opacity = 1.0 if row.clear else _BEATEN
        if row.interval is not None:
            shapes.append(
                Path(
                    (area.curve(row.interval, [base, base]),),
                    stroke=colour,
                    width=3,
                    opacity=opacity,
                )
            )
        place = area.curve(row.value, base).tolist()
        said = clean(row.text, 40)
        shapes += [
            # The background hides lines behind the text.
            _ground(area.left, place[1] - 8, length(labels[number], SMALL)),
            _ground(area.right - 0.85 * length(said, SMALL), place[1] - 8, length(said, SMALL)),
            Path(
                (sign(0, place, 3.6),),
                fill=colour if row.clear else "page",
                stroke=colour,
                width=1.6,
                tip=row.text,
            ),
            Words(area.left, place[1] - 8, labels[number], SMALL),
            Words(area.right, place[1] - 8, said, SMALL, "muted", "end"),
        ]
    return Drawing(WIDTH, height, tuple(shapes))


def _ground(left: float, base: float, width: float) -> Path:
    """Return a box in the page's colour behind a line of text, slightly narrower than the text's
    estimated length.
    """
    return Path((box(left - 1, base - SMALL, left + 0.85 * width, base + 3),), fill="page")
