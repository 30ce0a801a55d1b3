"""Axes with their ranges, ticks and labels, and the margins around a plot.

Margins are computed from estimated lengths of labels, because the program that
shows the picture chooses the font.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.report.charts import Floats, Line
from nnpipe.report.drawing.shapes import Path, Shape, TextLine, stack_points
from nnpipe.report.formatting import clean

# width of every picture in points: narrow, so that its text can be read on a telephone
WIDTH = 380.0
SMALL = 10.5  # font size in points of all text except the names of axes
NAME = 11.0
ROW = 15.0  # points from one line of text to the next
_LEAST, _GREATEST = 1e-150, 1e150  # beyond these, the ratio of two numbers may overflow a float
_STEPS = (1, 2, 2.5, 5, 10)


@dataclass(frozen=True)
class AxisRange:
    """The range of an axis.

    Parameters
    ----------
    low, high
        The ends; ``high`` is greater.
    log
        Whether the axis is logarithmic.
    divisions
        The greatest number of intervals between ticks on a linear axis.
    whole
        Whether ticks are whole numbers only.
    names
        The names of the whole numbers from 0, which are the ticks then; an empty name has no tick.
    """

    low: float
    high: float
    log: bool = False
    divisions: int = 5
    whole: bool = False
    names: tuple[str, ...] = ()

    @classmethod
    def from_values(
        cls, values: Iterable[float], margin: float = 0.0, log: bool = False, divisions: int = 5
    ) -> AxisRange:
        """Return the range of all finite values with a margin at both ends, given as a share of
        the range.
        """
        found = np.clip(
            [v for v in values if math.isfinite(v) and (v > _LEAST or not log)],
            -_GREATEST,
            _GREATEST,
        )
        found[np.abs(found) < _LEAST] = 0.0
        low, high = (float(found.min()), float(found.max())) if len(found) else (1.0, 2.0)
        if log:
            factor = max((high / low) ** margin, 1.02)
            return cls(low / factor, high * factor, True, divisions)
        room = margin * (high - low) or (0.0 if high > low else max(abs(high), 1.0) / 20)
        return cls(low - room, high + room, False, divisions)

    def shares(self, values: npt.ArrayLike) -> Floats:
        """Return the relative positions of values on the axis: 0 at the low end, 1 at the high
        end.
        """
        given = np.asarray(values, np.float64)
        if not self.log:
            return np.asarray((given - self.low) / (self.high - self.low))
        given = np.maximum(given, self.low)  # values without a logarithm are drawn at the low end
        return np.asarray(np.log(given / self.low) / math.log(self.high / self.low))

    def find_ticks(self) -> list[float]:
        """Return the values of the ticks."""
        if self.names:
            return [float(number) for number, name in enumerate(self.names) if name]
        if self.log:
            decades = math.log10(self.high / self.low)
            steps = (1, 2, 5) if decades < 2 else (1, 3) if decades < 4 else (1,)
            exponents = range(
                math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1
            )
            every = max(1, round(len(exponents) / 8))
            found = [step * 10.0**exponent for exponent in exponents[::every] for step in steps]
            found = [tick for tick in found if self.low <= tick <= self.high]
            if len(found) >= 3:
                return found
        return self._compute_even_ticks()

    def text(self, tick: float) -> str:
        """Return the text of a tick."""
        return self.names[int(tick)] if self.names else format_tick_value(tick)

    def _compute_even_ticks(self) -> list[float]:
        rough = (self.high - self.low) / self.divisions
        power = 10.0 ** math.floor(math.log10(rough))
        step = next((s * power for s in _STEPS if s * power >= rough * (1 - 1e-9)), 10 * power)
        if self.whole:
            step = max(1.0, math.ceil(step))
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [number * step for number in range(first, last + 1)]


@dataclass(frozen=True)
class PlotArea:
    """The area of a plot in points, with the ranges of its axes."""

    left: float
    top: float
    right: float
    bottom: float
    x: AxisRange
    y: AxisRange

    def to_x(self, values: npt.ArrayLike) -> Floats:
        """Return the x coordinates of values in points."""
        return np.asarray(self.left + self.x.shares(values) * (self.right - self.left))

    def to_y(self, values: npt.ArrayLike) -> Floats:
        """Return the y coordinates of values in points."""
        return np.asarray(self.bottom - self.y.shares(values) * (self.bottom - self.top))

    def to_coordinates(self, x: npt.ArrayLike, y: npt.ArrayLike) -> Floats:
        """Return the coordinates (points, 2) of pairs of values in points."""
        return np.stack([self.to_x(x), self.to_y(y)], axis=-1)


def create_plot_area(
    height: float,
    x: AxisRange,
    y: AxisRange,
    *,
    left: float | None = None,
    above: float = 0.0,
    below: float = 0.0,
) -> PlotArea:
    """Return the area of a plot in a picture, with room for the text around it.

    Parameters
    ----------
    height
        Height of the picture in points.
    x, y
        The ranges of the axes.
    left
        Points for text on the left; by default enough for the ticks and the name of the y axis.
    above, below
        Points kept free at the upper and the lower edge.
    """
    if left is None:
        left = 24 + max(
            estimate_text_length(text, SMALL)
            for text in [""] + [y.text(tick) for tick in y.find_ticks()]
        )
    ends = [x.text(tick) for tick in x.find_ticks()][-1:] or [""]
    right = max(10.0, 2 + estimate_text_length(ends[0], SMALL) / 2)
    return PlotArea(left, 8 + above, WIDTH - right, height - 36 - below, x, y)


def draw_axes(area: PlotArea, x_label: str, y_label: str = "", *, lines: str = "xy") -> list[Shape]:
    """Return the shapes of the axes with their ticks and names.

    Without ``y_label`` the y axis has no text.  ``lines`` names the axes with grid lines.
    """
    shapes: list[Shape] = []
    x_ticks, y_ticks = area.x.find_ticks(), area.y.find_ticks() if y_label else []
    xs, ys = area.to_x(x_ticks).tolist(), area.to_y(y_ticks).tolist()
    grid = [stack_points((x, area.top), (x, area.bottom)) for x in xs if "x" in lines]
    grid += [stack_points((area.left, y), (area.right, y)) for y in ys if "y" in lines]
    shapes.append(Path(tuple(grid), stroke="line", width=0.6))
    edge = [stack_points((area.left, area.bottom), (area.right, area.bottom))]
    if y_label:
        edge.append(stack_points((area.left, area.top), (area.left, area.bottom)))
    shapes.append(Path(tuple(edge), stroke="line", width=0.8))
    base = area.bottom + 5 + SMALL
    shapes += [
        TextLine(x, base, text, SMALL, "muted", "middle")
        for x, text in _remove_overlapping_labels(xs, [area.x.text(tick) for tick in x_ticks])
    ]
    for y, tick in zip(ys, y_ticks, strict=True):
        shapes.append(
            TextLine(area.left - 5, y + 0.36 * SMALL, area.y.text(tick), SMALL, "muted", "end")
        )
    shapes.append(
        TextLine(
            (area.left + area.right) / 2, base + 14, clean(x_label, 60), NAME, "muted", "middle"
        )
    )
    if y_label:
        middle = (area.top + area.bottom) / 2
        shapes.append(
            TextLine(
                2 + 0.8 * NAME, middle, clean(y_label, 60), NAME, "muted", "middle", upright=True
            )
        )
    return shapes


def _remove_overlapping_labels(
    places: Sequence[float], texts: Sequence[str]
) -> list[tuple[float, str]]:
    """Return the labels with their places, without those that would overlap the one before."""
    found: list[tuple[float, str]] = []
    end = -math.inf
    for place, text in zip(places, texts, strict=True):
        half = estimate_text_length(text, SMALL) / 2
        if place - half > end:
            found.append((place, text))
            end = place + half + 3
    return found


def place_legend(
    labels: Sequence[str], left: float, width: float
) -> list[tuple[float, float, str]]:
    """Return the place from the upper left and the text of each label, in rows, with room for a
    marker before it.
    """
    found, x, row = [], left, 0
    for label in (clean(label, 40) for label in labels):
        needed = 18 + estimate_text_length(label, SMALL)
        if x > left and x + needed > left + width:
            x, row = left, row + 1
        found.append((x, row * ROW, label))
        x += needed + 12
    return found


def format_tick_value(value: float) -> str:
    """Return the text of a tick."""
    return f"{value:,.12g}".replace("-", "−")


def estimate_text_length(text: str, size: float) -> float:
    """Return an estimate of a text's length in points, which is rather too long than too short."""
    return size * sum(
        1.0 if unicodedata.east_asian_width(letter) in "WF" else 0.64 for letter in text
    )


