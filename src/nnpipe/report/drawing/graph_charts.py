"""The drawing of a graph as boxes in layers from top to bottom, shaded by a value.

The layout is that of K. Sugiyama, S. Tagawa and M. Toda, "Methods for visual understanding of hierarchical system
structures" (IEEE Transactions on Systems, Man, and Cybernetics 11, 1981): each box is one layer below the lowest of
those before it, arrows over several layers pass through places of their own, and places are put below those that they
come from.
"""

from __future__ import annotations

import itertools

import numpy as np

from nnpipe.report.charts import BoxGraph
from nnpipe.report.drawing.axes import SMALL
from nnpipe.report.drawing.shapes import Drawing, Path, Shape, Words, box, places
from nnpipe.report.formatting import clean, shortened

_BOX, _PASS, _TALL, _PITCH, _GAP = 176.0, 12.0, 30.0, 50.0, 12.0
_LETTERS = 28  # as many as fit into a box
_SHADES = 0.7  # opacity of the greatest value: text remains legible
_GAMMA = 0.6  # of the shades, which tells small values from 0
_SWEEPS = 4
_TOP = 34.0


def box_graph(chart: BoxGraph) -> Drawing:
    """Return a drawing of a graph; its width and height grow with the graph."""
    rows, paths = _layers(chart)
    _order(rows, paths)
    centres, width = _centres(rows, len(chart.boxes))
    tops = {node: _TOP + _PITCH * number for number, row in enumerate(rows) for node in row}
    shapes: list[Shape] = [
        Path((box(8, 8, 21, 16),), fill="series-1", opacity=_SHADES),
        Words(26, 16, clean(chart.scale_label, 80), SMALL),
    ]
    for path in paths:
        line = [(centres[path[0]], tops[path[0]] + _TALL)]
        for node in path[1:-1]:
            line += [(centres[node], tops[node]), (centres[node], tops[node] + _TALL)]
        line.append((centres[path[-1]], tops[path[-1]] - 1))
        x, y = line[-1]
        head = places((x - 3, y - 5), (x + 3, y - 5), (x, y))
        shapes += [Path((places(*line),), stroke="muted", width=0.7), Path((head,), fill="muted")]
    for number, each in enumerate(chart.boxes):
        left, top = centres[number] - _BOX / 2, tops[number]
        area = box(left, top, left + _BOX, top + _TALL)
        shade = _SHADES * float(np.clip(each.shade, 0, 1)) ** _GAMMA
        outline = np.concatenate([area, area[:1]])
        shapes.append(Path((area,), fill="page"))
        if shade > 0:
            shapes.append(Path((area,), fill="series-1", opacity=shade))
        shapes.append(Path((outline,), stroke="muted", width=0.8, tip=each.tip))
        for offset, text in ((12, each.label), (24, each.detail)):
            middle = centres[number]
            shapes.append(Words(middle, top + offset, shortened(clean(text), _LETTERS), SMALL - 1, anchor="middle"))
    return Drawing(width, _TOP + _PITCH * len(rows), tuple(shapes))


def _layers(chart: BoxGraph) -> tuple[list[list[int]], list[list[int]]]:
    """Return the nodes of each layer, and each arrow as a path of nodes through all layers between its ends."""
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


def _order(rows: list[list[int]], paths: list[list[int]]) -> None:
    """Put the nodes of each layer below those that they come from, and above those that they lead to."""
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
            mean = {n: float(np.mean([at[each] for each in near[n]])) if n in near else own[n] for n in row}
            row.sort(key=mean.__getitem__)


def _centres(rows: list[list[int]], boxes: int) -> tuple[dict[int, float], float]:
    """Return the middle of each node, with each layer in the middle of the picture, and the width of that."""

    def wide(node: int) -> float:
        return (_BOX if node < boxes else _PASS) + _GAP

    width = max((sum(map(wide, row)) for row in rows), default=0.0) + 2 * _GAP
    width = max(width, 300.0)
    centres: dict[int, float] = {}
    for row in rows:
        x = (width - sum(map(wide, row))) / 2
        for node in row:
            centres[node] = x + wide(node) / 2
            x += wide(node)
    return centres, width
