"""One function for each kind of chart: from data to a matplotlib figure."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle
from typing import Any

import numpy as np

from nnpipe.report.charts import Areas, Bars, Chart, Dots, Heatmap, Histogram, Lines, Scatter, Spreads
from nnpipe.report.wording import clean, shortened

INK, MUTED, FAINT, SURFACE = "#1b1f24", "#57606a", "#d5dae0", "#ffffff"
SERIES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7a5fb5")
_SMALL = 10.5  # points, of everything but the axes' names
_MARKERS = "osD^vPX*"  # as many as is coprime to the number of colours: 56 different signs
_WIDTH = 380 / 72  # inches
_WRITTEN = 12  # up to so many classes, counts fit into the cells of a matrix
_NAMED = 40  # up to so many, names fit beside it
_GAMMA = 0.45  # of a confusion matrix's shade: a confusion of one in a hundred must not look like none


def draw(chart: Chart) -> Any:
    """Draw a chart, in the style that is set, on a figure of its own (nothing global is touched)."""
    return _DRAWERS[type(chart)](chart)


def _canvas(height: float) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    # Constrained layout would be better at nothing here, and takes twice as long.
    figure = Figure((_WIDTH, height), layout="tight")
    figure.get_layout_engine().set(pad=0.5)
    return figure, figure.subplots()


def _legend(axes: Any, below: bool = False) -> None:
    """Explain colours above the plot, or below its axis's name, where they cover nothing."""
    from matplotlib.transforms import ScaledTranslation

    # A distance in inches stays what it is when the layout changes the plot's height.
    place = axes.transAxes + ScaledTranslation(-0.1, -0.48 if below else 0.02, axes.figure.dpi_scale_trans)
    axes.legend(
        loc="upper left" if below else "lower left",
        bbox_to_anchor=(0, 0) if below else (0, 1),
        bbox_transform=place,
        ncols=1 if below else 3,
        borderaxespad=0,
        handletextpad=0.4,
        labelspacing=0.35,
        columnspacing=1.4,
    )


def _axis(axes: Any, name: str, log: bool = False, ticks: int = 5, whole: bool = False) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    axis = getattr(axes, f"{name}axis")
    if log:
        getattr(axes, f"set_{name}scale")("log")
        low, high = getattr(axes, f"get_{name}lim")()
        decades = np.log10(high / low)
        axis.set_major_locator(
            LogLocator(subs=(1, 2, 5) if decades < 2 else (1, 3) if decades < 4 else (1,), numticks=12)
        )
        axis.set_minor_locator(NullLocator())
    else:
        axis.set_major_locator(MaxNLocator(ticks, integer=whole))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.12g}"))


def _labels(axes: Any, x: str, y: str = "") -> None:
    axes.set_xlabel(clean(x, 60))
    axes.set_ylabel(clean(y, 60))


def _lines(chart: Lines) -> Any:
    figure, axes = _canvas(2.15 if chart.flat else 2.75)
    for number, line in enumerate(chart.lines):
        colour = SERIES[number % len(SERIES)]
        if line.low is not None and line.high is not None:
            axes.fill_between(line.x, line.low, line.high, color=colour, alpha=0.28, linewidth=0)
        axes.plot(line.x, line.y, color=colour, label=clean(line.label, 40), marker="o" if len(line.x) < 60 else None,
                  markersize=2.5)  # fmt: skip
    _axis(axes, "x", ticks=6)
    _axis(axes, "y", log=chart.log_y)
    if not chart.log_y:
        top = max([chart.top, *(float(np.max(line.y if line.high is None else line.high)) for line in chart.lines)])
        axes.set_ylim(0, 1.05 * top or 1)
    axes.margins(x=0.01)
    _labels(axes, chart.x_label, chart.y_label)
    if len(chart.lines) > 1:
        _legend(axes)
    return figure


