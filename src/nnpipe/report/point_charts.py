"""Charts of many points as data: points over two axes, and lines over axes in parallel.

Axes may be choices: then values are whole numbers, and the axis has their names.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

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
    """Points of one colour: ``x`` and ``y`` (points,), and intervals (points, 2) in a direction, if there are any.

    ``strength`` is their opacity, ``marker`` the number of their shape.  ``tips`` are texts that are shown when a
    reader points at them; without, points cost little.
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

    A label names a colour in the legend once, also if several groups or lines have it; empty labels are not shown.
    """

    x: ChartAxis
    y: ChartAxis
    groups: tuple[PointGroup, ...]
    lines: tuple[PointLine, ...] = ()


@dataclass(frozen=True, eq=False)
class Strands:
    """Lines of one colour across parallel axes: values (lines, axes), NaN where a line has no value on an axis."""

    label: str
    values: _Floats
    colour: int
    strength: float = 1.0


@dataclass(frozen=True, eq=False)
class ParallelAxes:
    """Axes below each other, and lines that cross them; the later groups are on top."""

    axes: tuple[ChartAxis, ...]
    groups: tuple[Strands, ...]
