"""From a chart's data to a drawing: one function for each kind of chart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nnpipe.report import _candidatedrawing, _classdrawing, _coursedrawing
from nnpipe.report._shapes import Drawing
from nnpipe.report.charts import Areas, Bars, Chart, Dots, Heatmap, Histogram, Intervals, Lines, Scatter, Spreads

_DRAWERS: dict[type[Any], Callable[[Any], Drawing]] = {
    Lines: _coursedrawing.lines,
    Areas: _coursedrawing.areas,
    Histogram: _coursedrawing.histogram,
    Spreads: _candidatedrawing.spreads,
    Bars: _candidatedrawing.bars,
    Scatter: _candidatedrawing.scatter,
    Intervals: _candidatedrawing.intervals,
    Heatmap: _classdrawing.heatmap,
    Dots: _classdrawing.dots,
}


def draw(chart: Chart) -> Drawing:
    """Draw a chart."""
    return _DRAWERS[type(chart)](chart)