def _areas(chart: Areas) -> Any:
    figure, axes = _canvas(2.9)
    # stackplot wants at least two places to fill between.
    x, layers = chart.x, [layer for _, layer in chart.layers]
    if len(x) == 1:
        x, layers = np.array([x[0], x[0] + 1e-9]), [np.repeat(layer, 2) for layer in layers]
    axes.stackplot(x, layers, labels=[clean(label, 40) for label, _ in chart.layers], colors=SERIES, linewidth=0)
    _axis(axes, "x", ticks=6)
    _axis(axes, "y")
    axes.margins(x=0.01)
    axes.set_ylim(0, None)
    _labels(axes, chart.x_label, chart.y_label)
    _legend(axes)
    return figure


def _histogram(chart: Histogram) -> Any:
    figure, axes = _canvas(2.75)
    axes.stairs(chart.counts, chart.edges, fill=True, color=SERIES[0], alpha=0.85)
    _axis(axes, "x", log=chart.log_x)
    _axis(axes, "y", whole=True)
    axes.grid(visible=False, axis="x")
    low, high = axes.get_xlim()
    level, last = 0, -np.inf
    for label, place in sorted(chart.marks, key=lambda mark: mark[1]):
        axes.axvline(place, color=INK, linewidth=0.9, linestyle=(0, (4, 2)))
        # Labels that would overlap climb.
        level = level + 1 if place - last < 0.14 * (high - low) else 0
        last = place
        axes.annotate(clean(label, 20), (place, 1.02 + 0.075 * level), xycoords=("data", "axes fraction"), ha="center",
                      fontsize=_SMALL)  # fmt: skip
    _labels(axes, chart.x_label, chart.y_label)
    return figure


def _spreads(chart: Spreads) -> Any:
    figure, axes = _canvas(0.65 + 0.68 * len(chart.rows))
    for number, row in enumerate(chart.rows):
        colour, base = SERIES[row.colour % len(SERIES)], len(chart.rows) - 1 - number
        heights = base + 0.42 * np.concatenate([[0], row.heights, [0]])
        places = np.concatenate([row.edges[:1], (row.edges[1:] + row.edges[:-1]) / 2, row.edges[-1:]])
        axes.fill_between(places, base, heights, color=colour, alpha=0.45, linewidth=0)
        lower, middle, upper = row.quartiles
        axes.plot([row.edges[0], row.edges[-1]], [base, base], color=colour, linewidth=1)
        axes.plot([lower, upper], [base, base], color=colour, linewidth=4.5, solid_capstyle="butt")
        axes.plot([middle], [base], color=SURFACE, marker="o", markersize=5.5, markeredgecolor=colour,
                  markeredgewidth=1.8)  # fmt: skip
        axes.annotate(
            shortened(clean(row.label), 52), (0, base + 0.46), xycoords=("axes fraction", "data"), fontsize=_SMALL
        )
    _axis(axes, "x", log=chart.log_x, ticks=6)
    axes.set_yticks([])
    axes.spines.left.set_visible(False)
    axes.set_ylim(-0.2, len(chart.rows) - 0.25)
    _labels(axes, chart.x_label)
    return figure


def _bars(chart: Bars) -> Any:
    figure, axes = _canvas(0.4 + 0.54 * len(chart.bars))
    longest = max(bar.value for bar in chart.bars) or 1
    for number, bar in enumerate(chart.bars):
        base = len(chart.bars) - 1 - number
        axes.barh(base, bar.value, height=0.36, color=SERIES[bar.colour % len(SERIES)])
        axes.annotate(shortened(clean(bar.label), 46), (0, base + 0.26), fontsize=_SMALL)
        axes.annotate(clean(bar.text, 20), (bar.value, base), xytext=(4, 0), textcoords="offset points", va="center",
                      fontsize=_SMALL)  # fmt: skip
    axes.set_xlim(0, 1.2 * longest)
    axes.set_ylim(-0.3, len(chart.bars) - 0.3)
    _axis(axes, "x")
    axes.set_yticks([])
    axes.spines.left.set_visible(False)
    _labels(axes, chart.x_label)
    return figure


