"""The drawing of a graph as boxes in layers from top to bottom, shaded by a value.

The layout is that of K. Sugiyama, S. Tagawa and M. Toda, "Methods for visual understanding of
hierarchical system structures" (IEEE Transactions on Systems, Man, and Cybernetics 11, 1981): each
box is one layer below the lowest of those before it, arrows over several layers pass through places
of their own, and places are put below those that they come from.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from nnpipe.report.charts import BoxedFrame, BoxGraph, BoxGroup
from nnpipe.report.drawing.axes import ROW, SMALL, WIDTH, estimate_text_length, place_legend
from nnpipe.report.drawing.shapes import (
    Drawing,
    Path,
    Photo,
    Shape,
    TextLine,
    create_marker,
    create_rectangle,
    get_series_colour,
    stack_points,
)
from nnpipe.report.formatting import clean, shorten

_BOX, _PASS, _TALL, _PITCH, _GAP = 176.0, 12.0, 30.0, 50.0, 12.0
_LETTERS = 28  # as many as fit into a box
_SHADES = 0.7  # opacity of the greatest value: text remains legible
_GAMMA = 0.6  # of the shades, which tells small values from 0
_SWEEPS = 4
_TOP = 34.0


def draw_box_graph(chart: BoxGraph) -> Drawing:
    """Return a drawing of a graph; its width and height grow with the graph."""
    rows, paths = _find_layers(chart)
    _sort_layers(rows, paths)
    centres, width = _compute_node_centres(rows, len(chart.boxes))
    tops = {node: _TOP + _PITCH * number for number, row in enumerate(rows) for node in row}
    shapes: list[Shape] = [
        Path((create_rectangle(8, 8, 21, 16),), fill="series-1", opacity=_SHADES),
        TextLine(26, 16, clean(chart.scale_label, 80), SMALL),
    ]
    for path in paths:
        line = [(centres[path[0]], tops[path[0]] + _TALL)]
        for node in path[1:-1]:
            line += [(centres[node], tops[node]), (centres[node], tops[node] + _TALL)]
        line.append((centres[path[-1]], tops[path[-1]] - 1))
        x, y = line[-1]
        head = stack_points((x - 3, y - 5), (x + 3, y - 5), (x, y))
        shapes += [
            Path((stack_points(*line),), stroke="muted", width=0.7),
            Path((head,), fill="muted"),
        ]
    for number, each in enumerate(chart.boxes):
        left, top = centres[number] - _BOX / 2, tops[number]
        area = create_rectangle(left, top, left + _BOX, top + _TALL)
        shade = _SHADES * float(np.clip(each.shade, 0, 1)) ** _GAMMA
        outline = np.concatenate([area, area[:1]])
        shapes.append(Path((area,), fill="page"))
        if shade > 0:
            shapes.append(Path((area,), fill="series-1", opacity=shade))
        shapes.append(Path((outline,), stroke="muted", width=0.8, tip=each.tip))
        for offset, text in ((12, each.label), (24, each.detail)):
            middle = centres[number]
            shapes.append(
                TextLine(
                    middle,
                    top + offset,
                    shorten(clean(text), _LETTERS),
                    SMALL - 1,
                    anchor="middle",
                )
            )
    return Drawing(width, _TOP + _PITCH * len(rows), tuple(shapes))


def _find_layers(chart: BoxGraph) -> tuple[list[list[int]], list[list[int]]]:
    """Return the nodes of each layer, and each arrow as a path of nodes through all layers
    between its ends.
    """
    before: dict[int, list[int]] = {}
    for source, target in chart.arrows:
        before.setdefault(target, []).append(source)
    level: list[int] = []
    for number in range(len(chart.boxes)):  # in an order in which they can be computed
        level.append(1 + max((level[each] for each in before.get(number, ())), default=-1))
    rows: list[list[int]] = [[] for _ in range(max(level, default=-1) + 1)]
    for number, at in enumerate(level):
        rows[at].append(number)
    paths, following = [], len(chart.boxes)
    for source, target in chart.arrows:
        path = [source]
        for at in range(level[source] + 1, level[target]):
            rows[at].append(following)
            path.append(following)
            following += 1
        paths.append([*path, target])
    return rows, paths


def _sort_layers(rows: list[list[int]], paths: list[list[int]]) -> None:
    """Put the nodes of each layer below those that they come from, and above those that they
    lead to.
    """
    above: dict[int, list[int]] = {}
    below: dict[int, list[int]] = {}
    for path in paths:
        for one, other in itertools.pairwise(path):
            above.setdefault(other, []).append(one)
            below.setdefault(one, []).append(other)
    for sweep in range(_SWEEPS):
        near, order = (above, rows) if sweep % 2 == 0 else (below, rows[::-1])
        for previous, row in itertools.pairwise(order):
            at = {node: place / max(1, len(previous) - 1) for place, node in enumerate(previous)}
            own = {node: place / max(1, len(row) - 1) for place, node in enumerate(row)}
            mean = {
                n: float(np.mean([at[each] for each in near[n]])) if n in near else own[n]
                for n in row
            }
            row.sort(key=mean.__getitem__)


def _compute_node_centres(rows: list[list[int]], boxes: int) -> tuple[dict[int, float], float]:
    """Return the middle of each node, with each layer in the middle of the picture, and the
    width of that.
    """

    def get_width(node: int) -> float:
        return (_BOX if node < boxes else _PASS) + _GAP

    width = max((sum(map(get_width, row)) for row in rows), default=0.0) + 2 * _GAP
    width = max(width, 300.0)
    centres: dict[int, float] = {}
    for row in rows:
        x = (width - sum(map(get_width, row))) / 2
        for node in row:
            centres[node] = x + get_width(node) / 2
            x += get_width(node)
    return centres, width


_TALLEST = 1.2  # times the width
_MOST_EDGE_LETTERS = 24
Corners = tuple[float, float, float, float]
"""Left, top, right and bottom, in points."""


def draw_boxed_frame(chart: BoxedFrame) -> Drawing:
    """Return a drawing of the frame with its boxes and lines; those of the truth are broken."""
    keys = place_legend([group.label for group in chart.groups], 0, WIDTH - 20)
    above = ROW + keys[-1][1] + 4 if keys else 4.0
    scale = min((WIDTH - 4) / chart.width, _TALLEST * WIDTH / chart.height)
    width, height = chart.width * scale, chart.height * scale
    left = (WIDTH - width) / 2
    corners = create_rectangle(left, above, left + width, above + height)
    shapes: list[Shape] = [Path((corners,), fill="line", opacity=0.35)]
    for (start, top, label), group in zip(keys, chart.groups, strict=True):
        colour, dashed = _select_box_style(group)
        line = stack_points((2 + start, top + 8.5), (15 + start, top + 8.5))
        shapes += [
            Path((line,), stroke=colour, width=2, dashed=dashed),
            TextLine(20 + start, top + 12, label, SMALL),
        ]
    if chart.picture:
        shapes.append(Photo(left, above, width, height, chart.picture))
    labels: list[tuple[Corners, str, str, bool]] = []
    for group in reversed(chart.groups):  # broken lines stay visible on others
        colour, dashed = _select_box_style(group)
        for (x, y, w, h), text in zip(group.boxes.tolist(), group.texts, strict=True):
            ends = np.clip([x, y, x + w, y + h], 0, [chart.width, chart.height] * 2) * scale
            edges = (left + ends[0], above + ends[1], left + ends[2], above + ends[3])
            outline = create_rectangle(*edges)
            shapes.append(
                Path(
                    (np.concatenate([outline, outline[:1]]),),
                    stroke=colour,
                    width=1.6,
                    dashed=dashed,
                    tip=text,
                )
            )
            labels.append((edges, shorten(clean(text), _MOST_EDGE_LETTERS), colour, dashed))
        extent = np.array([chart.width, chart.height])
        for points in (np.clip(line, 0, extent) * scale + (left, above) for line in group.lines):
            if len(points) > 1:
                shapes.append(Path((points,), stroke=colour, width=1.6, dashed=dashed))
            shapes.append(
                Path(tuple(create_marker(0, point, 2.0) for point in points), fill=colour)
            )
    shapes += _draw_box_labels(labels, (left, above, left + width, above + height))
    return Drawing(WIDTH, above + height + 4, tuple(shapes))


def _draw_box_labels(
    labels: Sequence[tuple[Corners, str, str, bool]], frame: Corners
) -> Iterator[Shape]:
    """Yield the texts of boxes, each on a ground of its own and, where there is room, apart from
    the others.

    Texts of predictions begin at the upper edge of their box, those of the truth at the lower edge.
    """
    taken: list[Corners] = []
    for (left, top, right, bottom), text, colour, below in labels:
        if not text:
            continue
        wide = estimate_text_length(text, SMALL)
        inside, outside = (bottom - 2, bottom + SMALL) if below else (top + SMALL, top - 3)
        other, far = (top + SMALL, top - 3) if below else (bottom - 2, bottom + SMALL)
        columns = [max(1.0, min(x, WIDTH - wide - 1)) for x in (left + 2, right - wide - 2)]
        rows = [max(SMALL, min(y, frame[3])) for y in (inside, outside, other, far)]
        spots = [(x - 1, y - SMALL + 1, x + wide + 1, y + 2.5) for y in rows for x in columns]
        spot = min(
            spots,
            key=lambda each: (
                sum(_compute_overlap_area(each, one) for one in taken)
                + _compute_outside_area(each, frame)
            ),
        )
        taken.append(spot)
        yield Path((create_rectangle(*spot),), fill="page", opacity=0.75)
        yield TextLine(spot[0] + 1, spot[3] - 2.5, text, SMALL, colour)


def _compute_overlap_area(one: Corners, other: Corners) -> float:
    """Return the area that two boxes share."""
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    return max(width, 0.0) * max(height, 0.0)


def _compute_outside_area(one: Corners, frame: Corners) -> float:
    """Return the area of a box that is outside of the frame."""
    return (one[2] - one[0]) * (one[3] - one[1]) - _compute_overlap_area(one, frame)


def _select_box_style(group: BoxGroup) -> tuple[str, bool]:
    return ("ink", True) if group.colour < 0 else (get_series_colour(group.colour), False)
