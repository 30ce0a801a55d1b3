"""Room for what is written around a plot.

Margins are computed in points from the lengths of labels: matplotlib's own
layouts measure every letter, which takes longer than drawing.
"""

from __future__ import annotations

import math
import unicodedata
from typing import Any

from nnpipe.report.wording import clean

WIDTH = 380.0  # points, of every picture
SMALL = 10.5  # points, of letters other than the axes' names
ROW = 15.0  # points from one line of text to the next


def axes_of(height: float) -> Any:
    """Make a figure of a height in points, with axes that find their place when they are finished."""
    from matplotlib.figure import Figure

    return Figure((WIDTH / 72, height / 72)).add_axes((0, 0, 1, 1))


def divide(axes: Any, name: str, log: bool = False, ticks: int = 5, whole: bool = False) -> None:
    """Divide an axis, once its limits are known."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    axis = getattr(axes, f"{name}axis")
    if log:
        getattr(axes, f"set_{name}scale")("log")
        low, high = getattr(axes, f"get_{name}lim")()
        decades = math.log10(high / low)
        steps = (1, 2, 5) if decades < 2 else (1, 3) if decades < 4 else (1,)
        axis.set_major_locator(LogLocator(subs=steps, numticks=12))
        axis.set_minor_locator(NullLocator())
    else:
        axis.set_major_locator(MaxNLocator(ticks, integer=whole))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.12g}"))


def finish(
    axes: Any,
    x_label: str,
    y_label: str = "",
    *,
    names: float = 0.0,
    above: float = 0.0,
    below: float = 0.0,
    legend: bool = False,
) -> None:
    """Name the axes and leave room for what is written around them.

    ``names`` is the length of the rows' names; ``above`` is kept free; what
    the colours mean is written ``below``, or above with ``legend``.
    """
    left = 8.0
    if names:
        left = names + 10
    elif y_label:
        left = 24 + max(length(text, SMALL) for text in _written(axes.yaxis, axes.get_ylim()))
    else:
        axes.set_yticks([])
        axes.spines.left.set_visible(False)
    right = max(10.0, 2 + length(_written(axes.xaxis, axes.get_xlim())[-1], SMALL) / 2)
    bottom, top = 36 + below, 8 + above + (ROW if legend else 0)
    place(axes, left, right, bottom, top, x_label, y_label, below)
    if legend:
        _legend(axes, "lower left", (0, 3), 3)
    elif below:
        _legend(axes, "upper left", (-8, -36), 1)


def _written(axis: Any, limits: tuple[float, float]) -> list[str]:
    low, high = min(limits), max(limits)
    ticks = [tick for tick in axis.get_majorticklocs() if low <= tick <= high]
    return [axis.get_major_formatter()(tick, 0) for tick in ticks] or [""]


def place(
    axes: Any, left: float, right: float, bottom: float, top: float, x_label: str, y_label: str, below: float = 0.0
) -> None:
    """Put axes into their figure with margins in points, and their names at its edges or above what is ``below``."""
    height = 72 * axes.figure.get_figheight()
    wide, high = WIDTH - left - right, height - bottom - top
    axes.set_position((left / WIDTH, bottom / height, wide / WIDTH, high / height))
    axes.set_xlabel(clean(x_label, 60), verticalalignment="top")
    axes.set_ylabel(clean(y_label, 60), verticalalignment="top")
    # Where places are given, none has to be looked for.
    axes.xaxis.set_label_coords(0.5, -(bottom - below - 16) / high)
    axes.yaxis.set_label_coords(-(left - 2) / wide, 0.5)


def _legend(axes: Any, corner: str, shift: tuple[float, float], columns: int) -> None:
    from matplotlib.transforms import ScaledTranslation

    origin = axes.transAxes + ScaledTranslation(shift[0] / 72, shift[1] / 72, axes.figure.dpi_scale_trans)
    spaces = {"borderaxespad": 0, "borderpad": 0.1, "handletextpad": 0.4, "labelspacing": 0.35, "columnspacing": 1.4}
    anchor = (0, 1) if corner == "lower left" else (0, 0)
    axes.legend(loc=corner, bbox_to_anchor=anchor, bbox_transform=origin, ncols=columns, **spaces)


def length(text: str, size: float) -> float:
    """Estimate a text's length in points, rather too long than too short."""
    return size * sum(1.0 if unicodedata.east_asian_width(letter) in "WF" else 0.64 for letter in text)