COLUMNS = 360  # approximate width of a plot in points


def reduce_to_columns(
    label: str, x: npt.NDArray[Any], y: npt.NDArray[Any], columns: int = COLUMNS
) -> Line:
    """Return a curve of at most ``columns`` points.

    Each point is the median of a column, with the column's minimum and maximum,
    so that a single outlier among a million samples stays visible.

    Parameters
    ----------
    label
        The label of the curve.
    x, y
        Arrays ``(samples,)``; ``x`` is ascending.
    columns
        The greatest number of points; shorter series are returned unchanged.
    """
    if len(x) <= columns:
        return Line(label, np.asarray(x, np.float64), np.asarray(y, np.float64))
    starts = find_column_starts(x, columns)
    ends = np.append(starts[1:], len(x))
    ordered = y.copy()
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        # the median is then in the middle; np.median of each takes ten times as long
        ordered[start:end].sort()
    middle = (
        ordered[(starts + ends - 1) // 2].astype(np.float64) + ordered[(starts + ends) // 2]
    ) / 2
    return Line(
        label,
        _compute_column_centres(x, starts, ends),
        middle,
        np.minimum.reduceat(y, starts).astype(np.float64),
        np.maximum.reduceat(y, starts).astype(np.float64),
    )


def compute_column_means(
    x: npt.NDArray[Any], layers: tuple[npt.NDArray[Any], ...], columns: int = COLUMNS
) -> tuple[Floats, tuple[Floats, ...]]:
    """Return the centres of the columns and the mean of each layer in them; the means add up
    like the layers.
    """
    if len(x) <= columns:
        return np.asarray(x, np.float64), tuple(np.asarray(layer, np.float64) for layer in layers)
    starts = find_column_starts(x, columns)
    ends = np.append(starts[1:], len(x))
    means = tuple(
        np.add.reduceat(layer, starts, dtype=np.float64) / (ends - starts) for layer in layers
    )
    return _compute_column_centres(x, starts, ends), means


def find_column_starts(x: npt.NDArray[Any], columns: int) -> npt.NDArray[np.intp]:
    """Return the first index in each of the columns of equal width that ``x`` is divided into,
    without empty ones.
    """
    edges = np.linspace(float(x[0]), float(x[-1]), columns + 1)[:-1]
    starts = np.unique(np.searchsorted(x, edges))
    return starts[starts < len(x)]


def _compute_column_centres(
    x: npt.NDArray[Any], starts: npt.NDArray[np.intp], ends: npt.NDArray[np.intp]
) -> Floats:
    centres: Floats = (x[starts].astype(np.float64) + x[ends - 1]) / 2
    return centres
