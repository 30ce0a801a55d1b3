"""One function for each kind of chart: from data to a matplotlib figure."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle
from typing import Any

import numpy as np

from nnpipe.report._layout import ROW, SMALL, WIDTH, axes_of, divide, finish, length, place
from nnpipe.report.charts import Areas, Bars, Chart, Dots, Heatmap, Histogram, Lines, Scatter, Spreads
from nnpipe.report.wording import clean, shortened

INK, MUTED, FAINT, SURFACE = "#1b1f24", "#57606a", "#d5dae0", "#ffffff"
SERIES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7a5fb5")

_MARKERS = "osD^vPX*"  # as many as is coprime to the number of colours: 56 different signs
_WRITTEN = 12  # up to so many classes, counts fit into the cells of a matrix
_NAMED = 40  # up to so many, names fit beside it
_GAMMA = 0.45  # of a confusion matrix's shade: a confusion of one in a hundred must not look like none


def draw(chart: Chart) -> Any:
    """Draw a chart, in the style that is set, on a figure of its own (nothing global is touched)."""
    return _DRAWERS[type(chart)](chart)


def _lines(chart: Lines) -> Any:
    axes = axes_of(155 if chart.flat else 200)
    for number, line in enumerate(chart.lines):
        colour = SERIES[number % len(SERIES)]
        if line.low is not None and line.high is not None:
            axes.fill_between(line.x, line.low, line.high, color=colour, alpha=0.28, linewidth=0)
        marker = "o" if len(line.x) < 60 else None
        axes.plot(line.x, line.y, color=colour, label=clean(line.label, 40), marker=marker, markersize=2.5)
    axes.margins(x=0.01)
    divide(axes, "x", ticks=6)
    if chart.log_y:
        divide(axes, "y", log=True)
    else:
        top = max(float(np.max(line.y if line.high is None else line.high)) for line in chart.lines)
        axes.set_ylim(0, 1.05 * max(top, chart.top) or 1)
        divide(axes, "y")
    finish(axes, chart.x_label, chart.y_label, legend=len(chart.lines) > 1)
    return axes.figure


def _areas(chart: Areas) -> Any:
    axes = axes_of(210)
    # stackplot wants at least two places to fill between.
    x, layers = chart.x, [layer for _, layer in chart.layers]
    if len(x) == 1:
        x, layers = np.array([x[0], x[0] + 1e-9]), [np.repeat(layer, 2) for layer in layers]
    axes.stackplot(x, layers, labels=[clean(label, 40) for label, _ in chart.layers], colors=SERIES, linewidth=0)
    axes.margins(x=0.01)
    axes.set_ylim(0, None)
    divide(axes, "x", ticks=6)
    divide(axes, "y")
    finish(axes, chart.x_label, chart.y_label, legend=True)
    return axes.figure


def _histogram(chart: Histogram) -> Any:
    axes = axes_of(200)
    axes.stairs(chart.counts, chart.edges, fill=True, color=SERIES[0], alpha=0.85)
    divide(axes, "x", log=chart.log_x)
    divide(axes, "y", whole=True)
    axes.grid(visible=False, axis="x")
    low, high = axes.get_xlim()
    level, highest, last = 0, 0, -np.inf
    for label, mark in sorted(chart.marks, key=lambda each: each[1]):
        axes.axvline(mark, color=INK, linewidth=0.9, linestyle=(0, (4, 2)))
        # Labels that would overlap climb.
        level = level + 1 if mark - last < 0.14 * (high - low) else 0
        highest, last = max(highest, level), mark
        axes.annotate(
            clean(label, 20),
            (mark, 1),
            (0, 3 + 0.85 * ROW * level),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            ha="center",
            fontsize=SMALL,
        )
    finish(axes, chart.x_label, chart.y_label, above=0.85 * ROW * (highest + 1) if chart.marks else 0)
    return axes.figure


def _spreads(chart: Spreads) -> Any:
    axes = axes_of(48 + 46 * len(chart.rows))
    for number, row in enumerate(chart.rows):
        colour, base = SERIES[row.colour % len(SERIES)], len(chart.rows) - 1 - number
        heights = base + 0.42 * np.concatenate([[0], row.heights, [0]])
        places = np.concatenate([row.edges[:1], (row.edges[1:] + row.edges[:-1]) / 2, row.edges[-1:]])
        axes.fill_between(places, base, heights, color=colour, alpha=0.45, linewidth=0)
        lower, middle, upper = row.quartiles
        axes.plot([row.edges[0], row.edges[-1]], [base, base], color=colour, linewidth=1)
        axes.plot([lower, upper], [base, base], color=colour, linewidth=4.5, solid_capstyle="butt")
        axes.plot(
            [middle], [base], color=SURFACE, marker="o", markersize=5.5, markeredgecolor=colour, markeredgewidth=1.8
        )
        name = shortened(clean(row.label), 52)
        axes.annotate(name, (0, base + 0.46), xycoords=("axes fraction", "data"), fontsize=SMALL)
    divide(axes, "x", log=chart.log_x, ticks=6)
    axes.set_ylim(-0.2, len(chart.rows) - 0.25)
    finish(axes, chart.x_label)
    return axes.figure


def _bars(chart: Bars) -> Any:
    axes = axes_of(44 + 36 * len(chart.bars))
    longest = max(bar.value for bar in chart.bars) or 1
    for number, bar in enumerate(chart.bars):
        base = len(chart.bars) - 1 - number
        axes.barh(base, bar.value, height=0.36, color=SERIES[bar.colour % len(SERIES)])
        axes.annotate(shortened(clean(bar.label), 46), (0, base + 0.26), fontsize=SMALL)
        end = {"xytext": (4, 0), "textcoords": "offset points", "va": "center"}
        axes.annotate(clean(bar.text, 20), (bar.value, base), fontsize=SMALL, **end)
    axes.set_xlim(0, 1.2 * longest)
    axes.set_ylim(-0.3, len(chart.bars) - 0.3)
    divide(axes, "x")
    finish(axes, chart.x_label)
    return axes.figure


def _scatter(chart: Scatter) -> Any:
    below = ROW * len(chart.points)
    axes = axes_of(200 + below)
    for point, marker in zip(chart.points, cycle(_MARKERS)):
        colour = SERIES[point.colour % len(SERIES)]
        across = [[max(0, point.x - point.x_interval[0])], [max(0, point.x_interval[1] - point.x)]]
        along = [[max(0, point.y - point.y_interval[0])], [max(0, point.y_interval[1] - point.y)]]
        axes.errorbar(point.x, point.y, yerr=along, xerr=across, color=colour, elinewidth=1.2)
        sign = {"marker": marker, "markersize": 8, "markeredgecolor": SURFACE, "linestyle": "none", "zorder": 3}
        axes.plot([point.x], [point.y], color=colour, label=shortened(clean(point.label), 52), **sign)
    axes.margins(x=0.1, y=0.08)
    divide(axes, "x", log=chart.log_x, ticks=6)
    divide(axes, "y")
    finish(axes, chart.x_label, chart.y_label, below=below)
    return axes.figure


def _heatmap(chart: Heatmap) -> Any:
    from matplotlib.colors import LinearSegmentedColormap, PowerNorm

    size, named = chart.classes, bool(chart.names) and chart.classes <= _NAMED
    names = [shortened(clean(name), 16) for name in chart.names] if named else []
    small = SMALL if size <= 20 else 6.5
    long = max((length(name, small) for name in names), default=0.0)
    upright = long > 290 / size
    left, right = 26 + (long + 6 if named else length(f"{size:,}", SMALL)), 20.0
    bottom, top, side = 26 + (long if named and upright else SMALL), 50.0, WIDTH - left - right
    axes = axes_of(bottom + side + top)
    # Shades of one colour over whatever is behind, so that the picture suits light and dark pages.
    shade = LinearSegmentedColormap.from_list("shade", [(*_rgb(SERIES[0]), 0.0), (*_rgb(SERIES[0]), 1.0)])
    norm = PowerNorm(_GAMMA, 0, 1)
    edges = (-0.5, size - 0.5, size - 0.5, -0.5)
    axes.imshow(chart.shares, shade, norm, aspect="auto", interpolation="none", extent=edges)
    axes.grid(visible=False)
    axes.spines[["top", "right"]].set_visible(True)
    if named:
        axes.set_xticks(range(size), names, rotation=90 if upright else 0, fontsize=small)
        axes.set_yticks(range(size), names, fontsize=small)
    else:
        divide(axes, "x", whole=True)
        divide(axes, "y", whole=True)
    if chart.counts is not None and size <= _WRITTEN:
        _write_counts(axes, chart)
    place(axes, left, right, bottom, top, chart.x_label, chart.y_label)
    _write_scale(axes.figure, left, bottom + side + 7, side, chart.scale_label, shade, norm)
    return axes.figure


def _write_counts(axes: Any, chart: Heatmap) -> None:
    counts = chart.counts
    if counts is None:
        return
    fontsize = min(SMALL, 416 / chart.classes / max(2, len(str(counts.max()))))
    for row, column in zip(*np.nonzero(counts), strict=True):
        dark = chart.shares[row, column] ** _GAMMA > 0.6
        text = axes.text(column, row, f"{counts[row, column]}", ha="center", va="center", fontsize=fontsize)
        text.set_color("#fefefe" if dark else INK)


def _write_scale(figure: Any, left: float, base: float, length: float, label: str, shade: Any, norm: Any) -> None:
    """Put a strip above a heatmap that says which shade means what."""
    height = 72 * figure.get_figheight()
    axes = figure.add_axes((left / WIDTH, base / height, length / WIDTH, 8 / height))
    # Even steps of shade, which are uneven steps of value.
    steps = norm.inverse(np.linspace(0, 1, 101))[np.newaxis]
    axes.imshow(steps, shade, norm, aspect="auto", interpolation="none", extent=(0, 1, 0, 1))
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    marks = (0, 0.01, 0.1, 0.3, 0.6, 1)
    axes.set_xticks(norm(marks), [f"{mark:.0%}" for mark in marks])
    axes.tick_params(bottom=False, labelbottom=False, top=True, labeltop=True)
    axes.set_yticks([])
    above = {"xycoords": "axes fraction", "textcoords": "offset points", "ha": "center"}
    axes.annotate(clean(label, 40), (0.5, 1), (0, 21), color=MUTED, fontsize=SMALL, **above)


def _dots(chart: Dots) -> Any:
    # Many rows move together rather than make the picture taller than the matrix beside it.
    pitch = min(16.0, 325 / len(chart.names))
    axes = axes_of(60 + max(pitch * len(chart.names), 70))
    places = np.arange(len(chart.names))[::-1]
    for number, ((label, values), marker) in enumerate(zip(chart.values, _MARKERS, strict=False)):
        colour = SERIES[number]
        filled = {"markerfacecolor": colour, "markeredgecolor": SURFACE} if number == 0 else {"markerfacecolor": "none"}
        axes.plot(values, places, color=colour, marker=marker, ms=6, ls="none", label=clean(label, 40), **filled)
    small = min(SMALL, 0.75 * pitch)
    names = [shortened(clean(name), 22) for name in chart.names]
    axes.set_yticks(places, names, fontsize=small)
    axes.set_ylim(-0.6, len(chart.names) - 0.4)
    least = min((float(np.nanmin(values)) for _, values in chart.values if not np.isnan(values).all()), default=0.0)
    axes.set_xlim(min(90.0, 10 * np.floor(least / 10)) - 1, 101)
    divide(axes, "x")
    finish(axes, chart.x_label, names=max(length(name, small) for name in names), legend=True)
    return axes.figure


def _rgb(colour: str) -> tuple[float, float, float]:
    red, green, blue = (int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5))
    return red, green, blue


_DRAWERS: dict[type[Any], Callable[[Any], Any]] = {
    Lines: _lines,
    Areas: _areas,
    Histogram: _histogram,
    Spreads: _spreads,
    Bars: _bars,
    Scatter: _scatter,
    Heatmap: _heatmap,
    Dots: _dots,
}
