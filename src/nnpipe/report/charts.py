"""Charts as data.

The arrays hold what is drawn, already downsampled and in the unit of the axis.
So the chart of a million samples is as small as that of a thousand.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

# Charts of many points as data: points over two axes, and lines over axes in parallel.
#
# Axes may be choices: then values are whole numbers, and the axis has their names.

_Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ChartAxis:
    """An axis from ``low`` to ``high``; with ``names`` it has choices, the first one at 0.

    Values beyond the ends are drawn at the ends.
    """

    label: str
    low: float
    high: float
    log: bool = False
    names: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class PointGroup:
    """Points of one colour: ``x`` and ``y`` (points,), and intervals (points, 2) in a direction, if
    there are any.

    ``strength`` is their opacity, ``marker`` the number of their shape.  ``tips`` are texts that
    are shown when a reader points at them; without, points cost little.
    """

    label: str
    x: _Floats
    y: _Floats
    colour: int
    strength: float = 1.0
    marker: int = 0
    tips: tuple[str, ...] = ()
    x_ends: _Floats | None = field(default=None, kw_only=True)
    y_ends: _Floats | None = field(default=None, kw_only=True)


@dataclass(frozen=True, eq=False)
class PointLine:
    """A line through points ``x`` and ``y`` (points,)."""

    label: str
    x: _Floats
    y: _Floats
    colour: int
    strength: float = 1.0
    dashed: bool = False
    width: float = 1.6


@dataclass(frozen=True, eq=False)
class Points:
    """Groups of points over two axes, the later ones on top, and lines between or above them.

    A label names a colour in the legend once, also if several groups or lines have it; empty labels
    are not shown.
    """

    x: ChartAxis
    y: ChartAxis
    groups: tuple[PointGroup, ...]
    lines: tuple[PointLine, ...] = ()


@dataclass(frozen=True, eq=False)
class ParallelLines:
    """Lines of one colour across parallel axes: values (lines, axes), NaN where a line has no
    value on an axis.
    """

    label: str
    values: _Floats
    colour: int
    strength: float = 1.0


@dataclass(frozen=True, eq=False)
class ParallelAxes:
    """Axes below each other, and lines that cross them; the later groups are on top."""

    axes: tuple[ChartAxis, ...]
    groups: tuple[ParallelLines, ...]


Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Line:
    """A curve of points ``x`` and ``y`` (points,); ``low`` and ``high``, if given, bound a band
    around it.

    With ``loose`` the points are not joined.
    """

    label: str
    x: Floats
    y: Floats
    low: Floats | None = None
    high: Floats | None = None
    loose: bool = field(default=False, kw_only=True)


@dataclass(frozen=True, eq=False)
class Lines:
    """Curves over one axis.

    ``top`` is a value that the vertical axis must reach; a ``flat`` picture is less high.
    """

    x_label: str
    y_label: str
    lines: tuple[Line, ...]
    log_y: bool = False
    top: float = 0.0
    flat: bool = False
    log_x: bool = False


@dataclass(frozen=True, eq=False)
class Areas:
    """Stacked areas; each layer is a label and heights (points,)."""

    x_label: str
    y_label: str
    x: Floats
    layers: tuple[tuple[str, Floats], ...]


@dataclass(frozen=True, eq=False)
class Histogram:
    """Counts (bins,) between edges (bins + 1,), with labelled marks on the axis."""

    x_label: str
    y_label: str
    edges: Floats
    counts: npt.NDArray[Any]
    marks: tuple[tuple[str, float], ...] = ()
    log_x: bool = False


@dataclass(frozen=True, eq=False)
class Distribution:
    """The distribution of a candidate: heights (bins,) between edges (bins + 1,), quartiles, and
    a colour number.
    """

    label: str
    edges: Floats
    heights: Floats
    quartiles: tuple[float, float, float]
    colour: int


@dataclass(frozen=True, eq=False)
class Distributions:
    """Distributions side by side on one axis."""

    x_label: str
    rows: tuple[Distribution, ...]
    log_x: bool = False


@dataclass(frozen=True)
class Bar:
    """A bar with its value, the value as text, and a colour number."""

    label: str
    value: float
    text: str
    colour: int = 0


@dataclass(frozen=True)
class Bars:
    """Bars below each other on one axis."""

    x_label: str
    bars: tuple[Bar, ...]


@dataclass(frozen=True, eq=False)
class StackedBar:
    """A bar of several parts (labels,) in a row, and a text beside it."""

    label: str
    parts: Floats
    text: str


@dataclass(frozen=True, eq=False)
class StackedBars:
    """Bars below each other whose parts have the same labels and colours."""

    x_label: str
    labels: tuple[str, ...]
    bars: tuple[StackedBar, ...]


@dataclass(frozen=True)
class ChartPoint:
    """A point with its intervals in both directions, and the number of its colour and marker.

    A point that is not on the front is worse than another point in both directions.
    ``tip`` is the text that is shown when a reader points at it.
    """

    label: str
    x: float
    y: float
    x_interval: tuple[float, float]
    y_interval: tuple[float, float]
    colour: int
    on_front: bool = True
    tip: str = ""


@dataclass(frozen=True)
class Scatter:
    """Candidates as points; smaller values of the first axis and larger values of the second are
    better.

    ``front`` says whether to draw the Pareto front.
    """

    x_label: str
    y_label: str
    points: tuple[ChartPoint, ...]
    log_x: bool = False
    front: bool = False


@dataclass(frozen=True)
class Interval:
    """A value with its interval, if there is one, and a text beside it; ``clear`` if it differs
    significantly.
    """

    label: str
    value: float
    interval: tuple[float, float] | None
    text: str
    colour: int
    clear: bool = True


@dataclass(frozen=True)
class Intervals:
    """Values and a neutral value that means no difference; values within the margin around it
    count as the same.
    """

    x_label: str
    rows: tuple[Interval, ...]
    neutral: float
    margin: float = 0.0
    log_x: bool = False


@dataclass(frozen=True, eq=False)
class Heatmap:
    """A square matrix of shares from 0 to 1 (rows, columns), with counts in the cells if there
    is room.
    """

    x_label: str
    y_label: str
    scale_label: str
    shares: Floats
    counts: npt.NDArray[Any] | None
    names: tuple[str, ...]
    classes: int


@dataclass(frozen=True, eq=False)
class DotPlot:
    """Several values (rows,) for each of a list of names."""

    x_label: str
    names: tuple[str, ...]
    values: tuple[tuple[str, Floats], ...]


@dataclass(frozen=True, eq=False)
class BoxGroup:
    """Boxes of one origin: left, top, width and height (boxes, 4), their texts, and a colour
    number; -1: the truth.

    ``lines`` are drawn, too: points (points, 2) that follow each other, such as the key points of a
    limb.
    """

    label: str
    boxes: Floats
    texts: tuple[str, ...]
    colour: int
    lines: tuple[Floats, ...] = ()


@dataclass(frozen=True, eq=False)
class BoxedFrame:
    """Boxes in the frame of a picture of some width and height, all in pixels, and maybe a JPEG
    file of the picture.
    """

    width: float
    height: float
    groups: tuple[BoxGroup, ...]
    picture: bytes = b""


@dataclass(frozen=True)
class GraphBox:
    """A box of a graph with two lines of text, its shade from 0 to 1, and the text shown when a
    reader points at it.
    """

    label: str
    detail: str
    shade: float
    tip: str = ""


@dataclass(frozen=True)
class BoxGraph:
    """Boxes, each after those before it, and arrows between their numbers."""

    boxes: tuple[GraphBox, ...]
    arrows: tuple[tuple[int, int], ...]
    scale_label: str


Chart = (
    BoxedFrame
    | BoxGraph
    | Lines
    | Areas
    | Histogram
    | Distributions
    | Bars
    | StackedBars
    | Scatter
    | Intervals
    | Heatmap
    | DotPlot
    | Points
    | ParallelAxes
)
