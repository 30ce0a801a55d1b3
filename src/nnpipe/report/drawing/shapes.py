"""The shapes of a picture, before it becomes SVG or pixels.

Coordinates are in points from the upper left corner.  Colours are names of
:data:`COLOURS`, so that a page can have different colours in light and dark mode.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nnpipe.report.charts import Floats

# The series colours are those of Okabe and Ito ("Color Universal Design", 2008), which people with
# any kind of colour vision can distinguish.
COLOURS = {
    "ink": "#1b1f24",
    "muted": "#57606a",
    "line": "#d5dae0",
    "page": "#ffffff",
    "warn": "#9a4a00",
    "series-0": "#0072b2",
    "series-1": "#d55e00",
    "series-2": "#009e73",
    "series-3": "#cc79a7",
    "series-4": "#e69f00",
    "series-5": "#56b4e9",
    "series-6": "#7a5fb5",
}
SERIES = 7
"""The number of colours of series; more begin again."""


@dataclass(frozen=True, eq=False)
class Path:
    """Lines or areas with the same style.

    Parameters
    ----------
    parts
        Arrays of coordinates ``(points, 2)``.
    fill, stroke
        Names of colours, or empty for none.
    width
        Width of the stroke in points.
    opacity
        Opacity from 0 to 1.
    dashed
        Whether the stroke is dashed.
    tip
        The text that is shown when a reader points at the shape.
    """

    parts: tuple[Floats, ...]
    fill: str = ""
    stroke: str = ""
    width: float = 1.4
    opacity: float = 1.0
    dashed: bool = False
    tip: str = ""


@dataclass(frozen=True)
class TextLine:
    """A line of text.

    ``anchor`` names the part of the text that is at ``x``: ``start``, ``middle``
    or ``end``; ``y`` is the base line.  ``upright`` text is read from bottom to top.
    """

    x: float
    y: float
    text: str
    size: float
    colour: str = "ink"
    anchor: str = "start"
    upright: bool = False


@dataclass(frozen=True, eq=False)
class Raster:
    """A picture of one colour: opacities (rows, columns), from 0 to 255, as uint8."""

    x: float
    y: float
    width: float
    height: float
    opacities: npt.NDArray[np.uint8]
    colour: str


@dataclass(frozen=True)
class Photo:
    """A JPEG file, stretched to a width and height."""

    x: float
    y: float
    width: float
    height: float
    content: bytes


Shape = Path | TextLine | Raster | Photo


@dataclass(frozen=True, eq=False)
class Drawing:
    """A picture with its size in points and its shapes, which are drawn in order."""

    width: float
    height: float
    shapes: tuple[Shape, ...]


def get_series_colour(number: int) -> str:
    """Return the name of the colour of a candidate or curve."""
    return f"series-{number % SERIES}"


def stack_points(*points: tuple[float, float]) -> Floats:
    """Return points as an array (points, 2)."""
    return np.array(points, np.float64)


def create_rectangle(left: float, top: float, right: float, bottom: float) -> Floats:
    """Return the corners (4, 2) of a rectangle to be filled."""
    return stack_points((left, top), (right, top), (right, bottom), (left, bottom))


_ANGLES = np.linspace(0, 2 * np.pi, 24, endpoint=False)
_CIRCLE = np.stack([np.sin(_ANGLES), -np.cos(_ANGLES)], axis=1)
_CROSS = (
    (-1, -3),
    (1, -3),
    (1, -1),
    (3, -1),
    (3, 1),
    (1, 1),
    (1, 3),
    (-1, 3),
    (-1, 1),
    (-3, 1),
    (-3, -1),
    (-1, -1),
)
_SIGNS = (
    _CIRCLE,
    0.85 * stack_points((-1, -1), (1, -1), (1, 1), (-1, 1)),
    1.2 * stack_points((0, -1), (1, 0), (0, 1), (-1, 0)),
    stack_points((0, -1.1), (1.1, 0.9), (-1.1, 0.9)),
    stack_points((0, 1.1), (1.1, -0.9), (-1.1, -0.9)),
    0.36 * np.array(_CROSS, np.float64),
    (_CIRCLE * np.tile([1.25, 1, 0.75, 0.55, 0.75, 1], 4)[:, np.newaxis])[::2],
    0.36 * np.array(_CROSS, np.float64) @ np.array([[1, 1], [-1, 1]]) / np.sqrt(2),
)
"""Outlines of the markers.

Their number is coprime to that of the colours, so there are 56 different markers.
"""


def create_marker(number: int, place: npt.ArrayLike, radius: float) -> Floats:
    """Return the outline of a marker at a place; the shape depends on the number."""
    outline: Floats = _SIGNS[number % len(_SIGNS)] * radius + np.asarray(place)
    return outline
