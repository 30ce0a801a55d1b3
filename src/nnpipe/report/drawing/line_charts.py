"""The drawing of curves, stacked areas and histograms."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from nnpipe.report.charts import (
    Areas,
    ChartAxis,
    Floats,
    Histogram,
    Line,
    Lines,
    ParallelAxes,
    ParallelLines,
    PointGroup,
    PointLine,
    Points,
)
from nnpipe.report.drawing.axes import (
    NAME,
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
    SERIES,
    Drawing,
    Path,
    Shape,
    TextLine,
    create_marker,
    create_rectangle,
    get_series_colour,
    stack_points,
)
from nnpipe.report.formatting import NOTHING, clean

_MARKED = 60  # curves with fewer points have a marker at each point
_KEYS = 2  # rows of names above a chart; with more it is higher


def draw_lines(chart: Lines) -> Drawing:
    """Return a drawing of curves with their bands."""
    y = _compute_y_range(chart)
    x = AxisRange.from_values(
        _find_extremes([line.x for line in chart.lines]), 0.01, chart.log_x, divisions=6
    )
    keys = (
        place_legend([line.label for line in chart.lines], 0, WIDTH - 60)
        if len(chart.lines) > 1
        else []
    )
    above = ROW + keys[-1][1] if keys else 0.0
    height = (155.0 if chart.flat else 200.0) + max(0.0, above - _KEYS * ROW)
    area = create_plot_area(height, x, y, above=above)
    shapes = draw_axes(area, chart.x_label, chart.y_label)
    for number, line in enumerate(chart.lines):
        colour, again = _select_line_style(number, line)
        if line.low is not None and line.high is not None:
            band = np.concatenate(
                [
                    area.to_coordinates(line.x, line.high),
                    area.to_coordinates(line.x, line.low)[::-1],
                ]
            )
            shapes.append(Path((band,), fill=colour, opacity=0.28))
        curve = area.to_coordinates(line.x, line.y)
        if not line.loose:
            shapes.append(Path((curve,), stroke=colour, dashed=again))
        if len(curve) < _MARKED or line.loose:
            shapes.append(Path(tuple(create_marker(0, place, 1.5) for place in curve), fill=colour))
    # one has no key
    for number, (line, (left, top, label)) in enumerate(zip(chart.lines, keys, strict=False)):
        colour, again = _select_line_style(number, line)
        if line.loose:
            shapes.append(
                Path((create_marker(0, (area.left + left + 6.5, top + 8.5), 2.5),), fill=colour)
            )
        else:
            stroke = stack_points((area.left + left, top + 8.5), (area.left + left + 13, top + 8.5))
            shapes.append(Path((stroke,), stroke=colour, width=2, dashed=again))
        shapes.append(TextLine(area.left + left + 18, top + 12, label, SMALL))
    return Drawing(WIDTH, height, tuple(shapes))


def _select_line_style(number: int, line: Line) -> tuple[str, bool]:
    """Return the colour of a line, and whether it is dashed because another one has that colour."""
    return ("ink", False) if line.loose else (get_series_colour(number), number >= SERIES)


def draw_areas(chart: Areas) -> Drawing:
    """Return a drawing of stacked areas."""
    x, layers = chart.x, [layer for _, layer in chart.layers]
    if len(x) == 1:  # an area needs two points
        x, layers = x[0] + np.array([-0.5, 0.5]), [np.repeat(layer, 2) for layer in layers]
    tops = np.cumsum(np.stack([np.zeros(len(x)), *layers]), axis=0)
    keys = place_legend([label for label, _ in chart.layers], 0, WIDTH - 60)
    top = float(np.max(tops[-1]))
    area = create_plot_area(
        210.0,
        AxisRange.from_values(_find_extremes([x]), 0.0, divisions=6),
        AxisRange(0.0, 1.05 * top or 1.0),
        above=ROW + keys[-1][1],
    )
    shapes = draw_axes(area, chart.x_label, chart.y_label)
    for number, (low, high) in enumerate(pairwise(tops)):
        band = np.concatenate([area.to_coordinates(x, high), area.to_coordinates(x, low)[::-1]])
        shapes.append(Path((band,), fill=get_series_colour(number)))
    for number, (left, above, label) in enumerate(keys):
        swatch = create_rectangle(area.left + left, above + 4, area.left + left + 13, above + 12)
        shapes.append(Path((swatch,), fill=get_series_colour(number)))
        shapes.append(TextLine(area.left + left + 18, above + 12, label, SMALL))
    return Drawing(WIDTH, 210.0, tuple(shapes))


def draw_histogram(chart: Histogram) -> Drawing:
    """Return a drawing of a histogram with its marks."""
    x = AxisRange.from_values(
        (float(chart.edges[0]), float(chart.edges[-1])), 0.02, chart.log_x, divisions=5
    )
    y = AxisRange(0.0, 1.05 * max(float(np.max(chart.counts)), 1.0), divisions=5, whole=True)
    marks = sorted(chart.marks, key=lambda mark: mark[1])
    levels = _compute_label_rows(x.shares([value for _, value in marks]))
    above = 0.85 * ROW * (max(levels) + 1) if marks else 0.0
    area = create_plot_area(200.0, x, y, above=above)
    shapes = draw_axes(area, chart.x_label, chart.y_label, lines="y")
    outline = area.to_coordinates(
        np.repeat(chart.edges, 2), np.concatenate([[0], np.repeat(chart.counts, 2), [0]])
    )
    shapes.append(Path((outline,), fill="series-0", opacity=0.85))
    for (label, value), level in zip(marks, levels, strict=True):
        shapes += _draw_mark(
            float(area.to_x(value)), area.top, area.bottom, clean(label, 20), level
        )
    return Drawing(WIDTH, 200.0, tuple(shapes))


def _draw_mark(x: float, top: float, bottom: float, label: str, level: int) -> list[Shape]:
    line = Path((stack_points((x, top), (x, bottom)),), stroke="ink", width=0.9, dashed=True)
    # Near an edge, a label is moved beside its mark, so that it stays in the picture.
    half = estimate_text_length(label, SMALL) / 2
    middle = min(max(x, half + 1), WIDTH - half - 1)
    return [line, TextLine(middle, top - 4 - 0.85 * ROW * level, label, SMALL, anchor="middle")]


def _compute_label_rows(shares: Floats) -> list[int]:
    """Return the row of each label; a label that would overlap the one before is one row higher."""
    found: list[int] = []
    last = -np.inf
    for share in shares.tolist():
        found.append(found[-1] + 1 if found and share - last < 0.14 else 0)
        last = share
    return found


def _compute_y_range(chart: Lines) -> AxisRange:
    ends = _find_extremes(
        [bound for line in chart.lines for bound in _list_known(line.y, line.low, line.high)]
    )
    if chart.log_y:
        return AxisRange.from_values(ends, 0.03, log=True)
    if min(ends) < 0:
        return AxisRange.from_values(ends, 0.03)
    top = max(float(np.max(line.y if line.high is None else line.high)) for line in chart.lines)
    return AxisRange(0.0, 1.05 * max(top, chart.top) or 1.0)


def _list_known(*given: Floats | None) -> list[Floats]:
    return [values for values in given if values is not None]


def _find_extremes(given: list[Floats]) -> list[float]:
    return [
        float(end) for values in given if len(values) for end in (np.min(values), np.max(values))
    ]


_HEIGHT = 210.0
_RADIUS, _TIPPED = 1.9, 3.2  # of points without and with tips
_NAMES, _LONGEST = 12, 14  # greatest number of names of choices, and of letters of each
_PITCH, _EDGE = 46.0, 10.0  # from one parallel axis to the next, and beside them
_NONE = 26.0  # room at the end of a parallel axis for lines that have no value on it
_ANGLES = np.linspace(0, 2 * np.pi, 8, endpoint=False)
# few corners, because there are many points
_DOT = np.stack([np.sin(_ANGLES), -np.cos(_ANGLES)], axis=1)


def draw_points(chart: Points) -> Drawing:
    """Return a drawing of points over two axes."""
    keys = _map_label_colours([*chart.groups, *chart.lines])
    rows = place_legend(list(keys), 0, WIDTH - 40) if len(keys) > 1 else []
    above = ROW + rows[-1][1] if rows else 0.0
    height = _HEIGHT + above
    area = create_plot_area(
        height, _create_axis_range(chart.x), _create_axis_range(chart.y, divisions=5), above=above
    )
    shapes = draw_axes(area, chart.x.label, chart.y.label)
    for group in chart.groups:
        shapes += _draw_point_group(area, group)
    for line in chart.lines:
        curve = _clip_coordinates(area, line.x, line.y)
        shapes.append(
            Path(
                (curve,),
                stroke=get_series_colour(line.colour),
                width=line.width,
                opacity=line.strength,
                dashed=line.dashed,
            )
        )
    return Drawing(WIDTH, height, (*shapes, *_draw_legend(rows, keys, area.left)))


def draw_parallel_axes(chart: ParallelAxes) -> Drawing:
    """Return a drawing of lines across axes that lie below each other; where one has no value,
    it passes at the end.
    """
    keys = _map_label_colours(chart.groups)
    rows = place_legend(list(keys), 0, WIDTH - 40) if len(keys) > 1 else []
    above = (ROW + rows[-1][1] if rows else 0.0) + 22
    height = above + _PITCH * (len(chart.axes) - 1) + 24
    spans = [_create_axis_range(axis) for axis in chart.axes]
    levels = above + _PITCH * np.arange(len(chart.axes))
    left, right = _EDGE, WIDTH - _EDGE
    absent = np.isnan(np.concatenate([group.values for group in chart.groups])).any(axis=0)
    ends = [right - _NONE if missing else right for missing in absent.tolist()]
    shapes: list[Shape] = []
    for group in chart.groups:
        across = []
        for values, span, end in zip(group.values.T, spans, ends, strict=True):
            along = left + np.clip(span.shares(values), 0.0, 1.0) * (end - left)
            across.append(np.where(np.isnan(values), right, along))
        # Lines at the same places are drawn once.
        lines = np.unique(np.round(np.stack(across, axis=1), 1), axis=0)
        curves = tuple(np.stack([row, levels], axis=1) for row in lines)
        if curves:
            shapes.append(
                Path(
                    curves,
                    stroke=get_series_colour(group.colour),
                    width=1.0,
                    opacity=group.strength,
                )
            )
    for axis, span, level, end in zip(chart.axes, spans, levels.tolist(), ends, strict=True):
        shapes += _draw_parallel_axis(axis, span, level, left, end)
        if end < right:
            shapes.append(
                Path(
                    (stack_points((right, level - 3), (right, level + 3)),), stroke="ink", width=0.8
                )
            )
            shapes.append(TextLine(right, level + 4 + SMALL, NOTHING, SMALL, "muted", "middle"))
    return Drawing(WIDTH, height, (*shapes, *_draw_legend(rows, keys, _EDGE)))


def _draw_parallel_axis(
    axis: ChartAxis, span: AxisRange, level: float, left: float, right: float
) -> Iterator[Shape]:
    label = clean(axis.label, 44)
    yield Path((stack_points((left, level), (right, level)),), stroke="ink", width=1.2)
    ticks = span.find_ticks()
    at = (left + span.shares(ticks) * (right - left)).tolist()
    yield Path(
        tuple(stack_points((x, level - 3), (x, level + 3)) for x in at), stroke="ink", width=0.8
    )
    # Texts lie over lines: the page's colour behind them keeps them readable.
    yield _draw_text_background(left, level - 8, estimate_text_length(label, NAME))
    yield TextLine(left, level - 8, label, NAME)
    end = -np.inf
    for x, tick in zip(at, ticks, strict=True):
        text = span.text(tick)
        half = estimate_text_length(text, SMALL) / 2
        middle = min(max(x, left + half - _EDGE + 1), right - half + _EDGE - 1)
        if middle - half > end:
            end = middle + half + 4
            yield _draw_text_background(middle - 0.85 * half, level + 4 + SMALL, 2 * half)
            yield TextLine(middle, level + 4 + SMALL, text, SMALL, "muted", "middle")


def _draw_text_background(left: float, base: float, width: float) -> Path:
    return Path(
        (create_rectangle(left - 1, base - SMALL, left + 0.9 * width, base + 3),),
        fill="page",
        opacity=0.85,
    )


def _draw_point_group(area: PlotArea, group: PointGroup) -> Iterator[Shape]:
    colour = get_series_colour(group.colour)
    at = _clip_coordinates(area, group.x, group.y)
    bars = []
    if group.x_ends is not None:
        bars += [
            _clip_coordinates(area, ends, [y, y])
            for ends, y in zip(group.x_ends, group.y, strict=True)
        ]
    if group.y_ends is not None:
        bars += [
            _clip_coordinates(area, [x, x], ends)
            for ends, x in zip(group.y_ends, group.x, strict=True)
        ]
    if bars:
        yield Path(tuple(bars), stroke=colour, width=1.1, opacity=group.strength)
    if not group.tips:
        outline = (
            _DOT * _RADIUS if group.marker == 0 else create_marker(group.marker, (0, 0), _RADIUS)
        )
        # Points at the same place are drawn once.
        dots = tuple(outline + place for place in np.unique(np.round(at, 1), axis=0))
        if dots:
            yield Path(dots, fill=colour, opacity=group.strength)
        return
    for place, tip in zip(at, group.tips, strict=True):
        outline = create_marker(group.marker, place, _TIPPED)
        yield Path(
            (outline,), fill=colour, stroke="page", width=0.6, opacity=group.strength, tip=tip
        )


def _clip_coordinates(area: PlotArea, x: npt.ArrayLike, y: npt.ArrayLike) -> Floats:
    """Return the coordinates of points, those beyond an end of an axis at the end."""
    found = area.to_coordinates(x, y)
    return np.stack(
        [np.clip(found[:, 0], area.left, area.right), np.clip(found[:, 1], area.top, area.bottom)],
        axis=1,
    )


def _create_axis_range(axis: ChartAxis, divisions: int = 6) -> AxisRange:
    if axis.names:
        every = -(-len(axis.names) // _NAMES)
        names = tuple(
            clean(name, _LONGEST) if number % every == 0 else ""
            for number, name in enumerate(axis.names)
        )
        return AxisRange(-0.6, len(axis.names) - 0.4, names=names)
    return AxisRange.from_values((axis.low, axis.high), 0.03, axis.log, divisions)


def _map_label_colours(groups: Iterable[PointGroup | PointLine | ParallelLines]) -> dict[str, int]:
    """Return the colours by label, each once."""
    found: dict[str, int] = {}
    for group in groups:
        if group.label:
            found.setdefault(group.label, group.colour)
    return found


def _draw_legend(
    rows: Sequence[tuple[float, float, str]], keys: dict[str, int], left: float
) -> Iterator[Shape]:
    for (x, top, label), colour in zip(rows, keys.values(), strict=False):
        yield Path(
            (create_rectangle(left + x, top + 4, left + x + 13, top + 12),),
            fill=get_series_colour(colour),
        )
        yield TextLine(left + x + 18, top + 12, label, SMALL)