def _scatter(chart: Scatter) -> Any:
    figure, axes = _canvas(2.75 + 0.21 * len(chart.points))
    for point, marker in zip(chart.points, cycle(_MARKERS)):
        colour = SERIES[point.colour % len(SERIES)]
        across = [[max(0, point.x - point.x_interval[0])], [max(0, point.x_interval[1] - point.x)]]
        along = [[max(0, point.y - point.y_interval[0])], [max(0, point.y_interval[1] - point.y)]]
        axes.errorbar(point.x, point.y, yerr=along, xerr=across, color=colour, elinewidth=1.2)
        axes.plot([point.x], [point.y], color=colour, marker=marker, markersize=8, markeredgecolor=SURFACE,
                  linestyle="none", zorder=3, label=shortened(clean(point.label), 52))  # fmt: skip
    _axis(axes, "x", log=chart.log_x, ticks=6)
    _axis(axes, "y")
    axes.margins(x=0.1, y=0.08)
    _labels(axes, chart.x_label, chart.y_label)
    _legend(axes, below=True)
    return figure


def _heatmap(chart: Heatmap) -> Any:
    from matplotlib.colors import LinearSegmentedColormap, PowerNorm

    # Shades of one colour over whatever is behind, so that the picture suits light and dark pages.
    shade = LinearSegmentedColormap.from_list("shade", [(*_rgb(SERIES[0]), 0.0), (*_rgb(SERIES[0]), 1.0)])
    figure, axes = _canvas(5.3)
    size = chart.classes
    norm = PowerNorm(_GAMMA, 0, 1)
    image = axes.imshow(chart.shares, shade, norm, interpolation="none", extent=(-0.5, size - 0.5, size - 0.5, -0.5))
    axes.grid(visible=False)
    axes.spines[["top", "right"]].set_visible(True)
    if chart.names and size <= _NAMED:
        names = [shortened(clean(name), 16) for name in chart.names]
        small = _SMALL if size <= 20 else 6.5
        upright = max(map(len, names)) * size > 44
        axes.set_xticks(range(size), names, rotation=90 if upright else 0, fontsize=small)
        axes.set_yticks(range(size), names, fontsize=small)
    if chart.counts is not None and size <= _WRITTEN:
        _write_counts(axes, chart)
    _labels(axes, chart.x_label, chart.y_label)
    bar = figure.colorbar(
        image, ax=axes, location="top", shrink=0.75, aspect=36, pad=0.02, ticks=(0, 0.01, 0.1, 0.3, 0.6, 1)
    )
    bar.set_label(clean(chart.scale_label, 40))
    bar.outline.set_visible(False)
    bar.ax.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    return figure


def _write_counts(axes: Any, chart: Heatmap) -> None:
    counts = chart.counts
    if counts is None:
        return
    longest = len(str(counts.max()))
    fontsize = min(10.5, 320 / chart.classes / max(2, longest) * 1.3)
    for row, column in zip(*np.nonzero(counts), strict=True):
        dark = chart.shares[row, column] ** _GAMMA > 0.6
        axes.text(column, row, f"{counts[row, column]}", ha="center", va="center", fontsize=fontsize,
                  color="#fefefe" if dark else INK)  # fmt: skip


def _dots(chart: Dots) -> Any:
    # Many rows move together rather than make the picture taller than the matrix beside it.
    pitch = min(0.22, 4.5 / len(chart.names))
    figure, axes = _canvas(0.9 + max(pitch * len(chart.names), 1.0))
    places = np.arange(len(chart.names))[::-1]
    least = min((float(np.nanmin(values)) for _, values in chart.values if not np.isnan(values).all()), default=0.0)
    for number, ((label, values), marker) in enumerate(zip(chart.values, _MARKERS, strict=False)):
        colour = SERIES[number]
        axes.plot(values, places, color=colour, marker=marker, markersize=6, linestyle="none", label=clean(label, 40),
                  markeredgecolor=SURFACE if number == 0 else colour, alpha=1,
                  markerfacecolor=colour if number == 0 else "none")  # fmt: skip
    small = min(_SMALL, 0.75 * 72 * pitch)
    axes.set_yticks(places, [shortened(clean(name), 22) for name in chart.names], fontsize=small)
    axes.set_ylim(-0.6, len(chart.names) - 0.4)
    axes.set_xlim(min(90.0, 10 * np.floor(least / 10)) - 1, 101)
    _axis(axes, "x")
    _labels(axes, chart.x_label)
    _legend(axes)
    return figure


def _rgb(colour: str) -> tuple[float, float, float]:
    red, green, blue = (int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5))
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
