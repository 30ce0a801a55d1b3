"""Plots as data.

Arrays are what is to be drawn, already thinned out and in the unit that the
axis names: a chart of a million samples is as small as one of a thousand.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Line:
    """A curve: ``x`` and ``y`` (points,); ``low`` and ``high``, if given, bound the band that it stands for."""

    label: str
    x: Floats
    y: Floats
    low: Floats | None = None
    high: Floats | None = None


@dataclass(frozen=True, eq=False)
class Lines:
    """Curves over one axis.

    ``top`` is a value that the axis must reach; a ``flat`` picture suits what hardly moves.
    """

    x_label: str
    y_label: str
    lines: tuple[Line, ...]
    log_y: bool = False
    top: float = 0.0
    flat: bool = False


@dataclass(frozen=True, eq=False)
class Areas:
    """Layers put on top of each other; each is a label and heights (points,)."""

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
class Spread:
    """A candidate's distribution: heights (bins,) between edges (bins + 1,), its quartiles, its colour's number."""

    label: str
    edges: Floats
    heights: Floats
    quartiles: tuple[float, float, float]
    colour: int


@dataclass(frozen=True, eq=False)
class Spreads:
    """Distributions side by side on one axis."""

    x_label: str
    rows: tuple[Spread, ...]
    log_x: bool = False


@dataclass(frozen=True)
class Bar:
    """A length with the text that says how long it is, and the number of its colour."""

    label: str
    value: float
    text: str
    colour: int = 0


@dataclass(frozen=True)
class Bars:
    """Lengths side by side."""

    x_label: str
    bars: tuple[Bar, ...]


@dataclass(frozen=True)
class ChartPoint:
    """A place with the interval around it in both directions, and the number of its colour and sign.

    One that is not on the front is beaten by another in both directions;
    ``tip`` is what a reader is told who points at it.
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
    """Candidates between two axes, of which less of the first and more of the second is better.

    ``front`` says whether to draw the line that no candidate is beyond.
    """

    x_label: str
    y_label: str
    points: tuple[ChartPoint, ...]
    log_x: bool = False
    front: bool = False


@dataclass(frozen=True)
class Interval:
    """A value with its interval, if there is one, in words beside it; ``clear`` if it differs beyond doubt."""

    label: str
    value: float
    interval: tuple[float, float] | None
    text: str
    colour: int
    clear: bool = True


@dataclass(frozen=True)
class Intervals:
    """Values against one that means no difference; what lies within the margin around it counts as the same."""

    x_label: str
    rows: tuple[Interval, ...]
    neutral: float
    margin: float = 0.0
    log_x: bool = False


@dataclass(frozen=True, eq=False)
class Heatmap:
    """A square of shares from 0 to 1 (rows, columns), with counts written into it where there is room."""

    x_label: str
    y_label: str
    scale_label: str
    shares: Floats
    counts: npt.NDArray[Any] | None
    names: tuple[str, ...]
    classes: int


@dataclass(frozen=True, eq=False)
class Dots:
    """Several values (rows,) for each of a list of names."""

    x_label: str
    names: tuple[str, ...]
    values: tuple[tuple[str, Floats], ...]


Chart = Lines | Areas | Histogram | Spreads | Bars | Scatter | Intervals | Heatmap | Dots
